import { createExpiringCache } from '../base/cache.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Delivery } from '../queue/delivery.ts';
import type { ShareRule } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/waiting.ts';
import type { AttemptResult } from '../queue/settle.ts';

/** Maximum bytes of JSON per byte of a message: raw, base64 of raw, parsed, and attachments. */
const JSON_PER_BYTE = 4;
/** Milliseconds for which a route's messages are posted singly after a shared POST was not accepted. */
const SINGLY_MS = 60_000;
/** Maximum number of routes posted singly. */
const MAX_ROUTES = 10_000;

interface SharedPostsDeps {
  /** How many messages of its route may share a POST. */
  readonly batchEvents: (delivery: Delivery) => number;
  readonly clock: Clock;
}

/**
 * Decides which messages share a POST: new ones of one route, up to the route's number and a size. `batchBytes`:
 * maximum bytes of JSON in a POST of several events.
 */
export function createSharedPosts({ batchBytes }: { readonly batchBytes: number }, deps: SharedPostsDeps) {
  const { batchEvents, clock } = deps;
  const singly = createExpiringCache<true>({ most: MAX_ROUTES }, clock);

  return frozen({
    /** The messages that share a POST with `first`; undefined: it is posted alone. */
    shareRuleOf(first: Waiting): ShareRule | undefined {
      const { delivery } = first;
      let room = batchBytes / JSON_PER_BYTE - sizeOf(first);
      if (!isFresh(first) || room <= 0 || singly.get(delivery.routeId)) return undefined;
      const events = batchEvents(delivery);
      if (events <= 1) return undefined;
      return {
        most: events - 1,
        accepts(next) {
          const size = sizeOf(next);
          if (!isFresh(next) || next.delivery.routeId !== delivery.routeId || size > room) return false;
          room -= size;
          return true;
        },
      };
    },
    /** Records the result of a POST that several messages of a route shared. */
    ended(routeId: string, result: AttemptResult, delivered: boolean) {
      // A failed connection was not caused by the content.
      const heard = result.kind === 'answered' || result.connected;
      if (!delivered && heard) singly.set(routeId, true, SINGLY_MS);
    },
  });
}

/** A message that has failed may be the cause itself, and a parked one most likely is. */
function isFresh({ delivery, attempts, parked, alone }: Waiting): boolean {
  return delivery.kind === 'inbound' && attempts === 0 && !parked && !alone;
}

/** An unknown size counts as infinite. */
const sizeOf = ({ delivery }: Waiting): number => delivery.size ?? Number.POSITIVE_INFINITY;
