import { createLoop, withTimeout } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Tools } from '../base/tools.ts';
import { foldCase, toAsciiDomain } from '../mail/addresses/address.ts';
import { openReplyToken, parseReplyAddress } from '../mail/addresses/reply-address.ts';
import { isWildcard, toInboundDomain, wildcardsAbove } from '../mail/addresses/wildcard-domain.ts';
import { routeOfTarget } from '../queue/delivery.ts';
import { StoreAway } from '../store/driver/port.ts';
import { pagesById } from '../store/pages.ts';
import { type InboundDomainRow, type InboundRouteRow, isClaim, pagesOfRoutes } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { ACTIONS, decide, mayRefuse, openChoices, type RouteChoice, toAction } from './decision.ts';
import { toStyle } from './formats.ts';
import { toOrder } from './order.ts';
import { capture, createGlobs, type Globs, hasNames, isExact, toGlob } from './patterns.ts';
import { createRouteChanges } from './route-changes.ts';
import type { Lookup, Match, RouteTarget } from './types.ts';

/** The routes of one domain, in the order they are tried. */
interface Domain {
  readonly account: string;
  /** The keys of its reply addresses, the current one first. */
  readonly replyKeys: readonly string[];
  /** Patterns without wildcards, by folded mailbox: the highest priority first, then the oldest. */
  readonly exact: ReadonlyMap<string, readonly [Route, ...Route[]]>;
  /** The rest: the highest priority, the most literal characters, then the oldest. */
  readonly globs: Globs<Route>;
  /** Whether no route has rules: the first that matches a mailbox gets all its mail, without tags. */
  readonly isPlain: boolean;
  /** Targets by route id. */
  readonly targets: ReadonlyMap<string, RouteTarget>;
  /** Routes that a newer version wrote, which this one may misunderstand; all: of the domain itself. */
  readonly newer: { readonly all: boolean; readonly globs: Globs<string>; readonly ids: ReadonlySet<string> };
}

interface Route extends RouteChoice {
  readonly priority: number;
}

/** Domains that are read at once. */
const PAGE = 500;
/** Routes that are read at once. */
const MAX_ROUTES = 2000;
/** How long a recipient waits for a read of the store before the table in memory decides. Milliseconds. */
const MAX_WAITED_MS = 2000;

interface RoutingSettings {
  /** How often the table is compared with the store, in milliseconds: other hosts may have changed it. */
  readonly refreshMs: number;
}

interface RoutingDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Rows & Pick<Store, 'revisions' | 'routingChanges'>;
  readonly ids: Pick<Ids, 'key'>;
}

/**
 * Creates the table of routes: read at startup, and then what changed since (route-changes.ts). While the store is
 * unavailable the last table is used; before the first reading every lookup returns `unknown`.
 */
