import type { Clock } from '../../base/clock.ts';
import { fromMemory } from '../endpoint.ts';
import { createLane, isSpare, type Lane } from './lane.ts';

/** Lanes above which those without work are forgotten now and then. */
const MANY = 1000;

/** The lanes of all endpoints that have work, or had some of late. */
export interface Lanes {
  /** The lane of an endpoint; a new one begins with what the spool kept of it. */
  of(account: string, url: string, memory: string | null): Lane;
  has(account: string, url: string): boolean;
  all(): Iterable<Lane>;
  count(): number;
}

/** `mostFor`: deliveries on their way to one endpoint at one time. */
export function createLanes(clock: Clock, mostFor: (url: string) => number): Lanes {
  const lanes = new Map<string, Lane>();
  let sweepAt = MANY;

  /** Doubles the count at which it looks again, so that many busy endpoints are not looked through for every new one. */
  function sweep(now: number): void {
    for (const [key, lane] of lanes) if (isSpare(lane, now)) lanes.delete(key);
    sweepAt = Math.max(MANY, 2 * lanes.size);
  }

  return Object.freeze({
    of(account: string, url: string, memory: string | null) {
      const known = lanes.get(keyOf(account, url));
      if (known) return known;
      const now = clock.monotonic();
      if (lanes.size >= sweepAt) sweep(now);
      const most = mostFor(url);
      const lane = createLane({ account, url, most }, fromMemory(memory, clock.now() - now, now, most), memory, now);
      lanes.set(keyOf(account, url), lane);
      return lane;
    },
    has: (account: string, url: string) => lanes.has(keyOf(account, url)),
    all: () => lanes.values(),
    count: () => lanes.size,
  });
}

const keyOf = (account: string, url: string): string => `${account}\0${url}`;
