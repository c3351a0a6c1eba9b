import type { Clock } from '../base/clock.ts';
import { StoreAway } from './collection.ts';

/** The answer of `work`, or `StoreAway` after `ms` milliseconds; `late` is called then, and what `work` still does is ignored. */
export function within<T>(clock: Clock, ms: number, work: Promise<T>, late?: () => void): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const cancel = clock.after(ms, () => {
      late?.();
      reject(new StoreAway(`no answer within ${ms} ms`));
    });
    work.then(resolve, reject).finally(cancel);
  });
}
