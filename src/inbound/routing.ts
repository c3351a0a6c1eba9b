import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { fold, toAsciiDomain } from '../mail/address.ts';
import { openReplyToken, parseReplyAddress } from '../mail/reply-address.ts';
import { isWildcard, toInboundDomain, wildcardsAbove } from '../mail/wildcard-domain.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { InboundDomainRow, InboundRouteRow } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { toStyle } from './formats.ts';
import type { Lookup, Match, RouteTarget, Routing } from './types.ts';

/** The routes of one domain, in the order they are tried. */
interface Domain {
  readonly account: string;
  /** The keys of its reply addresses, the current one first. */
  readonly replyKeys: readonly string[];
  /** Patterns without wildcards, by folded mailbox; the oldest wins. */
  readonly exact: ReadonlyMap<string, Match>;
  /** The rest: the most literal characters first, then the oldest. */
  readonly globs: Globs<Match>;
  /** Targets by route id. */
  readonly targets: ReadonlyMap<string, RouteTarget>;
}

interface RoutingSettings {
  /** How often the table is compared with the store, in milliseconds: other hosts may have changed it. */
  readonly refreshMs: number;
}

/**
 * Creates the table of routes: loaded at startup, and again when the change counter in the store differs. While the
 * store is unavailable the last table is used; before the first load every lookup returns `unknown`.
 */
