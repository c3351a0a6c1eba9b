import type { HostPort } from '../mail.ts';
import { percentile } from './figures.ts';
import { startHelper } from './helper.ts';

/** What an innocent client saw: milliseconds from each NOOP to its answer, and from each connection to its greeting. */
export interface Probed {
  readonly noops: readonly number[];
  readonly banners: readonly number[];
  readonly lost: number;
}

/**
 * Measures from outside how long the loop of a daemon stands still: a client in a process of its own says NOOP every 5
 * ms, whether the last one was answered or not, so that a long pause counts as often as it would have been felt.
 *
 * @param commands how many NOOPs are said over one connection
 */
export function startProbe(at: HostPort, commands = 40) {
  const helper = startHelper<Probed>('probe-client.ts', { ...at, commands });
  return {
    ...helper,
    async p99() {
      return percentile((await helper.report()).noops, 0.99);
    },
  };
}
