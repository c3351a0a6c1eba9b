import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { type Endpoint, type EndpointName, endpointKey } from '../delivery.ts';
import type { Roads } from '../road.ts';
import { Lane } from './lane.ts';

/** Above this many lanes, idle ones are removed from time to time. */
const MANY = 1000;

/** The lanes of all endpoints with current or recent work. */
export type Lanes = ReturnType<typeof createLanes>;

export function createLanes(clock: Clock, roads: Roads) {
  const lanes = new Map<string, Lane>();
  let sweepAt = MANY;

  /** Doubles the count for the next sweep, so that many busy endpoints are not scanned for every new one. */
  function sweep(now: number): void {
    for (const [key, lane] of lanes) if (lane.isSpare(now)) lanes.delete(key);
    sweepAt = Math.max(MANY, 2 * lanes.size);
  }

  return frozen({
    /** Returns the lane of an endpoint; a new one starts with the saved state. */
    of(endpoint: Endpoint, memory: string | null) {
      const key = endpointKey(endpoint);
      const known = lanes.get(key);
      if (known) return known;
      const now = clock.monotonic();
      if (lanes.size >= sweepAt) sweep(now);
      const { concurrencyPerEndpoint: most, concurrencyAtStart: start, heedsLatency } = roads[endpoint.kind];
      const bounds = { start, most, heedsLatency };
      const lane = new Lane(endpoint, bounds, memory, { wall: clock.now(), steady: now });
      lanes.set(key, lane);
      return lane;
    },
    has: (endpoint: EndpointName) => lanes.has(endpointKey(endpoint)),
    /** Returns the lane of an endpoint, if it has one. */
    get: (endpoint: EndpointName) => lanes.get(endpointKey(endpoint)),
    all: (): Iterable<Lane> => lanes.values(),
    count: () => lanes.size,
  });
}
