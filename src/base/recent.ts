import { frozen } from './frozen.ts';
/** Answers that are believed for a while. */
export interface Recent<T> {
  get(key: string, now: number): Promise<T>;
  /** It has changed: what was read, or is being read, is not believed any more. */
  forget(key: string): void;
}

/** Keys that are kept in mind. */
const MAX_KEPT = 10_000;

/** Remembers what `read` said for `freshMs` milliseconds; those who ask meanwhile share one reading. A failure is not remembered. */
export function createRecent<T>(read: (key: string) => Promise<T>, freshMs: number): Recent<T> {
  const kept = new Map<string, { readonly at: number; readonly value: Promise<T> }>();
  return frozen({
    async get(key, now) {
      const known = kept.get(key);
      if (known && now - known.at < freshMs && now >= known.at) return known.value;
      if (kept.size >= MAX_KEPT) kept.clear();
      const made = { at: now, value: read(key) };
      kept.set(key, made);
      try {
        return await made.value;
      } catch (error) {
        if (kept.get(key) === made) kept.delete(key);
        throw error;
      }
    },
    forget(key) {
      kept.delete(key);
    },
  });
}