export function createRouting(settings: RoutingSettings, deps: RoutingDeps) {
  const { store, clock, log } = deps;
  const changes = createRouteChanges(deps);
  let table: Map<string, Domain> | undefined;
  /** All changes up to it are in the table. */
  let revision: number | undefined;
  /** Without them one lookup is enough. */
  let hasWildcards = false;
  let last: Promise<void> = Promise.resolve();
  /** The last read of the store failed. */
  let isAway = false;
  /** A read that has not begun: it will see all earlier changes. */
  let next: Promise<void> | undefined;

  /** Runs one load at a time: an older one that ends later must not undo a newer one. */
  function inTurn(read: () => Promise<void>): Promise<void> {
    last = last.then(read, read);
    return last;
  }

  async function load(): Promise<void> {
    const news = await changes.since(revision);
    if (table && news.domains !== 'all') await reread([...news.domains]);
    else {
      table = await readAll(store);
      hasWildcards = [...table.keys()].some(isWildcard);
    }
    revision = news.revision;
  }

  /** Reads domains into the table, and removes those that no longer exist. */
  async function reread(ids: readonly string[]): Promise<void> {
    for (let at = 0; at < ids.length; at += PAGE) {
      const page = ids.slice(at, at + PAGE);
      const rows = await store.inboundDomains.many({ id: { in: page } });
      const read = new Map(await withRoutes(store, rows));
      for (const id of page) {
        const domain = read.get(id);
        if (domain) table?.set(id, domain);
        else table?.delete(id);
      }
    }
    hasWildcards ||= ids.some(isWildcard);
  }

  async function readChanges(): Promise<void> {
    next = undefined;
    try {
      await load();
      isAway = false;
    } catch (error) {
      isAway = true;
      // The store logs its own outage, once; anything else is a fault.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'routing', error });
    }
  }

  const loop = createLoop(clock, async () => {
    await inTurn(readChanges);
    return settings.refreshMs;
  });

  /** The domain itself, then the wildcards that cover it, the longest first. */
  function* entriesOf(domain: string): Generator<Domain> {
    const name = toAsciiDomain(domain);
    if (name === undefined || !table) return;
    const own = table.get(name);
    if (own) yield own;
    if (!hasWildcards) return;
    for (const wildcard of wildcardsAbove(name)) {
      const entry = table.get(wildcard);
      if (entry) yield entry;
    }
  }

  const entryOf = (domain: string): Domain | undefined => entriesOf(domain).next().value ?? undefined;

  return frozen({
    /** The account that an inbound domain belongs to, according to the table in memory. */
    ownerOf: (domain: string) => entryOf(domain)?.account,
    /**
     * `domain` in any case, as U-label or A-label; `mailbox` is the local part without quotes; `sender` is MAIL FROM,
     * if it is known.
     */
    lookup(mailbox: string, domain: string, sender?: string): Lookup {
      if (!table) return { kind: 'unknown' };
      const entry = entryOf(domain);
      if (!entry) return { kind: 'not-ours' };
      if (entry.newer.all || entry.newer.globs.find(mailbox) !== undefined) return { kind: 'too-new' };
      if (entry.replyKeys.length > 0) {
        const reply = parseReplyAddress(mailbox);
        if (reply) return findReply(entry, toAsciiDomain(domain) ?? '', reply, sender, clock.now());
      }
      return find(entry, mailbox, sender);
    },
    /** Every route that matches the mailbox, in the order in which they are tried. */
    choices(mailbox: string, domain: string): readonly RouteChoice[] {
      const entry = entryOf(domain);
      return entry ? routesOf(entry, mailbox) : [];
    },
    /** The target of a route of the domain; undefined if there is no such route, or the table was never read. */
    routeOf(routeId: string, domain: string) {
      // A domain may have been added below a wildcard while mail for the route of the wildcard waits.
      for (const { targets } of entriesOf(domain)) {
        const target = targets.get(routeId);
        if (target) return target;
      }
      return undefined;
    },
    /** Whether a newer version wrote the route, so that this one must not post its mail. */
    isTooNew(routeId: string, domain: string) {
      const route = routeOfTarget(routeId);
      return [...entriesOf(domain)].some(({ newer }) => newer.ids.has(route));
    },
    /** Ids of routes of the account that have this URL, as their own or among their further ones; at most `limit`. */
    routesTo(account: string, url: string, limit: number): readonly string[] {
      const found = new Set<string>();
      for (const { account: owner, targets } of table?.values() ?? []) {
        if (owner !== account) continue;
        for (const [id, target] of targets) {
          if (found.size >= limit) return [...found];
          if (target.url === url) found.add(routeOfTarget(id));
        }
      }
      return [...found];
    },
    /**
     * Reads the table again if the store has a newer one, which another process may have changed a moment ago. Resolves
     * at the latest after `MAX_WAITED_MS`; while the store is away it resolves at once, and the table stays as it is.
     */
    async refresh() {
      if (isAway || loop.isStopped()) return;
      // Calls during a read share the next one.
      next ??= inTurn(readChanges);
      await withTimeout(clock, MAX_WAITED_MS, next);
    },
    /**
     * Makes a change of a domain or its routes in the store. When it resolves the change is in force on this host, and
     * the others read the domain again, also if this host dies now. If it rejects, the change may have been made.
     */
    async change<T>(domain: string, make: () => Promise<T>): Promise<T> {
      const id = toInboundDomain(domain) ?? domain;
      try {
        return await changes.make(id, make);
      } finally {
        await inTurn(() => (table ? reread([id]) : load()));
      }
    },
    /** Whether the table was ever read. */
    ready: () => table !== undefined,
    start: loop.start,
    stop: loop.stop,
  });
}

