import { isIP } from 'node:net';
import { createBoundedCache, createSingleFlight } from '../base/cache.ts';
import { type Clock, withTimeout } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { CODEC, readMx, readReply, toTextRecord } from './packets.ts';
import { createDnsClient, type DnsClient } from './query.ts';
import { createHosts, createSystemServers, systemServers } from './system.ts';
import {
  type DnsAnswer,
  type DnsBudget,
  type DnsSettings,
  isLocalhost,
  type MxRecord,
  type RecordType,
  type Resolver,
  toQuestionName,
} from './types.ts';

export interface ResolverDeps extends Tools {
  /** The servers to ask when the settings name none; resolv.conf by default. Re-read every minute. */
  readonly systemServers?: () => readonly string[];
  /** /etc/hosts by default. */
  readonly hostsFile?: string;
  /** Number of answers in the cache; 0 disables it, for callers that need to see recent changes. */
  readonly cacheEntries?: number;
}

const OWN_TTL_S = 3600; // for answers that need no lookup

/** A resolver for the name servers of the settings or of the system. Lookups never throw: failures are answers. */
export function createResolver(settings: DnsSettings, deps: ResolverDeps): Resolver {
  const { clock } = deps;
  const hosts = createHosts(deps.hostsFile ?? '/etc/hosts', clock);
  const newId = () => Math.floor(deps.ids.jitter() * 0x10000);
  const servers = createSystemServers(settings.servers, deps.systemServers ?? systemServers, clock);
  const asking = createDnsClient(
    { clock, log: deps.log, metrics: deps.metrics, codec: CODEC, servers, newId },
    settings,
  );
  const entries = deps.cacheEntries ?? 10_000;
  const lookupOf = <T>(read: LookupDeps<T>['read']) =>
    createLookup({ asking, cache: createCache<T>(entries, clock), read, clock }, settings.timeoutMs);
  const texts = lookupOf(toTextRecord);
  const exchanges = lookupOf(readMx);

  function resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  function resolve(
    name: string,
    type: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    return type === 'MX' ? exchanges(name, type, budget) : texts(name, type, budget);
  }

  async function addresses(host: string, budget?: DnsBudget): Promise<DnsAnswer<string>> {
    if (isIP(host)) return { kind: 'records', records: [host], ttl: OWN_TTL_S };
    const name = toQuestionName(host);
    if (name === undefined) return { kind: 'nxdomain' };
    if (isLocalhost(name)) return { kind: 'records', records: ['127.0.0.1', '::1'], ttl: OWN_TTL_S };
    const written = await hosts.find(name);
    if (written) return { kind: 'records', records: written, ttl: 0 };
    return mergeFamilies(...(await Promise.all([resolve(name, 'A', budget), resolve(name, 'AAAA', budget)])));
  }

  return frozen({ resolve, addresses, stop: async () => asking.stop() });
}

/** Merges the answers for both families. Records of one are enough; without any, a failure outweighs an absence. */
function mergeFamilies(four: DnsAnswer<string>, six: DnsAnswer<string>): DnsAnswer<string> {
  if (four.kind === 'records' && six.kind === 'records') {
    return { kind: 'records', records: [...four.records, ...six.records], ttl: Math.min(four.ttl, six.ttl) };
  }
  const both = [four, six];
  return (
    both.find((one) => one.kind === 'records') ??
    both.find((one) => one.kind === 'failure') ??
    both.find((one) => one.kind === 'none') ??
    four
  );
}

/** One lookup: checks the name, charges the budget, consults the cache and follows aliases. */
type Lookup<T> = (name: string, type: RecordType, budget?: DnsBudget) => Promise<DnsAnswer<T>>;

interface LookupDeps<T> {
  readonly asking: DnsClient;
  readonly cache: Cache<T>;
  readonly read: (value: string | MxRecord) => T | undefined;
  readonly clock: Clock;
}

/** The budget of the caller is used up. */
const OVER: DnsAnswer<never> = Object.freeze({ kind: 'failure', reason: 'budget' });
const LONGEST_ALIAS_CHAIN = 8;
const MAX_KEPT_S = 3600;
const MAX_KEPT_ABSENCE_S = 300;
const KEPT_FAILURE_MS = 5000; // RFC 9520 section 3.2: at least one second, at most five minutes

