import type { Clock } from '../base/clock.ts';
import type { Asking } from './asking.ts';
import type { Cache, Fresh } from './cache.ts';
import { toQuestionName } from './names.ts';
import { readReply } from './reply.ts';
import type { Answer, Budget, MxRecord, RecordType } from './types.ts';

/** One question with everything around it: the name checked, the budget charged, the cache looked at, aliases followed. */
export type Lookup<T> = (name: string, type: RecordType, budget?: Budget) => Promise<Answer<T>>;

interface Deps<T> {
  readonly asking: Asking;
  readonly cache: Cache<T>;
  readonly read: (value: string | MxRecord) => T | undefined;
  readonly clock: Clock;
}

const LONGEST_ALIAS_CHAIN = 8;
const MOST_KEPT_S = 3600;
const MOST_KEPT_ABSENCE_S = 300;
const KEPT_FAILURE_MS = 5000; // RFC 9520 section 3.2: at least a second, at most five minutes

/** Look-ups of records of one form. `timeoutMs` is for one question, its aliases included. */
export function createLookup<T>({ asking, cache, read, clock }: Deps<T>, timeoutMs: number): Lookup<T> {
  async function look(name: string, type: RecordType): Promise<Fresh<T>> {
    const deadline = clock.monotonic() + timeoutMs;
    let target = name;
    let ttl = Number.MAX_SAFE_INTEGER; // who asks sees all of it; only the keeping is bounded
    for (let aliases = 0; aliases < LONGEST_ALIAS_CHAIN; aliases++) {
      const heard = await asking.ask(target, type, deadline);
      if (heard.kind === 'failure') return { answer: heard, keepMs: KEPT_FAILURE_MS };
      const reading = readReply(heard.reply, target, type, ttl, read);
      if (reading.kind === 'answer') return { answer: reading.answer, keepMs: keepMs(reading.answer, reading.ttl) };
      target = reading.target;
      ttl = reading.ttl;
    }
    return { answer: { kind: 'failure', reason: 'malformed' }, keepMs: KEPT_FAILURE_MS }; // aliases in a circle
  }

  return async (name, type, budget) => {
    if (budget && !budget.take()) return { kind: 'failure', reason: 'budget' };
    const asked = toQuestionName(name);
    if (asked === undefined) return { kind: 'nxdomain' }; // what cannot be asked does not exist
    const key = `${type} ${asked}`;
    const known = cache.find(key);
    if (known) return known;
    if (budget && budget.left() <= 0) return { kind: 'failure', reason: 'budget' };
    const answer = cache.ask(key, () => look(asked, type));
    return budget ? within(answer, budget, clock) : answer;
  };
}

function keepMs(answer: Answer<unknown>, ttl: number): number {
  return Math.min(ttl, answer.kind === 'records' ? MOST_KEPT_S : MOST_KEPT_ABSENCE_S) * 1000;
}

/** The answer, or `budget` when the asker's time is over first. The question itself goes on, for others and for the cache. */
function within<T>(answer: Promise<Answer<T>>, budget: Budget, clock: Clock): Promise<Answer<T>> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(budget.left(), () => resolve({ kind: 'failure', reason: 'budget' }));
    answer.then(resolve, reject).finally(cancel);
  });
}
