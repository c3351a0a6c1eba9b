import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createExpiringMemory, type ExpiringMemory } from '../../base/memory.ts';
import type { Answer, Budget, MxRecord, Resolver } from '../../dns/types.ts';

// What verdicts ask of the DNS: in the library's manner, within a budget, and remembered for as long as the answers
// hold.

/** A question in the manner of node:dns: an array, or a rejection with a code. */
export type LookUp = (name: string, type: string) => Promise<unknown[]>;

/** The code of a question that the budget did not allow. */
export const BUDGET_CODE = 'EBUDGET';
const CODES = {
  timeout: 'ETIMEOUT',
  refused: 'EREFUSED',
  budget: BUDGET_CODE,
  servfail: 'ESERVFAIL',
  malformed: 'EBADRESP',
  unreachable: 'ECONNREFUSED',
} as const;

/** Whether a code says that a question was not answered, and may be another time. */
export function isFailureCode(code: string): boolean {
  return Object.values<string>(CODES).includes(code);
}

/** Our resolver in the manner of node:dns, which is what mailauth expects. `note` hears of every answer. */
export function createLookUp(
  resolver: Resolver,
  budget: Budget,
  note: (answer: Answer<unknown>) => void = () => {},
): LookUp {
  const noted = <T>(answer: Answer<T>): readonly T[] => {
    note(answer);
    return recordsOf(answer);
  };
  return async (name, type) => {
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
  };
}

function recordsOf<T>(answer: Answer<T>): readonly T[] {
  if (answer.kind === 'records') return answer.records;
  throw codedError(
    answer.kind === 'failure' ? CODES[answer.reason] : answer.kind === 'nxdomain' ? 'ENOTFOUND' : 'ENODATA',
  );
}

/**
 * An absent record is no fault of the program: its stack would tell nothing, and is half of what it costs (12 us per
 * message).
 */
function codedError(code: string): Error {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 0;
  const error = Object.assign(new Error(code), { code });
  Error.stackTraceLimit = limit;
  return error;
}

/**
 * What one piece of work may spend on the DNS: so many questions, and so many milliseconds from now for all of them.
 * A question that is answered from the cache counts too: what is refused must not depend on who asked before.
 */
export function createBudget(questions: number, ms: number, clock: Clock): Budget {
  const end = clock.monotonic() + ms;
  let asked = 0;
  return frozen({
    take: () => asked < questions && ++asked > 0,
    left: () => Math.max(0, end - clock.monotonic()),
  });
}

/**
 * A part of a budget, so that one piece of the work cannot spend what another one needs: a sender who makes SPF
 * expensive must not get rid of the DMARC of the name in From.
 */
export function createShare(budget: Budget, questions: number, ms: number, clock: Clock): Budget {
  const own = createBudget(questions, ms, clock);
  return frozen({
    take: () => own.take() && budget.take(),
    left: () => Math.min(own.left(), budget.left()),
  });
}

/** How long something may be believed that was made of DNS answers. */
export interface Life {
  /** Hears of every answer that went into it. */
  note(answer: Answer<unknown>): void;
  /** Milliseconds, 0 when it may not be kept. */
  ms(): number;
}

const LONGEST_MS = 300_000;
/** An absence comes without its TTL (RFC 2308); who publishes a record now should not have to wait for long. */
const ABSENCE_MS = 10_000;
/** SPF macros: what such a record says may depend on every letter of the envelope (RFC 7208 section 7). */
const MACRO = /%[{_%-]/;

/**
 * As long as the shortest of the answers holds, at most five minutes; not at all after a failure or where a macro was
 * seen.
 */
function createLife(): Life {
  let ms = LONGEST_MS;
  return frozen({
    note(answer) {
      ms = Math.min(ms, lifeOf(answer));
    },
    ms: () => ms,
  });
}

function lifeOf(answer: Answer<unknown>): number {
  if (answer.kind === 'failure') return 0;
  if (answer.kind !== 'records') return ABSENCE_MS;
  return answer.records.some((record) => typeof record === 'string' && MACRO.test(record)) ? 0 : answer.ttl * 1000;
}

/** Senders, authors and policies kept in mind, of each; some hundred bytes apiece. */
const MOST = 5000;
/** Longer keys are not worth their room, and somebody may have made them long on purpose. */
const LONGEST_KEY = 1024;

/** Verdicts that would come out the same again: a mail host hears most from those it has just heard from. */
export function createRecall<V>(clock: Clock): ExpiringMemory<V> {
  return createExpiringMemory<V>({ most: MOST }, clock);
}

/**
 * What came out before for the same key, else what comes out now, kept for as long as the answers that it was made of
 * hold.
 */
export async function recalled<V>(
  memory: ExpiringMemory<V>,
  key: string,
  make: (note: Life['note']) => Promise<V>,
): Promise<V> {
  const known = memory.get(key);
  if (known !== undefined) return known;
  const life = createLife();
  const value = await make(life.note);
  if (key.length <= LONGEST_KEY) memory.set(key, value, life.ms());
  return value;
}
