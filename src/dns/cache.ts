import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Answer } from './types.ts';

/** An answer from outside, and how long it may be believed. */
export interface Fresh<T> {
  readonly answer: Answer<T>;
  readonly keepMs: number;
}

/** Answers by question, each until its time is over; equal questions at one time are asked once. */
export interface Cache<T> {
  /** What is known now; the TTL is what is left of it. */
  find(key: string): Answer<T> | undefined;
  /** Asks, or waits for the one who already does. */
  ask(key: string, look: () => Promise<Fresh<T>>): Promise<Answer<T>>;
}

interface Entry<T> {
  readonly answer: Answer<T>;
  readonly until: number;
  readonly weight: number;
}

/** Characters per entry, on average: answers of many kilobytes push out more than one. */
const AVERAGE_WEIGHT = 400;

/** A cache of at most `entries` answers; the one that was not used for longest goes first. */
export function createCache<T>(entries: number, clock: Clock): Cache<T> {
  const kept = new Map<string, Entry<T>>();
  const asked = new Map<string, Promise<Answer<T>>>();
  let weight = 0;

  function forget(key: string, entry: Entry<T>): void {
    if (kept.delete(key)) weight -= entry.weight;
  }

  function keep(key: string, fresh: Fresh<T>): void {
    const entry = { answer: fresh.answer, until: clock.monotonic() + fresh.keepMs, weight: weigh(key, fresh.answer) };
    if (fresh.keepMs <= 0 || entry.weight > entries * AVERAGE_WEIGHT) return;
    const known = kept.get(key);
    if (known) forget(key, known);
    kept.set(key, entry);
    weight += entry.weight;
    for (const [oldest, old] of kept) {
      // a Map keeps the order of insertion
      if (kept.size <= entries && weight <= entries * AVERAGE_WEIGHT) break;
      forget(oldest, old);
    }
  }

  function find(key: string): Answer<T> | undefined {
    const entry = kept.get(key);
    if (!entry) return undefined;
    const left = entry.until - clock.monotonic();
    if (left <= 0) {
      forget(key, entry);
      return undefined;
    }
    kept.delete(key);
    kept.set(key, entry); // to the end: used most recently
    const { answer } = entry;
    return answer.kind === 'records' ? { ...answer, ttl: Math.min(answer.ttl, Math.ceil(left / 1000)) } : answer;
  }

  function ask(key: string, look: () => Promise<Fresh<T>>): Promise<Answer<T>> {
    const running = asked.get(key);
    if (running) return running;
    const question = look()
      .then((fresh) => {
        keep(key, fresh);
        return fresh.answer;
      })
      .finally(() => asked.delete(key));
    asked.set(key, question);
    return question;
  }
  return frozen({ find, ask });
}

function weigh(key: string, answer: Answer<unknown>): number {
  const texts = answer.kind === 'records' ? answer.records : [];
  return texts.reduce<number>((sum, text) => sum + (typeof text === 'string' ? text.length : 50), key.length + 50);
}