export function createRouting(
  settings: RoutingSettings,
  deps: { store: Store; clock: Clock; log: Log },
): Routing & Service {
  const { store, clock, log } = deps;
  let table: Map<string, Domain> | undefined;
  let revision = -1;
  /** Without them a look-up is one. */
  let hasWildcards = false;
  let stopped = false;
  let cancel = () => {};
  let last: Promise<void> = Promise.resolve();

  /** Runs one load at a time: an older one that ends later must not undo a newer one. */
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
    table = new Map(domains.map((row) => [row.id, toDomain(row, ownRoutes(row, byDomain.get(row.id) ?? []))]));
    hasWildcards = domains.some(({ id }) => isWildcard(id));
    revision = count;
  }

  async function reread(id: string | undefined): Promise<void> {
    if (!table || id === undefined) return load();
    const [row, routes] = await Promise.all([
      store.inboundDomains.one({ id }),
      store.inboundRoutes.many({ domain: id }),
    ]);
    if (row) table.set(id, toDomain(row, ownRoutes(row, routes)));
    else table.delete(id);
    hasWildcards ||= isWildcard(id);
  }

  async function watch(): Promise<void> {
    await inTurn(load).catch((error: unknown) => {
      // The store logs its own outage, once; anything else is a fault.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'routing', error });
    });
    if (!stopped) cancel = clock.after(settings.refreshMs, () => void watch());
  }

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
    ownerOf: (domain) => entryOf(domain)?.account,
    lookup(mailbox, domain): Lookup {
      if (!table) return { kind: 'unknown' };
      const entry = entryOf(domain);
      if (!entry) return { kind: 'not-ours' };
      if (entry.replyKeys.length > 0) {
        const reply = parseReplyAddress(mailbox);
        if (reply) return findReply(entry, toAsciiDomain(domain) ?? '', reply, clock.now());
      }
      const match = find(entry, mailbox);
      return match ? { kind: 'matched', match } : { kind: 'no-route' };
    },
    routeOf(routeId, domain) {
      // A domain may have been added below a wildcard while mail for the route of the wildcard waits.
      for (const { targets } of entriesOf(domain)) {
        const target = targets.get(routeId);
        if (target) return target;
      }
      return undefined;
    },
    async changed(domain) {
      try {
        await store.revisions.add('routing', { count: 1 }, { count: 0 });
      } finally {
        await inTurn(() => reread(toInboundDomain(domain)));
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

function toDomain({ account, replyKey, previousReplyKey }: InboundDomainRow, rows: readonly InboundRouteRow[]): Domain {
  const replyKeys = [replyKey, previousReplyKey].filter((key) => typeof key === 'string');
  const oldestFirst = rows.toSorted((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || compareIds(a.id, b.id));
  const exact = new Map<string, Match>();
  for (const row of oldestFirst.filter((row) => isExact(row.pattern))) {
    const name = fold(row.pattern);
    if (!exact.has(name)) exact.set(name, toMatch(row));
  }
  const globs = oldestFirst
    .filter((row) => !isExact(row.pattern))
    .map((row) => ({ pattern: toGlob(row.pattern), value: toMatch(row) }));
  const targets = new Map(rows.map((row) => [row.id, toTarget(row)]));
  return { account, replyKeys, exact, globs: createGlobs(globs), targets };
}

function toTarget(row: InboundRouteRow): RouteTarget {
  const { url, batchEvents = 1, password } = row;
  return { ...toStyle(row), url, batchEvents, password: password ?? null };
}

/** Returns the routes of the domain's owner; accounts that claim the domain may have routes for it too. */
function ownRoutes({ account }: InboundDomainRow, routes: readonly InboundRouteRow[]): readonly InboundRouteRow[] {
  return routes.filter((route) => route.account === account);
}

/** Ids are `<account>.<sequence>`: the smaller sequence was created first. */
function compareIds(a: string, b: string): number {
  return Number(a.split('.')[1] ?? 0) - Number(b.split('.')[1] ?? 0);
}

function toMatch(row: InboundRouteRow): Match {
  return Object.freeze({ kind: 'inbound', account: row.account, routeId: row.id, pattern: row.pattern, url: row.url });
}

function find(domain: Domain, mailbox: string): Match | undefined {
  const exact = domain.exact.get(fold(mailbox));
  if (exact) return exact;
  const match = domain.globs.find(mailbox);
  return match && NAME.test(match.pattern) ? { ...match, captures: capture(match.pattern, mailbox) } : match;
}

/** A reply address goes where its mailbox goes, if the token is one of ours. */
function findReply(
  entry: Domain,
  domain: string,
  { mailbox, token }: { readonly mailbox: string; readonly token: string },
  now: number,
): Lookup {
  const sealed = openReplyToken(entry.replyKeys, { account: entry.account, domain, mailbox }, token);
  const match = sealed && find(entry, mailbox);
  if (!sealed || !match) return { kind: 'no-route' };
  if (sealed.expiresAt !== null && sealed.expiresAt <= now) return { kind: 'expired' };
  return { kind: 'matched', match: { ...match, replyData: sealed.data } };
}

/** An index of one domain's wildcard patterns: a lookup takes the same time among ten and among 100,000. */
interface Globs<T> {
  /** Returns the match with the most literal characters, and among equals the first given. */
  find(mailbox: string): T | undefined;
}

interface Entry<T> {
  readonly pattern: string;
  readonly value: T;
  /** Position in the order of matching. */
  readonly rank: number;
}

/** Entries by the literal text at one end of their patterns, and the lengths of these texts. */
interface End<T> {
  readonly entries: Map<string, Entry<T>[]>;
  readonly lengths: Set<number>;
}

/**
 * Indexes each pattern by the longer of its two literal ends (`support-*`, `*-vip`): a mailbox has few prefixes and
 * suffixes, so only patterns that share one with it are tried. Patterns without literal ends (`*`, `*word*`) are tried
 * in turn.
 */
export function createGlobs<T>(all: readonly { readonly pattern: string; readonly value: T }[]): Globs<T> {
  // Counted once per pattern, not per comparison. The sort is stable: equals keep their order.
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

/** Returns the first match if it ranks before `best`, else `best`. */
function firstMatch<T>(
  entries: readonly Entry<T>[],
  mailbox: string,
  best: Entry<T> | undefined,
): Entry<T> | undefined {
  for (const entry of entries) {
    if (best && entry.rank > best.rank) break;
    if (matchesGlob(entry.pattern, mailbox)) return entry;
  }
  return best;
}

/**
 * Route patterns: globs on the mailbox name. `*` matches any run of characters, `?` exactly one, `{name}` one or more,
 * which the payload has under that name; everything else matches itself, in any case; the whole mailbox must match. No
 * regular expressions: they can be made to run forever.
 */

/** Longest pattern; a mailbox name has at most 64 characters (RFC 5321 section 4.5.3.1.1). */
export const MAX_PATTERN = 255;

const NAME = /\{([a-z][a-z0-9_]{0,31})\}/;
const NAMES = new RegExp(NAME, 'g');

/** The names in a pattern, in order. */
export const namesIn = (pattern: string): readonly string[] =>
  [...pattern.matchAll(NAMES)].map(([, name = '']) => name);

/** The pattern without names, which matches the same. */
const toGlob = (pattern: string): string => pattern.replace(NAMES, '?*');

/** A mailbox that the pattern matches. */
export const sampleMailbox = (pattern: string): string =>
  pattern.replace(NAMES, '*').replaceAll('*', 'sample').replaceAll('?', 'x');

/** Whether `mailbox` matches, in time at most proportional to the product of the two lengths. */
export const matches = (pattern: string, mailbox: string): boolean => matchesGlob(toGlob(pattern), mailbox);

/**
 * What the names in a pattern stand for in a mailbox that matches it, as the sender wrote it. Each stands for as few
 * characters as possible, the last one for the rest: `{list}-{user}` finds `a` and `b-c` in `a-b-c`.
 */
export function capture(pattern: string, mailbox: string): Readonly<Record<string, string>> {
  const written = [...mailbox];
  const name = [...fold(mailbox)];
  const source = written.length === name.length ? written : name;
  const tokens = tokensOf(pattern);
  const spans = new Map<string, readonly [from: number, to: number]>();
  let t = 0;
  let n = 0;
  /** The last run of characters: its token, where it begins, and where it ends so far. */
  let run = -1;
  let from = 0;
  let to = 0;
  const end = () => {
    const of = tokens[run]?.name;
    if (of !== undefined) spans.set(of, [from, to]);
  };
  while (n < name.length) {
    const token = tokens[t];
    if (token?.least !== undefined && n + token.least <= name.length) {
      end();
      [run, from, to] = [t++, n, n + token.least];
      n = to;
    } else if (token?.least === undefined && token && (token.char === '?' || token.char === name[n])) {
      t++;
      n++;
    } else if (run >= 0) {
      t = run + 1;
      n = ++to;
    } else {
      return {};
    }
  }
  end();
  return Object.fromEntries([...spans].map(([of, [start, stop]]) => [of, source.slice(start, stop).join('')]));
}

/** A character of a pattern, or a run of at least so many characters, which may have a name. */
interface Token {
  readonly char?: string;
  readonly least?: number;
  readonly name?: string;
}

function tokensOf(pattern: string): readonly Token[] {
  return pattern.split(/(\{[a-z][a-z0-9_]{0,31}\}|\*)/).flatMap((piece): readonly Token[] => {
    const [, name] = NAME.exec(piece) ?? [];
    if (name !== undefined) return [{ least: 1, name }];
    return piece === '*' ? [{ least: 0 }] : [...fold(piece)].map((char) => ({ char }));
  });
}

function matchesGlob(pattern: string, mailbox: string): boolean {
  const glob = [...fold(pattern)];
  const name = [...fold(mailbox)];
  let g = 0;
  let n = 0;
  let star = -1; // the last `*` seen, to return to with one more character in it
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

/** Whether the pattern has no wildcards: it then names one mailbox and wins over all others. */
export function isExact(pattern: string): boolean {
  return !/[*?]/.test(pattern) && !NAME.test(pattern);
}

/** Returns the number of literal characters: the more, the more specific the pattern. */
export function literals(pattern: string): number {
  return [...toGlob(pattern)].filter((c) => c !== '*' && c !== '?').length;
}