/** Creates a lookup for one form of records. `timeoutMs` is for one lookup, aliases included. */
function createLookup<T>({ asking, cache, read, clock }: LookupDeps<T>, timeoutMs: number): Lookup<T> {
  async function look(name: string, type: RecordType): Promise<Fresh<T>> {
    const deadline = clock.monotonic() + timeoutMs;
    let target = name;
    let ttl = Number.MAX_SAFE_INTEGER; // callers get the full TTL; only caching is limited
    for (let aliases = 0; aliases < LONGEST_ALIAS_CHAIN; aliases++) {
      const outcome = await asking.ask(target, type, deadline);
      if (outcome.kind === 'failure') return { answer: outcome, keepMs: KEPT_FAILURE_MS };
      const reading = readReply(outcome.reply, target, type, ttl, read);
      if (reading.kind === 'answer') return { answer: reading.answer, keepMs: keepMs(reading.answer, reading.ttl) };
      target = reading.target;
      ttl = reading.ttl;
    }
    return { answer: { kind: 'failure', reason: 'malformed' }, keepMs: KEPT_FAILURE_MS }; // alias loop
  }

  return async (name, type, budget) => {
    if (budget && !budget.take()) return OVER;
    const asked = toQuestionName(name);
    if (asked === undefined) return { kind: 'nxdomain' }; // a name that cannot be looked up does not exist
    const key = `${type} ${asked}`;
    const known = cache.find(key);
    if (known) return known;
    if (budget && budget.left() <= 0) return OVER;
    const answer = cache.ask(key, () => look(asked, type));
    // The lookup goes on for other callers and for the cache.
    return budget ? withTimeout(clock, budget.left(), answer, () => OVER) : answer;
  };
}

function keepMs(answer: DnsAnswer<unknown>, ttl: number): number {
  return Math.min(ttl, answer.kind === 'records' ? MAX_KEPT_S : MAX_KEPT_ABSENCE_S) * 1000;
}

/** An answer from a server, and how long to cache it. */
interface Fresh<T> {
  readonly answer: DnsAnswer<T>;
  readonly keepMs: number;
}

/** A cache of answers by question; concurrent lookups of the same question are shared. */
type Cache<T> = ReturnType<typeof createCache<T>>;

interface Entry<T> {
  readonly answer: DnsAnswer<T>;
  readonly until: number;
}

/** Average characters per entry: an answer of many kilobytes evicts more than one entry. */
const AVERAGE_WEIGHT = 400;

/** Creates a cache of at most `entries` answers; the least recently used is evicted first. */
function createCache<T>(entries: number, clock: Clock) {
  const shared = createSingleFlight<DnsAnswer<T>>();
  const kept = createBoundedCache<Entry<T>>({
    most: entries,
    keepUsed: true,
    weight: { of: (key, { answer }) => weigh(key, answer), most: entries * AVERAGE_WEIGHT },
  });

  return frozen({
    /** The cached answer, with the remaining TTL. */
    find(key: string): DnsAnswer<T> | undefined {
      const entry = kept.get(key);
      if (!entry) return undefined;
      const left = entry.until - clock.monotonic();
      if (left <= 0) {
        kept.delete(key);
        return undefined;
      }
      const { answer } = entry;
      return answer.kind === 'records' ? { ...answer, ttl: Math.min(answer.ttl, Math.ceil(left / 1000)) } : answer;
    },
    /** Runs the lookup, or waits for one that is already running. */
    ask: (key: string, look: () => Promise<Fresh<T>>) =>
      shared(key, async () => {
        const { answer, keepMs } = await look();
        if (keepMs > 0) kept.set(key, { answer, until: clock.monotonic() + keepMs });
        return answer;
      }),
  });
}

function weigh(key: string, answer: DnsAnswer<unknown>): number {
  const texts = answer.kind === 'records' ? answer.records : [];
  return texts.reduce<number>((sum, text) => sum + (typeof text === 'string' ? text.length : 50), key.length + 50);
}
