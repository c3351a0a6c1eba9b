import { createExpiringCache } from '../base/cache.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Task } from '../base/service.ts';
import { tableOf } from '../base/tables.ts';
import { type Collection, type CollectionSpec, type Database, type Row, StoreAway } from './driver/port.ts';
import { pagesById } from './pages.ts';
import { COLLECTIONS, collectionsOfAccounts, type Store } from './store.ts';

// The storage usage of accounts: counted with each write (the meter), and corrected every night (the task).

type Collections = (typeof COLLECTIONS)[keyof typeof COLLECTIONS];

/** Kinds of rows that are limited per account, by the names of their collections. */
export type LimitedKind = Extract<Collections, { readonly limited?: true }>['name'];
export const LIMITED_KINDS: readonly LimitedKind[] = Object.values(COLLECTIONS).flatMap((declared) =>
  declared.limited ? [declared.name] : [],
);

/** The usage of an account: the number of rows of each limited kind, and total bytes. */
interface UsageRow extends Row, Readonly<Record<LimitedKind, number>> {
  /** Bytes of all rows of the account in every collection, as JSON, without indexes. */
  readonly bytes: number;
}

export const usage: CollectionSpec<UsageRow> = { name: 'usage', indexes: [], dates: [], upkeep: true };

type Usage = Omit<UsageRow, 'id'>;
type UsagePart = keyof Usage;
const USAGE_PARTS: readonly UsagePart[] = ['bytes', ...LIMITED_KINDS];

/** The usage of a new account. */
const NOTHING: Usage = frozen(tableOf(USAGE_PARTS, () => 0));

/** How long this host buffers its counts, and how old the cached counts of other hosts may be. Milliseconds. */
const FLUSH_MS = 1000;
/** For a patch larger than this, in bytes, the difference is measured, which costs a lookup. */
const LARGE_PATCH = 1024;
/** Accounts whose usage is cached. */
const MAX_REMEMBERED = 10_000;

/**
 * Counts the usage of accounts with each write, without reading existing rows: each host sums up its writes and adds
 * them to the store once a second, by atomic increments, so that all hosts of a store share one count.
 *
 * The count misses writes of other hosts in the last second or so, unflushed writes of a killed host, small patches
 * and counters, and writes of the command line. `correct` fixes that every night.
 */
export type UsageMeter = Awaited<ReturnType<typeof meteredDatabase>>['meter'];

/** Wraps a database so that every write is counted. Closing it flushes the counts. */
export async function meteredDatabase(
  database: Database,
  { clock, log }: { readonly clock: Clock; readonly log: Log },
) {
  const rows = await database.collection(usage);
  const pending = new Map<string, Map<UsagePart, number>>();
  const known = createExpiringCache<Usage>({ most: MAX_REMEMBERED }, clock);
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

  /** Never throws. Counts that cannot be flushed are kept for the next time. */
  async function flush(): Promise<void> {
    for (const [account, parts] of [...pending]) {
      pending.delete(account);
      await bring(account, parts).catch((error: unknown) => {
        for (const [part, amount] of parts) note(account, part, amount);
        if (!(error instanceof StoreAway)) log.error('store.fault', { error });
      });
    }
  }

  /** The stored usage, without this host's unflushed counts. */
  async function stored(account: string): Promise<Usage> {
    return known.get(account) ?? remember(account, { ...NOTHING, ...(await rows.one({ id: account })) });
  }

  const meter = frozen({
    stored,
    /** Bytes by which the rows of all accounts together may grow on this host. */
    left: () => database.left(),
    /** The current usage of an account. Throws `StoreAway`. */
    async of(account: string): Promise<Usage> {
      const sum: Record<UsagePart, number> = { ...(await stored(account)) };
      for (const [part, amount] of pending.get(account) ?? []) sum[part] += amount;
      return sum;
    },
    /** Adds the difference found by counting all rows, which may be negative. */
    correct: (account: string, difference: Usage) =>
      bring(account, new Map(USAGE_PARTS.map((part) => [part, difference[part]]))),
  });
  const metered = frozen<Database>({
    collection: async <R extends Row>(spec: CollectionSpec<R>) =>
      meteredCollection(spec.name, await database.collection(spec), note),
    left: () => database.left(),
    ping: () => database.ping(),
    async close() {
      cancel?.();
      await flushing.then(flush); // the nightly count makes up for a failed flush
      cancel?.();
      await database.close();
    },
  });
  return { database: metered, meter };
}

const isLimited = (name: string): name is LimitedKind => LIMITED_KINDS.some((kind) => kind === name);

/** The account that owns a row; undefined if none does. */
function ownerOf(row: Row): string | undefined {
  return 'account' in row && typeof row.account === 'string' ? row.account : undefined;
}

/** The counted bytes of a row. */
function bytesOf(row: object): number {
  return Buffer.byteLength(JSON.stringify(row));
}

function meteredCollection<R extends Row>(
  name: string,
  rows: Collection<R>,
  note: (account: string, part: UsagePart, amount: number) => void,
): Collection<R> {
  /** Counts a row that was added (1) or removed (-1). */
  function noteRow(row: R, sign: 1 | -1): void {
    const account = ownerOf(row);
    if (account === undefined) return;
    note(account, 'bytes', sign * bytesOf(row));
    if (isLimited(name)) note(account, name, sign);
  }
  return frozen<Collection<R>>({
    ...rows,
    async insert(row) {
      // Counted before the insert, so that concurrent inserts cannot together exceed the limit.
      noteRow(row, 1);
      let outcome: Awaited<ReturnType<typeof rows.insert>> | undefined;
      try {
        outcome = await rows.insert(row);
        return outcome;
      } finally {
        if (outcome !== 'inserted') noteRow(row, -1);
      }
    },
    async insertAll(all) {
      for (const row of all) noteRow(row, 1);
      let outcomes: Awaited<ReturnType<typeof rows.insertAll>> = [];
      try {
        outcomes = await rows.insertAll(all);
        return outcomes;
      } finally {
        for (const [at, row] of all.entries()) if (outcomes[at] !== 'inserted') noteRow(row, -1);
      }
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

/**
 * Counts the usage of all accounts from their rows, once a night, and corrects the running count. Rows written during
 * the count may be counted twice or not at all, until the next night.
 */
export function countUsageTask({ store, meter }: { readonly store: Store; readonly meter: UsageMeter }): Task {
  return {
    async run(ending) {
      const before = new Map<string, Usage>();
      for await (const page of pagesById(store.accounts))
        for (const { id } of page) before.set(id, await meter.stored(id));
      const sums = new Map<string, Sum>([...before.keys()].map((account) => [account, { ...NOTHING }]));
      for (const [{ name }, rows] of collectionsOfAccounts(store)) {
        for await (const page of pagesById<Row>(rows)) {
          if (ending?.aborted) return undefined;
          for (const row of page) count(sums, name, row);
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

const minus = (sum: Usage, other: Usage): Usage => tableOf(USAGE_PARTS, (part) => sum[part] - other[part]);

function count(sums: Map<string, Sum>, name: string, row: Row): void {
  const account = ownerOf(row);
  const sum = account === undefined ? undefined : sums.get(account);
  if (!sum) return;
  sum.bytes += bytesOf(row);
  if (isLimited(name)) sum[name]++;
}
