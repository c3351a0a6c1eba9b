import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createExpiringMemory } from '../base/memory.ts';
import type { Task } from '../base/service.ts';
import { tableOf } from '../base/tables.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Filter,
  type Row,
  StoreAway,
} from './driver/port.ts';
import { COLLECTIONS, collectionsOfAccounts, type Store } from './store.ts';

// What accounts have in the store: how it is counted beside the writes (the meter), and put right every night (the
// task).

type Collections = (typeof COLLECTIONS)[keyof typeof COLLECTIONS];

/** Kinds of rows, by the names of their collections, of which an account may have so many. */
export type LimitedKind = Extract<Collections, { readonly limited?: true }>['name'];
export const LIMITED_KINDS: readonly LimitedKind[] = Object.values(COLLECTIONS).flatMap((declared) =>
  declared.limited ? [declared.name] : [],
);

/** What an account has in the store: rows of each kind that is limited, and bytes in all. */
interface UsageRow extends Row, Readonly<Record<LimitedKind, number>> {
  /** Of all rows of the account in every collection, written as JSON. Indexes are not counted. */
  readonly bytes: number;
}

const usage: CollectionSpec<UsageRow> = { name: 'usage', indexes: [], dates: [], upkeep: true };

type Usage = Omit<UsageRow, 'id'>;
type UsagePart = keyof Usage;
const USAGE_PARTS: readonly UsagePart[] = ['bytes', ...LIMITED_KINDS];

/** What a new account has. */
const NOTHING: Usage = frozen(tableOf(USAGE_PARTS, () => 0));

/** How long what this host counted is kept back, and how old what the others counted may be. Milliseconds. */
const FLUSH_MS = 1000;
/** A patch larger than this is weighed against what it replaces, which costs a look-up. */
const LARGE_PATCH = 1024;
/** Accounts whose usage is remembered. */
const MAX_REMEMBERED = 10_000;

/**
 * Counts what accounts have, beside the writes and without a look at rows that are there already: each host adds up
 * what it writes and brings the sums into the store once a second, by atomic increments, so that all hosts of a store
 * share one count.
 *
 * How far it may be off: by what other hosts wrote in the last second or so, by what a host had not yet brought when it
 * was killed, by small patches and counters, and by what the command line wrote. `correct` makes that good, every
 * night.
 */
export interface UsageMeter {
  /** What the account has now. Throws `StoreAway`. */
  of(account: string): Promise<Usage>;
  /** What the store says without what this host has not brought yet. */
  stored(account: string): Promise<Usage>;
  /** Adds what a count of all rows found beyond it, which may be below nothing. */
  correct(account: string, difference: Usage): Promise<void>;
}

/** The database with every write counted. Closing it brings the last counts. */
export async function meteredDatabase(
  database: Database,
  { clock }: { readonly clock: Clock },
): Promise<{ readonly database: Database; readonly meter: UsageMeter }> {
  const rows = await database.collection(usage);
  const pending = new Map<string, Map<UsagePart, number>>();
  const known = createExpiringMemory<Usage>({ most: MAX_REMEMBERED }, clock);
  let cancel: (() => void) | undefined;
  let flushing: Promise<void> = Promise.resolve();

  function note(account: string, part: UsagePart, amount: number): void {
    const parts = pending.get(account) ?? new Map<UsagePart, number>();
    pending.set(account, parts);
    parts.set(part, (parts.get(part) ?? 0) + amount);
    cancel ??= clock.after(FLUSH_MS, () => {
      cancel = undefined;
      flushing = flushing.then(flush);
    });
  }

  function remember(account: string, row: Usage): Usage {
    known.set(account, row, FLUSH_MS);
    return row;
  }

  async function bring(account: string, parts: ReadonlyMap<UsagePart, number>): Promise<void> {
    remember(account, await rows.add(account, Object.fromEntries(parts), NOTHING));
  }

  /** What cannot be brought is brought the next time. */
  async function flush(): Promise<void> {
    for (const [account, parts] of [...pending]) {
      pending.delete(account);
      await bring(account, parts).catch((error: unknown) => {
        for (const [part, amount] of parts) note(account, part, amount);
        if (!(error instanceof StoreAway)) throw error;
      });
    }
  }

  async function stored(account: string): Promise<Usage> {
    return known.get(account) ?? remember(account, { ...NOTHING, ...(await rows.one({ id: account })) });
  }

  const meter = frozen<UsageMeter>({
    stored,
    async of(account) {
      const sum: Record<UsagePart, number> = { ...(await stored(account)) };
      for (const [part, amount] of pending.get(account) ?? []) sum[part] += amount;
      return sum;
    },
    correct: (account, difference) => bring(account, new Map(USAGE_PARTS.map((part) => [part, difference[part]]))),
  });
  const metered = frozen<Database>({
    collection: async <R extends Row>(spec: CollectionSpec<R>) =>
      meteredCollection(spec.name, await database.collection(spec), note),
    ping: () => database.ping(),
    async close() {
      cancel?.();
      await flushing.then(flush).catch(() => undefined); // the nightly count finds what could not be brought
      cancel?.();
      await database.close();
    },
  });
  return { database: metered, meter };
}

