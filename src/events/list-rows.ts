import type { Row } from '../store/collection.ts';
import type { Carrier } from '../store/outbox.ts';

/** A row of the rejection list or of the whitelist. */
export interface ListRow extends Row, Carrier {
  readonly account: string;
  readonly removed: boolean;
  readonly version: number;
}

/** A collection of such rows. Rows are replaced and removed only in the version that was read. */
export interface ListRows<R extends ListRow> {
  one(id: string): Promise<R | undefined>;
  insert(row: R): Promise<'inserted' | 'duplicate'>;
  replace(row: R, version: number): Promise<R | undefined>;
  remove(id: string, version: number): Promise<unknown>;
}

/** What a change makes of an entry; the sync event goes into the same write. */
export interface Step<R extends ListRow> {
  readonly row: R;
  readonly event?: SyncEvent;
}

export type SyncEvent = NonNullable<Carrier['unsent']>[number];

/** An entry before and after; `after` is undefined when nothing was changed. */
export interface Changed<R extends ListRow> {
  readonly before: R | undefined;
  readonly after: R | undefined;
  /** That of this change; what else its row carries is for whoever put it there, and for the sweep. */
  readonly event: SyncEvent | undefined;
}

/** Each round is lost only to somebody who won, so many callers at once need many; what needs more than this is a fault of ours. */
const MOST_ROUNDS = 10_000;

/**
 * Changes the entry of an id as `decide` says, in one write together with its event, whoever else changes it meanwhile: then
 * `decide` is asked again. An entry that was taken off and whose row is still there counts as not there.
 */
export async function changeEntry<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  decide: (live: R | undefined) => Step<R> | undefined,
): Promise<Changed<R>> {
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const found = await rows.one(id);
    const before = found?.removed ? undefined : found;
    const step = decide(before);
    if (!step) return { before, after: undefined, event: undefined };
    const row = withEvent(step, found);
    const after = found
      ? await rows.replace(row, found.version)
      : (await rows.insert(row)) === 'inserted'
        ? row
        : undefined;
    if (after) return { before, after, event: step.event };
  }
  throw new Error(`the list entry could not be changed in ${MOST_ROUNDS} rounds`);
}

/** Events that are still to be sent stay in the row, in their order. */
function withEvent<R extends ListRow>({ row, event }: Step<R>, found: R | undefined): R {
  const unsent = [...(found?.unsent ?? []), ...(event ? [event] : [])];
  const version = (found?.version ?? 0) + 1;
  if (unsent.length === 0) return { ...row, version, unsent: null, unsentSince: null };
  return { ...row, version, unsent, unsentSince: found?.unsentSince ?? row.unsentSince };
}

/** Takes events that the spool has out of their row; a row of an entry that was taken off goes with its last one. */
export async function forgetEvents<R extends ListRow>(
  rows: ListRows<R>,
  id: string,
  sent: ReadonlySet<string>,
): Promise<void> {
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const row = await rows.one(id);
    if (!row?.unsent) return;
    const unsent = row.unsent.filter((event) => !sent.has(event.id));
    if (unsent.length === row.unsent.length) return;
    if (unsent.length === 0 && row.removed) {
      if (await rows.remove(id, row.version)) return;
      continue;
    }
    const rest = unsent.length === 0 ? { unsent: null, unsentSince: null } : { unsent };
    if (await rows.replace({ ...row, ...rest, version: row.version + 1 }, row.version)) return;
  }
}

/** Runs work for a row after all work for the same row that came before. When that failed, so does what waited for it. */
export type InTurn = <T>(id: string, work: () => Promise<T>) => Promise<T>;

/**
 * Callers of one process that want the same row go one after the other: losing rounds to one another would cost the square of their
 * number. A store that is away fails all of them at once, so nobody waits for a row of deadlines.
 */
export function createTurns(): InTurn {
  const last = new Map<string, Promise<unknown>>();
  return (id, work) => {
    const mine = (last.get(id) ?? Promise.resolve()).then(work);
    last.set(id, mine);
    const done = () => {
      if (last.get(id) === mine) last.delete(id);
    };
    mine.then(done, done);
    return mine;
  };
}
