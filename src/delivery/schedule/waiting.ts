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
  /** In milliseconds that only grow, so that a wall clock that is set cannot put it off. */
  readonly due: number;
  /** When it last failed, as far as this process knows (milliseconds that only grow); Infinity: never. */
  readonly failedAt: number;
}

/** A delivery that was accepted a moment ago. */
export function toFresh(delivery: Delivery, now: { readonly wall: number; readonly steady: number }): Waiting {
  return { delivery, attempts: 0, budgetFrom: now.wall, parked: false, due: now.steady, failedAt: Number.POSITIVE_INFINITY };
}

/** A delivery read from the spool. Its due time is wall time; one further off than any wait we give was written by a wrong clock. */
export function toWaiting(queued: QueuedDelivery, now: { readonly wall: number; readonly steady: number }): Waiting {
  const wait = queued.dueAt - now.wall;
  const due = now.steady + (wait <= 0 || wait > longestWait(queued) ? 0 : wait);
  const { attempts, budgetFrom, parked } = queued;
  return { delivery: queued, attempts, budgetFrom, parked, due, failedAt: Number.POSITIVE_INFINITY };
}
