import { frozen } from '../base/frozen.ts';
import type { Collection, Filter, Patch, Row } from '../store/driver/port.ts';
import type { Marked, MessageEventRow } from '../store/rows/messages.ts';

/** What an event does to one row. */
export interface Change<R> {
  /** Id of the row. */
  readonly row: string;
  /** Id of the event. */
  readonly event: string;
  /** The fields of the row that the event changes, never `version` and `marks`. Pure: it may be called again. */
  toPatch(row: R): Patch<R>;
  /** The row before any event, where there is none yet. Left out: a row that is not there is left alone. */
  readonly fresh?: R;
}

export interface OnceDeps<R extends Row> {
  readonly rows: Collection<R>;
  readonly events: Pick<Collection<MessageEventRow>, 'many'>;
}

/** Changes rows, each event once. */
export interface Once<R> {
  /** Resolves when the row has the event, with the row; undefined when it is not there. Throws what the store throws. */
  apply(change: Change<R>): Promise<R | undefined>;
}

/** Changes of one turn. More wait for the next; each turn asks the store twice, whatever the number. */
const MOST_CHANGES = 1000;
/** Another process changed the row between reading and writing it; so often in a row it does not. */
const MOST_ROUNDS = 50;

interface Waiting<R> {
  readonly change: Change<R>;
  resolve(row: R | undefined): void;
  reject(error: unknown): void;
}

/**
 * Exactly once, however often a change is tried, by how many processes, and wherever one of them is cut off. The store can
 * change one row in one atomic step and nothing more, so a row says itself which events are in it (`marks`), and is written
 * only as it was read (`version`). A mark may be forgotten once its event is applied (`appliedAt`), because then nobody tries
 * it any more; one who was held up before that moment must not find the mark gone and count again. Therefore the rows are
 * read first and the events after them: an event that is not applied then was not applied when the row was read, so its mark
 * was not forgotten; and one that is applied is in the row already.
 *
 * Within one process changes are gathered while the store works: fifty events of one message or tag are one write, not fifty.
 */
export function createOnce<R extends Row & Marked>({ rows, events }: OnceDeps<R>): Once<R> {
  const waiting: Waiting<R>[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    while (waiting.length > 0) {
      const turn = waiting.splice(0, MOST_CHANGES);
      try {
        await applyAll(turn);
      } catch (error) {
        for (const one of turn) one.reject(error); // those that were resolved stay so
      }
    }
    running = false;
  }

  async function applyAll(turn: readonly Waiting<R>[]): Promise<void> {
    let rest = [...Map.groupBy(turn, ({ change }) => change.row)];
    for (let round = 0; rest.length > 0; round++) {
      if (round === MOST_ROUNDS) throw new Error('a row changed each time before it could be written');
      const known = await rows.many(idIn<R>(rest.map(([id]) => id)));
      const applied = await appliedOf(
        rest.flatMap(([, all]) => all.map(({ change }) => change.event)),
        known,
      );
      const byId = new Map(known.map((row) => [row.id, row]));
      const done = await Promise.all(rest.map(([id, all]) => write(byId.get(id), all, applied)));
      rest = rest.filter((_, n) => done[n] === false);
    }
  }

  /** Which of these events, and of those that the rows have marks of, nobody will try again. One that was purged is among them. */
  async function appliedOf(tried: readonly string[], known: readonly R[]): Promise<ReadonlySet<string>> {
    const ids = new Set([...tried, ...known.flatMap(({ marks = [] }) => marks)]);
    for (const { id, appliedAt } of await events.many({ id: { in: [...ids] } })) if (appliedAt === null) ids.delete(id);
    return ids;
  }

  /** False: somebody else was first, and it must be read again. */
  async function write(row: R | undefined, all: readonly Waiting<R>[], applied: ReadonlySet<string>): Promise<boolean> {
    const base = row ?? all.find(({ change }) => change.fresh)?.change.fresh;
    const due = base ? dueOf(base, all, applied) : [];
    if (!base || due.length === 0) return end(all, row);
    const patch = toPatch(base, due, applied);
    if (!row) {
      const made = { ...base, ...patch };
      return (await rows.insert(made)) === 'inserted' && end(all, made);
    }
    const written = await rows.change(sameVersion(row), patch);
    return written !== undefined && end(all, written);
  }

  return frozen({
    apply: (change) =>
      new Promise<R | undefined>((resolve, reject) => {
        waiting.push({ change, resolve, reject });
        if (!running) void run();
      }),
  });
}

function end<R>(all: readonly Waiting<R>[], row: R | undefined): true {
  for (const one of all) one.resolve(row);
  return true;
}

/** One of each event that is neither in the row nor applied. */
function dueOf<R extends Marked>(
  { marks = [] }: R,
  all: readonly Waiting<R>[],
  applied: ReadonlySet<string>,
): Change<R>[] {
  const byEvent = new Map(all.map(({ change }) => [change.event, change]));
  return [...byEvent.values()].filter(({ event }) => !marks.includes(event) && !applied.has(event));
}

/** Only what changes: other fields of the row may have other writers. */
function toPatch<R extends Row & Marked>(base: R, due: readonly Change<R>[], applied: ReadonlySet<string>): Patch<R> {
  const patch = due.reduce<Patch<R>>((sum, change) => ({ ...sum, ...change.toPatch({ ...base, ...sum }) }), {});
  const marks = [...(base.marks ?? []).filter((event) => !applied.has(event)), ...due.map(({ event }) => event)];
  return { ...patch, version: (base.version ?? 0) + 1, marks };
}

// For a generic row TypeScript cannot see that these name its fields; these two say so, and nothing else does.

function idIn<R extends Row>(ids: readonly string[]): Filter<R> {
  const filter: Filter<Row> = { id: { in: ids } };
  return filter as Filter<R>;
}

function sameVersion<R extends Row & Marked>(row: R): Filter<R> {
  const filter: Filter<Row & Marked> = { id: row.id, version: row.version ?? null };
  return filter as Filter<R>;
}
