import { createExpiringCache, type ExpiringCache } from '../../base/cache.ts';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createDnsBudget, type DnsAnswer, type DnsBudget, type MxRecord, type Resolver } from '../../dns/types.ts';

// DNS lookups for verdicts: with the interface that mailauth expects, within a budget, and cached for as long as the
// answers are valid.

/** A lookup with the interface of node:dns: resolves with an array, or rejects with an error code. */
export type LookUp = (name: string, type: string) => Promise<unknown[]>;

/** The error code of a query that exceeded the budget. */
export const BUDGET_CODE = 'EBUDGET';
const CODES = {
  timeout: 'ETIMEOUT',
  refused: 'EREFUSED',
  budget: BUDGET_CODE,
  servfail: 'ESERVFAIL',
  malformed: 'EBADRESP',
  unreachable: 'ECONNREFUSED',
} as const;

/** Whether a code stands for a temporary failure. */
export function isFailureCode(code: string): boolean {
  return Object.values<string>(CODES).includes(code);
}

/**
 * Wraps our resolver in the interface of node:dns, which mailauth expects. `note` is called with every answer.
 * `open` holds the questions that are waiting for an answer.
 */
export function createLookUp(
  resolver: Resolver,
  budget: DnsBudget,
  note: (answer: DnsAnswer<unknown>) => void = () => {},
  open?: Set<string>,
): LookUp {
  const noted = <T>(answer: DnsAnswer<T>): readonly T[] => {
    note(answer);
    return recordsOf(answer);
  };
  return async (name, type) => {
    const question = `${type} ${name}`;
    open?.add(question);
    try {
      switch (type) {
        case 'TXT':
          return noted(await resolver.resolve(name, 'TXT', budget)).map((text) => [text]);
        case 'MX':
          return [...noted<MxRecord>(await resolver.resolve(name, 'MX', budget))];
        case 'A':
        case 'AAAA':
        case 'PTR':
        case 'CNAME':
          return [...noted(await resolver.resolve(name, type, budget))];
        default:
          throw codedError('ENODATA');
      }
    } finally {
      open?.delete(question);
    }
  };
}

function recordsOf<T>(answer: DnsAnswer<T>): readonly T[] {
  if (answer.kind === 'records') return answer.records;
  throw codedError(
    answer.kind === 'failure' ? CODES[answer.reason] : answer.kind === 'nxdomain' ? 'ENOTFOUND' : 'ENODATA',
  );
}

/** An error without a stack: absent records are not bugs, and the stack is half of the cost (12 us per message). */
function codedError(code: string): Error {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 0;
  const error = Object.assign(new Error(code), { code });
  Error.stackTraceLimit = limit;
  return error;
}

/**
 * Limits a check to a share of a budget, so that it cannot use up what another one needs: a sender with an expensive
 * SPF record must not be able to prevent the DMARC check of the From domain.
 */
export function createShare(budget: DnsBudget, questions: number, ms: number, clock: Clock): DnsBudget {
  const own = createDnsBudget(questions, ms, clock);
  return frozen({
    take: () => own.take() && budget.take(),
    left: () => Math.min(own.left(), budget.left()),
  });
}

/** How long a result that is derived from DNS answers is valid. */
export type CacheLifetime = ReturnType<typeof createCacheLifetime>;

const LONGEST_MS = 300_000;
/** The resolver does not report the TTL of negative answers (RFC 2308); a record published now should soon be seen. */
const ABSENCE_MS = 10_000;
/** SPF macros: the result of such a record may depend on the whole envelope (RFC 7208 section 7). */
const MACRO = /%[{_%-]/;

/** The shortest TTL of the answers, at most five minutes; 0 after a failure or if a record contains a macro. */
function createCacheLifetime() {
  let ms = LONGEST_MS;
  return frozen({
    /** Records each answer that the result is derived from. */
    note(answer: DnsAnswer<unknown>) {
      ms = Math.min(ms, cacheableMs(answer));
    },
    /** Milliseconds; 0 if the result must not be cached. */
    ms: (): number => ms,
  });
}

function cacheableMs(answer: DnsAnswer<unknown>): number {
  if (answer.kind === 'failure') return 0;
  if (answer.kind !== 'records') return ABSENCE_MS;
  return answer.records.some((record) => typeof record === 'string' && MACRO.test(record)) ? 0 : answer.ttl * 1000;
}

/** Most entries in each cache (of senders, of policies); an entry takes a few hundred bytes. */
const MOST = 5000;
/** Longer keys are not cached: they waste memory and may be long on purpose. */
const LONGEST_KEY = 1024;

/** A cache of verdicts: most mail comes from hosts that have sent some recently. */
export const createVerdictCache = <V>(clock: Clock) => createExpiringCache<V>({ most: MOST }, clock);

/** Returns the cached value of a key, or makes it and caches it for as long as the DNS answers behind it are valid. */
export async function cachedVerdict<V>(
  memory: ExpiringCache<V>,
  key: string,
  make: (note: CacheLifetime['note']) => Promise<V>,
): Promise<V> {
  const known = memory.get(key);
  if (known !== undefined) return known;
  const life = createCacheLifetime();
  const value = await make(life.note);
  if (key.length <= LONGEST_KEY) memory.set(key, value, life.ms());
  return value;
}