/** Whether the table may be outdated for this address: it is refused, or its reply address is unknown. */
export function mayBeOutdated(found: Lookup, mailbox: string): boolean {
  if (found.kind !== 'matched') return found.kind !== 'unknown' && found.kind !== 'too-new';
  return (
    found.match.kind === 'inbound' && found.match.replyData === undefined && parseReplyAddress(mailbox) !== undefined
  );
}

type Rows = Pick<Store, 'inboundDomains' | 'inboundRoutes' | 'understands'>;

/** Reads the whole table, in pages; meanwhile the previous one is used. */
async function readAll(store: Rows): Promise<Map<string, Domain>> {
  const table = new Map<string, Domain>();
  for await (const page of pagesById(store.inboundDomains))
    for (const [id, domain] of await withRoutes(store, page)) table.set(id, domain);
  return table;
}

/** Domains with their routes, by id. */
async function withRoutes(store: Rows, rows: readonly InboundDomainRow[]): Promise<[string, Domain][]> {
  const ours = rows.filter((row) => !isClaim(row));
  const routes = await routesOfAll(
    store,
    ours.map(({ id }) => id),
  );
  const byDomain = Map.groupBy(routes, (route) => route.domain);
  return ours.map((row) => [row.id, toDomain(row, ownRoutes(row, byDomain.get(row.id) ?? []), store)]);
}

/** The routes of domains: of half of them at a time if there are many. */
async function routesOfAll(
  { inboundRoutes }: Pick<Store, 'inboundRoutes'>,
  ids: readonly string[],
): Promise<readonly InboundRouteRow[]> {
  if (ids.length === 0) return [];
  const rows = await inboundRoutes.many({ domain: { in: ids } }, { limit: MAX_ROUTES });
  if (rows.length < MAX_ROUTES) return rows;
  const [only = '', ...others] = ids;
  if (others.length === 0) {
    const all: InboundRouteRow[] = [];
    for await (const page of pagesOfRoutes({ inboundRoutes }, only)) all.push(...page);
    return all;
  }
  const half = ids.length >> 1;
  const first = await routesOfAll({ inboundRoutes }, ids.slice(0, half));
  return [...first, ...(await routesOfAll({ inboundRoutes }, ids.slice(half)))];
}

function toDomain(
  row: InboundDomainRow,
  all: readonly InboundRouteRow[],
  { understands }: Pick<Store, 'understands'>,
): Domain {
  const { account, replyKey, previousReplyKey } = row;
  const rows = all.filter(understands);
  const newer = all.filter((route) => !understands(route));
  const replyKeys = [replyKey, previousReplyKey].filter((key) => typeof key === 'string');
  const inOrder = rows.toSorted(
    (a, b) =>
      (b.priority ?? 0) - (a.priority ?? 0) || a.createdAt.getTime() - b.createdAt.getTime() || compareIds(a.id, b.id),
  );
  const exact = new Map<string, [Route, ...Route[]]>();
  for (const row of inOrder.filter((row) => isExact(row.pattern))) {
    const name = foldCase(row.pattern);
    const others = exact.get(name);
    if (others) others.push(toRoute(row));
    else exact.set(name, [toRoute(row)]);
  }
  const globs = inOrder
    .filter((row) => !isExact(row.pattern))
    .map((row) => ({ pattern: toGlob(row.pattern), priority: row.priority ?? 0, value: toRoute(row) }));
  const targets = new Map(rows.flatMap(toTargets));
  const isPlain = rows.every(
    ({ when, action, tags = [], priority = 0 }) =>
      !when && toAction(action) === 'post' && tags.length === 0 && priority === 0,
  );
  return {
    account,
    replyKeys,
    exact,
    globs: createGlobs(globs),
    isPlain,
    targets,
    newer: {
      all: !understands(row),
      globs: createGlobs(newer.map(({ pattern, id }) => ({ pattern: toGlob(pattern), priority: 0, value: id }))),
      ids: new Set(newer.map(({ id }) => id)),
    },
  };
}

