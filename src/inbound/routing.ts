import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { fold, toAsciiDomain } from '../mail/address.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { InboundDomainRow, InboundRouteRow } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import type { Lookup, Match, RouteTarget, Routing } from './types.ts';

/** The routes of one domain, in the order they are tried. */
interface Domain {
  readonly account: string;
  /** Patterns without wildcard by folded mailbox: the oldest wins. */
  readonly exact: ReadonlyMap<string, Match>;
  /** The rest: the most literal characters first, then the oldest. */
  readonly globs: Globs<Match>;
  /** Where each leads to, by id. */
  readonly targets: ReadonlyMap<string, RouteTarget>;
}

interface RoutingSettings {
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

  return frozen({
    ownerOf: (domain) => entryOf(domain)?.account,
    lookup(mailbox, domain): Lookup {
      if (!table) return { kind: 'unknown' };
      const entry = entryOf(domain);
      if (!entry) return { kind: 'not-ours' };
      const match = find(entry, mailbox);
      return match ? { kind: 'matched', match } : { kind: 'no-route' };
    },
    routeOf: (routeId, domain) => table?.get(toAsciiDomain(domain) ?? '')?.targets.get(routeId),
    async changed(domain) {
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
  const targets = new Map(rows.map(({ id, url, batchEvents = 1 }) => [id, { url, batchEvents }]));
  return { account, exact, globs: createGlobs(globs), targets };
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
  return Object.freeze({ kind: 'inbound', account: row.account, routeId: row.id, pattern: row.pattern, url: row.url });
}

function find(domain: Domain, mailbox: string): Match | undefined {
  return domain.exact.get(fold(mailbox)) ?? domain.globs.find(mailbox);
}

/**
 * The patterns with wildcards of one domain, as a table: looking a mailbox up takes the same time among ten and among
 * 100,000.
 */
interface Globs<T> {
  /** Of those that match, the one with the most literal characters, and among these the first that was given. */
  find(mailbox: string): T | undefined;
}

interface Entry<T> {
  readonly pattern: string;
  readonly value: T;
  /** Its place in the order they are tried in. */
  readonly rank: number;
}

/** Entries by the literal text at one end of their patterns, and the lengths that this text has. */
interface End<T> {
  readonly entries: Map<string, Entry<T>[]>;
  readonly lengths: Set<number>;
}

/**
 * A pattern is filed under the longer of its two literal ends (`support-*`, `*-vip`): a mailbox has few beginnings and
 * few ends, so only patterns that share one with it are tried. Those without (`*`, `*word*`) are tried in turn.
 */
export function createGlobs<T>(all: readonly { readonly pattern: string; readonly value: T }[]): Globs<T> {
  // Counted once each, not once a comparison. Sorting is stable: among equals the first stays in front.
  const counted = all
    .map((glob) => ({ ...glob, literals: literals(glob.pattern) }))
    .sort((a, b) => b.literals - a.literals);
  const heads: End<T> = { entries: new Map(), lengths: new Set() };
  const tails: End<T> = { entries: new Map(), lengths: new Set() };
  const rest: Entry<T>[] = [];
  for (const [rank, { pattern, value }] of counted.entries()) file({ pattern, value, rank }, { heads, tails, rest });

  return frozen({
    find(mailbox) {
      const name = fold(mailbox);
      let best: Entry<T> | undefined;
      const look = (entries: readonly Entry<T>[] = []) => {
        best = firstMatch(entries, mailbox, best);
      };
      for (const length of heads.lengths) if (length <= name.length) look(heads.entries.get(name.slice(0, length)));
      for (const length of tails.lengths)
        if (length <= name.length) look(tails.entries.get(name.slice(name.length - length)));
      look(rest);
      return best?.value;
    },
  });
}

function file<T>(
  entry: Entry<T>,
  { heads, tails, rest }: { readonly heads: End<T>; readonly tails: End<T>; readonly rest: Entry<T>[] },
): void {
  const pattern = fold(entry.pattern);
  const first = pattern.search(/[*?]/);
  const last = Math.max(pattern.lastIndexOf('*'), pattern.lastIndexOf('?'));
  const atHead = first >= pattern.length - 1 - last;
  const text = atHead ? pattern.slice(0, first) : pattern.slice(last + 1);
  if (text === '') return void rest.push(entry);
  const end = atHead ? heads : tails;
  end.lengths.add(text.length);
  const filed = end.entries.get(text);
  if (filed) filed.push(entry);
  else end.entries.set(text, [entry]);
}

/** The first that matches, if it comes before `best`. */
function firstMatch<T>(
  entries: readonly Entry<T>[],
  mailbox: string,
  best: Entry<T> | undefined,
): Entry<T> | undefined {
  for (const entry of entries) {
    if (best && entry.rank > best.rank) break;
    if (matches(entry.pattern, mailbox)) return entry;
  }
  return best;
}

/**
 * Route patterns: a glob on the mailbox name. `*` is any run of characters, `?` exactly one; everything else is itself,
 * letters in any case; the whole mailbox must match. No regular expressions: they can be made to take for ever.
 */

/** Longest pattern; a mailbox name has at most 64 characters (RFC 5321 section 4.5.3.1.1). */
export const MAX_PATTERN = 255;

/** Whether `mailbox` matches. Time grows with the product of the two lengths at worst, never faster. */
export function matches(pattern: string, mailbox: string): boolean {
  const glob = [...fold(pattern)];
  const name = [...fold(mailbox)];
  let g = 0;
  let n = 0;
  let star = -1; // the last `*` seen, to come back to with one more character in it
  let resume = 0;
  while (n < name.length) {
    if (glob[g] === '*') {
      star = g++;
      resume = n;
    } else if (g < glob.length && (glob[g] === '?' || glob[g] === name[n])) {
      g++;
      n++;
    } else if (star >= 0) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (glob[g] === '*') g++;
  return g === glob.length;
}

/** Whether the pattern has no wildcard: then it is one mailbox, and wins over all others. */
export function isExact(pattern: string): boolean {
  return !/[*?]/.test(pattern);
}

/** How many characters of the pattern stand for themselves: the more, the more specific it is. */
export function literals(pattern: string): number {
  return [...pattern].filter((c) => c !== '*' && c !== '?').length;
}
