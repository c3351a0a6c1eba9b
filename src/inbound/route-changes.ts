import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { RoutingChangeRow } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';

interface RouteChangesDeps {
  readonly store: Pick<Store, 'revisions' | 'routingChanges'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly ids: Pick<Ids, 'key'>;
}

/** The domains to read again, or the whole table. */
interface News {
  readonly revision: number;
  readonly domains: 'all' | ReadonlySet<string>;
}

/** Changes that hosts read one by one; after more of them, a host reads the whole table. */
const MAX_CHANGES = 1000;
/** Rows that are kept, for hosts that could not poll for a while. */
const KEPT = 10_000;
/** How long a change that does not end is read again at every poll. Milliseconds. */
const LONGEST_MS = 600_000;

/** The counter of all changes. */
const REVISION = { id: 'routing' };

/**
 * Tells the hosts of a store which domains changed. A change is announced before it is made and numbered after it, so
 * that a host that dies in between leaves a row behind: the others read that domain again at every poll, and one that
 * has done so for ten minutes numbers the change in its place.
 *
 * A number without a row comes from a version that only counts, or is being written: then everything is read.
 */
export function createRouteChanges({ store, clock, ids }: RouteChangesDeps) {
  const { revisions, routingChanges } = store;
  /** When this host first saw a change that has not ended, by its own clock. */
  let begunAt = new Map<string, number>();

  /** Numbers the change with this id; if another host has done so, the number gets a row of its own. */
  async function end(id: string, domain: string): Promise<void> {
    const { count: revision } = await revisions.add(REVISION.id, { count: 1 }, { count: 0 });
    const ended = await routingChanges.change({ id, revision: null }, { revision });
    if (!ended) await routingChanges.insert({ id: ids.key(), domain, revision });
    await routingChanges.remove({ revision: { range: { lte: revision - KEPT } } });
  }

  /** Changes that have not ended. */
  async function unended(): Promise<readonly RoutingChangeRow[]> {
    const rows = await routingChanges.many({ revision: null }, { limit: MAX_CHANGES });
    const now = clock.monotonic();
    begunAt = new Map(rows.map(({ id }) => [id, begunAt.get(id) ?? now]));
    for (const { id, domain } of rows) if (now - (begunAt.get(id) ?? now) >= LONGEST_MS) await end(id, domain);
    return rows;
  }

  /** The rows of the changes after a revision, up to another; undefined if one of them has no row. */
  async function between(from: number, to: number): Promise<readonly RoutingChangeRow[] | undefined> {
    const count = to - from;
    if (count < 0 || count > MAX_CHANGES) return undefined;
    if (count === 0) return [];
    const rows = await routingChanges.many({ revision: { range: { gt: from, lte: to } } });
    return rows.length === count ? rows : undefined;
  }

  return frozen({
    /** Makes a change of a domain or its routes, and announces it. If the announcement fails, nothing is changed. */
    async make<T>(domain: string, change: () => Promise<T>): Promise<T> {
      const id = ids.key();
      await routingChanges.insert({ id, domain, revision: null });
      try {
        return await change();
      } finally {
        await end(id, domain); // whatever became of it: a change that failed may have been written
      }
    },
    /** The changes after a revision; the whole table if `seen` is undefined. */
    async since(seen: number | undefined): Promise<News> {
      // The counter first, and changes that have not ended before those that have: so none slips through.
      const revision = (await revisions.one(REVISION))?.count ?? 0;
      if (seen === undefined) return { revision, domains: 'all' };
      const begun = await unended();
      // A second time, because a number may be older than its row by a moment.
      const ended = (await between(seen, revision)) ?? (begun.length > 0 ? await between(seen, revision) : undefined);
      return { revision, domains: ended ? new Set([...begun, ...ended].map(({ domain }) => domain)) : 'all' };
    },
  });
}