/** The target of a route, and those of its further URLs. */
function toTargets(row: InboundRouteRow): [id: string, target: RouteTarget][] {
  const { id, url, batchEvents = 1, password, also = [] } = row;
  return [
    [id, { ...toStyle(row), url, batchEvents, password: password ?? null }],
    ...also.map((one): [string, RouteTarget] => [
      alsoId(id, one.n),
      { ...toStyle(one), url: one.url, batchEvents: 1, password: one.password ?? null },
    ]),
  ];
}

/** The id by which deliveries to a further URL of a route are known (queue/delivery.ts `routeOfTarget`). */
const alsoId = (route: string, n: number): string => `${route}+${n}`;

/** Returns the routes of the domain's owner; accounts that claim the domain may have routes for it too. */
function ownRoutes({ account }: InboundDomainRow, routes: readonly InboundRouteRow[]): readonly InboundRouteRow[] {
  return routes.filter((route) => route.account === account);
}

/** Ids are `<account>.<sequence>`: the smaller sequence was created first. */
function compareIds(a: string, b: string): number {
  return Number(a.split('.')[1] ?? 0) - Number(b.split('.')[1] ?? 0);
}

function toRoute(row: InboundRouteRow): Route {
  const { account, id, pattern, url, also = [], when = null, tags = [], priority = 0 } = row;
  const further = also.map((one) => ({ routeId: alsoId(id, one.n), url: one.url }));
  const order = toOrder(row.order);
  const match: Match = {
    kind: 'inbound',
    account,
    routeId: id,
    pattern,
    url,
    ...(further[0] && { also: further }),
    ...(order !== 'none' && { order }),
  };
  return frozen({ match: frozen(match), when, action: toAction(row.action), tags, priority });
}

/** The route of a mailbox, or the routes among which the content will decide. */
function find(domain: Domain, mailbox: string, sender: string | undefined): Lookup {
  if (domain.isPlain) {
    const [first] = domain.exact.get(foldCase(mailbox)) ?? [];
    const route = first ?? domain.globs.find(mailbox);
    return route ? { kind: 'matched', match: withCaptures(route.match, mailbox) } : { kind: 'no-route' };
  }
  const choices = openChoices(routesOf(domain, mailbox), { sender }).map((choice) => ({
    ...choice,
    match: withCaptures(choice.match, mailbox),
  }));
  const first = choices.find(({ action }) => ACTIONS[action].takes);
  if (!first) return { kind: 'no-route' };
  const decision = decide(choices, { sender });
  if (decision.kind === 'none') return { kind: 'no-route' };
  if (decision.kind === 'rejected') return { kind: 'rejected' };
  if (decision.kind === 'matched') return decision;
  return { kind: 'matched', match: { ...first.match, choices, ...(mayRefuse(choices) && { refusable: true }) } };
}

/** Routes that are tried for one mailbox: each may require parsing the message. Reported by /inbound/add-route. */
export const MAX_ROUTES_TRIED = 100;

/** The routes that match a mailbox, in the order in which they are tried. */
function routesOf({ exact, globs }: Domain, mailbox: string): readonly Route[] {
  const takesAll = ({ when, action }: Route) => when === null && ACTIONS[action].takes;
  const named = exact.get(foldCase(mailbox)) ?? [];
  // The sort is stable: with equal priorities an exact name comes first.
  const inOrder = [...named, ...globs.all(mailbox, takesAll)].sort((a, b) => b.priority - a.priority);
  return inOrder.slice(0, MAX_ROUTES_TRIED);
}

const withCaptures = (match: Match, mailbox: string): Match =>
  hasNames(match.pattern) ? { ...match, captures: capture(match.pattern, mailbox) } : match;

/** Routes a reply address like its mailbox, if the token is one of ours. */
function findReply(
  entry: Domain,
  domain: string,
  { mailbox, token }: { readonly mailbox: string; readonly token: string },
  sender: string | undefined,
  now: number,
): Lookup {
  const sealed = openReplyToken(entry.replyKeys, { account: entry.account, domain, mailbox }, token);
  const found = sealed && find(entry, mailbox, sender);
  if (!sealed || !found) return { kind: 'no-route' };
  if (found.kind !== 'matched') return found;
  if (sealed.expiresAt !== null && sealed.expiresAt <= now) return { kind: 'expired' };
  return { kind: 'matched', match: { ...found.match, replyData: sealed.data } };
}