const isLimited = (name: string): name is LimitedKind => LIMITED_KINDS.some((kind) => kind === name);

/** The account that a row belongs to; undefined for rows of nobody. */
function ownerOf(row: Row): string | undefined {
  return 'account' in row && typeof row.account === 'string' ? row.account : undefined;
}

/** Bytes of a row, as they are counted. */
function bytesOf(row: object): number {
  return Buffer.byteLength(JSON.stringify(row));
}

function meteredCollection<R extends Row>(
  name: string,
  rows: Collection<R>,
  note: (account: string, part: UsagePart, amount: number) => void,
): Collection<R> {
  /** Notes a row that came (1) or went (-1). */
  function noteRow(row: R, sign: 1 | -1): void {
    const account = ownerOf(row);
    if (account === undefined) return;
    note(account, 'bytes', sign * bytesOf(row));
    if (isLimited(name)) note(account, name, sign);
  }
  return frozen<Collection<R>>({
    ...rows,
    async insert(row) {
      const outcome = await rows.insert(row);
      if (outcome === 'inserted') noteRow(row, 1);
      return outcome;
    },
    async change(filter, patch) {
      const before = bytesOf(patch) > LARGE_PATCH ? await rows.one(filter) : undefined;
      const after = await rows.change(filter, patch);
      const account = before && after && before.id === after.id ? ownerOf(after) : undefined;
      if (before && after && account !== undefined) note(account, 'bytes', bytesOf(after) - bytesOf(before));
      return after;
    },
    async remove(filter) {
      const row = await rows.remove(filter);
      if (row) noteRow(row, -1);
      return row;
    },
  });
}

type Sum = Record<UsagePart, number>;

/** Rows that are read at a time, so that nobody waits long for the store. */
const STEP = 500;

/**
 * Counts what accounts have from their rows, once a night, and corrects the running count. What is written while it
 * counts may be counted twice or not at all, until the next night.
 */
export function countUsageTask({ store, meter }: { readonly store: Store; readonly meter: UsageMeter }): Task {
  return {
    async run(ending) {
      const before = new Map<string, Usage>();
      for await (const { id } of every(store.accounts)) before.set(id, await meter.stored(id));
      const sums = new Map<string, Sum>([...before.keys()].map((account) => [account, { ...NOTHING }]));
      for (const [{ name }, rows] of collectionsOfAccounts(store)) {
        for await (const row of every(rows)) {
          if (ending?.aborted) return undefined;
          count(sums, name, row);
        }
      }
      let corrected = 0;
      for (const [account, sum] of sums) {
        const difference = minus(sum, before.get(account) ?? NOTHING);
        if (USAGE_PARTS.every((part) => difference[part] === 0)) continue;
        await meter.correct(account, difference);
        corrected++;
      }
      return corrected > 0 ? { accounts: sums.size, corrected } : undefined;
    },
  };
}

function minus(sum: Usage, other: Usage): Usage {
  const difference: Sum = { ...NOTHING };
  for (const part of USAGE_PARTS) difference[part] = sum[part] - other[part];
  return difference;
}

/** All rows of a collection, by their ids. */
async function* every(rows: Pick<Collection<Row>, 'many'>): AsyncGenerator<Row> {
  for (let last = '', more = true; more; ) {
    const filter: Filter<Row> = { id: { range: { gt: last } } };
    const page = await rows.many(filter, { sort: 'id', limit: STEP });
    yield* page;
    last = page.at(-1)?.id ?? last;
    more = page.length === STEP;
  }
}

function count(sums: Map<string, Sum>, name: string, row: Row): void {
  const account = ownerOf(row);
  const sum = account === undefined ? undefined : sums.get(account);
  if (!sum) return;
  sum.bytes += bytesOf(row);
  if (isLimited(name)) sum[name]++;
}
