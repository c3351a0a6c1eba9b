import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { toAsciiDomain } from '../mail/address.ts';
import { fold, isExact } from '../mail/pattern.ts';
import { StoreAway } from '../store/collection.ts';
import type { InboundDomainRow } from '../store/inbound-domains.ts';
import type { InboundRouteRow } from '../store/inbound-routes.ts';
import type { Store } from '../store/store.ts';
import { createGlobs, type Globs } from './globs.ts';
import type { Lookup, Match, Routing } from './types.ts';

/** The routes of one domain, in the order they are tried. */
interface Domain {
  readonly account: string;
  /** Patterns without wildcard by folded mailbox: the oldest wins. */
  readonly exact: ReadonlyMap<string, Match>;
  /** The rest: the most literal characters first, then the oldest. */
  readonly globs: Globs<Match>;
  /** Where each leads to, by id. */
  readonly urls: ReadonlyMap<string, string>;
}

export interface RoutingSettings {
  /** How often the table is compared with the store, in milliseconds: other hosts may have changed it. */
  readonly refreshMs: number;
}

/**
 * The table of routes: read whole at the start, read again when the count of changes in the store has moved.
 * While the store is away the last table holds; before it was ever read, every answer is `unknown`.
 */
export function createRouting(
  settings: RoutingSettings,
  deps: { store: Store; clock: Clock; log: Log },
): Routing & Service {
  const { store, clock, log } = deps;
  let table: Map<string, Domain> | undefined;
  let revision = -1;
  let stopped = false;
  let cancel = () => {};
  let last: Promise<void> = Promise.resolve();

  /** One reading at a time: an older one that ends later must not undo what a newer one saw. */
  function inTurn(read: () => Promise<void>): Promise<void> {
    last = last.then(read, read);
    return last;
  }

  async function load(): Promise<void> {
    const seen = await store.revisions.one({ id: 'routing' });
    const count = seen?.count ?? 0;
    if (table && count === revision) return;
    const [domains, routes] = await Promise.all([store.inboundDomains.many({}), store.inboundRoutes.many({})]);
    const byDomain = Map.groupBy(routes, (route) => route.domain);
    table = new Map(domains.map((row) => [row.id, toDomain(row.account, ownRoutes(row, byDomain.get(row.id) ?? []))]));
    revision = count;
  }

  async function reread(id: string | undefined): Promise<void> {
    if (!table || id === undefined) return load();
    const [row, routes] = await Promise.all([
      store.inboundDomains.one({ id }),
      store.inboundRoutes.many({ domain: id }),
    ]);
    if (row) table.set(id, toDomain(row.account, ownRoutes(row, routes)));
    else table.delete(id);
  }

  async function watch(): Promise<void> {
    await inTurn(load).catch((error: unknown) => {
      // The store says itself, once, that it is away; anything else is a fault of ours.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'routing', error });
    });
    if (!stopped) cancel = clock.after(settings.refreshMs, () => void watch());
  }

  function entryOf(domain: string): Domain | undefined {
    const name = toAsciiDomain(domain);
    return name === undefined ? undefined : table?.get(name);
  }

  return Object.freeze({
    ownerOf: (domain: string) => entryOf(domain)?.account,
    lookup(mailbox: string, domain: string): Lookup {
      if (!table) return { kind: 'unknown' };
      const entry = entryOf(domain);
      if (!entry) return { kind: 'not-ours' };
      const match = find(entry, mailbox);
      return match ? { kind: 'matched', match } : { kind: 'no-route' };
    },
    urlOf: (routeId: string, domain: string) => table?.get(toAsciiDomain(domain) ?? '')?.urls.get(routeId),
    async changed(domain: string) {
      try {
        await store.revisions.add('routing', { count: 1 }, { count: 0 });
      } finally {
        await inTurn(() => reread(toAsciiDomain(domain)));
      }
    },
    ready: () => table !== undefined,
    start: () => watch(),
    async stop() {
      stopped = true;
      cancel();
    },
  });
}

function toDomain(account: string, rows: readonly InboundRouteRow[]): Domain {
  const oldestFirst = rows.toSorted((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || compareIds(a.id, b.id));
  const exact = new Map<string, Match>();
  for (const row of oldestFirst.filter((row) => isExact(row.pattern))) {
    const name = fold(row.pattern);
    if (!exact.has(name)) exact.set(name, toMatch(row));
  }
  const globs = oldestFirst
    .filter((row) => !isExact(row.pattern))
    .map((row) => ({ pattern: row.pattern, value: toMatch(row) }));
  return { account, exact, globs: createGlobs(globs), urls: new Map(rows.map(({ id, url }) => [id, url])) };
}

/** Accounts with a claim to the domain may have routes for it too. */
function ownRoutes({ account }: InboundDomainRow, routes: readonly InboundRouteRow[]): readonly InboundRouteRow[] {
  return routes.filter((route) => route.account === account);
}

/** Ids are `<account>.<sequence>`: the smaller sequence was made first. */
function compareIds(a: string, b: string): number {
  return Number(a.split('.')[1] ?? 0) - Number(b.split('.')[1] ?? 0);
}

function toMatch(row: InboundRouteRow): Match {
  return Object.freeze({ account: row.account, routeId: row.id, pattern: row.pattern, url: row.url });
}

function find(domain: Domain, mailbox: string): Match | undefined {
  return domain.exact.get(fold(mailbox)) ?? domain.globs.find(mailbox);
}
