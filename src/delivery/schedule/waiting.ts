import { isMailUrl } from '../../mail/sending.ts';
import type { Delivery, QueuedDelivery } from '../../spool/types.ts';
import { longestWait } from '../settle.ts';

/** A waiting delivery as the dispatcher holds it. */
export interface Waiting {
  readonly delivery: Delivery;
  /** Made so far. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly budgetFrom: number;
  readonly parked: boolean;
  /** Somebody chose its time and may choose another until it is sent: the store has the last word (outbound/scheduling.ts). */
  readonly scheduled: boolean;
  /** In milliseconds that only grow, so that a wall clock that is set cannot put it off. */
  readonly due: number;
  /** When it last failed, as far as this process knows (milliseconds that only grow); Infinity: never. */
  readonly failedAt: number;
}

/** A delivery that was accepted a moment ago. */
export function toFresh(delivery: Delivery, now: { readonly wall: number; readonly steady: number }): Waiting {
  const early = Math.max(0, (delivery.notBefore ?? 0) - now.wall);
  const scheduled = delivery.notBefore !== undefined;
  return {
    delivery,
    attempts: 0,
    budgetFrom: now.wall + early,
    parked: false,
    scheduled,
    due: now.steady + early,
    failedAt: Number.POSITIVE_INFINITY,
  };
}

/**
 * Its time is somebody's wish and no backoff of ours: mail that an account wants to have sent later, or that waits because a
 * subaccount is paused. No probe takes it before that, and it may be as far off as they like.
 */
export function isTimed({ delivery, attempts }: Pick<Waiting, 'delivery' | 'attempts'>): boolean {
  return attempts === 0 && isMailUrl(delivery.url);
}

/** Whether it may be tried before its time, because its endpoint is back or to see whether it is. */
export function mayBeEarly(waiting: Waiting): boolean {
  return !waiting.parked && !isTimed(waiting);
}

/** A delivery read from the spool. Its due time is wall time; one further off than any wait we give was written by a wrong clock. */
export function toWaiting(queued: QueuedDelivery, now: { readonly wall: number; readonly steady: number }): Waiting {
  const wait = queued.dueAt - now.wall;
  const { attempts, budgetFrom, parked } = queued;
  const timed = isTimed({ delivery: queued, attempts });
  const wrong = !timed && wait > longestWait(queued);
  // One that was replayed looks the same; the store has no row of it then.
  const scheduled = timed && budgetFrom > queued.createdAt;
  const due = now.steady + (wait <= 0 || wrong ? 0 : wait);
  return { delivery: queued, attempts, budgetFrom, parked, scheduled, due, failedAt: Number.POSITIVE_INFINITY };
}
