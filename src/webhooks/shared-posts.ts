import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createExpiringMemory } from '../base/memory.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { Company } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import type { AttemptResult } from '../queue/settle.ts';

/** How many bytes of JSON a byte of a message becomes at most: raw, as base64 of that, parsed, and its attachments. */
const JSON_PER_BYTE = 4;
/** After a POST of several messages that was not taken, those of its route are posted singly for so long. */
const SINGLY_MS = 60_000;
/** Routes of which that is remembered. */
const MOST_ROUTES = 10_000;

interface SharedPostsDeps {
  /** How many messages of its route may share a POST. */
  readonly batchEvents: (delivery: Delivery) => number;
  readonly clock: Clock;
}

/** Which messages share a POST: fresh ones of one route that wait, as many as the route says, up to a size. */
interface SharedPosts {
  /** Who goes along with `first`; undefined: it goes alone. */
  with(first: Waiting): Company | undefined;
  /** What came of a POST that several messages of a route shared. */
  ended(routeId: string, result: AttemptResult, delivered: boolean): void;
}

/** `batchBytes`: the most bytes of JSON in a POST of several events. */
export function createSharedPosts({ batchBytes }: { readonly batchBytes: number }, deps: SharedPostsDeps): SharedPosts {
  const { batchEvents, clock } = deps;
  const singly = createExpiringMemory<true>({ most: MOST_ROUTES }, clock);

  return frozen({
    with(first) {
      const { delivery } = first;
      let room = batchBytes / JSON_PER_BYTE - sizeOf(first);
      if (!isFresh(first) || room <= 0 || singly.get(delivery.routeId)) return undefined;
      const events = batchEvents(delivery);
      if (events <= 1) return undefined;
      return {
        most: events - 1,
        takes(next) {
          const size = sizeOf(next);
          if (!isFresh(next) || next.delivery.routeId !== delivery.routeId || size > room) return false;
          room -= size;
          return true;
        },
      };
    },
    ended(routeId, result, delivered) {
      // That nobody could be connected to has nothing to do with what was posted.
      const heard = result.kind === 'answered' || result.connected;
      if (!delivered && heard) singly.set(routeId, true, SINGLY_MS);
    },
  });
}

/** One that has failed may be what made it fail, and one that is parked most likely is. */
function isFresh({ delivery, attempts, parked, alone }: Waiting): boolean {
  return delivery.kind === 'inbound' && attempts === 0 && !parked && !alone;
}

/** Of an unknown size: as large as can be. */
const sizeOf = ({ delivery }: Waiting): number => delivery.size ?? Number.POSITIVE_INFINITY;
