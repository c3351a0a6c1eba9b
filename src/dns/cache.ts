import type { Clock } from '../base/clock.ts';
import type { Answer } from './types.ts';

/** An answer from outside, and how long it may be believed. */
export interface Fresh<T> { readonly answer: Answer<T>; readonly keepMs: number }

/** Answers by question, each until its time is over; equal questions at one time are asked once. */
export interface Cache<T> {
  /** What is known now; the TTL is what is left of it. */
  find(key: string): Answer<T> | undefined;
  /** Asks, or waits for the one who already does. */
  ask(key: string, look: () => Promise<Fresh<T>>): Promise<Answer<T>>;
}

interface Entry<T> { readonly answer: Answer<T>; readonly until: number }

/** A cache of at most `entries` answers; the one that was not used for longest goes first. */
export function createCache<T>(entries: number, clock: Clock): Cache<T> {
  const kept = new Map<string, Entry<T>>();
  const asked = new Map<string, Promise<Answer<T>>>();

  function keep(key: string, fresh: Fresh<T>): void {
    if (fresh.keepMs <= 0 || entries <= 0) return;
    if (kept.size >= entries) {
      const oldest = kept.keys().next();
      if (!oldest.done) kept.delete(oldest.value);
    }
    kept.set(key, { answer: fresh.answer, until: clock.monotonic() + fresh.keepMs });
  }

  function find(key: string): Answer<T> | undefined {
    const entry = kept.get(key);
    if (!entry) return undefined;
    const left = entry.until - clock.monotonic();
    kept.delete(key);
    if (left <= 0) return undefined;
    kept.set(key, entry); // last in the order of a Map: used most recently
    const { answer } = entry;
    return answer.kind === 'records' ? { ...answer, ttl: Math.min(answer.ttl, Math.ceil(left / 1000)) } : answer;
  }

  function ask(key: string, look: () => Promise<Fresh<T>>): Promise<Answer<T>> {
    const running = asked.get(key);
    if (running) return running;
    const question = look().then((fresh) => {
      keep(key, fresh);
      return fresh.answer;
    }).finally(() => asked.delete(key));
    asked.set(key, question);
    return question;
  }
  return Object.freeze({ find, ask });
}
