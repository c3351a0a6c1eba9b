import type { Delivery, QueuedDelivery } from '../delivery.ts';
import { longestWait } from '../settle.ts';

/** A waiting delivery in the dispatcher. */
export interface Waiting {
  readonly delivery: Delivery;
  /** Attempts so far. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly budgetFrom: number;
  readonly parked: boolean;
  /** It must not share an attempt: a shared one could not be prepared. */
  readonly alone: boolean;
  /** Its send time was chosen and may be changed until it is sent: the store decides (sending/scheduling.ts). */
  readonly scheduled: boolean;
  /** Its due time was chosen and is not a backoff: no probe sends it earlier, and it may be far in the future. */
  readonly timed: boolean;
  /** In milliseconds of the monotonic clock, so that a change of the wall clock cannot delay it. */
  readonly due: number;
  /** When it last failed in this process (monotonic milliseconds); Infinity: never. */
  readonly failedAt: number;
  /** Since when it has failed as the first of its sequence, milliseconds since 1970. */
  readonly heldSince?: number | undefined;
}

/** The current time: milliseconds since 1970, and milliseconds of the monotonic clock. */
export interface Times {
  readonly wall: number;
  readonly steady: number;
}

/** Whether the due time before the first attempt is a chosen send time (queue/road.ts). */
interface Timing {
  readonly timed: boolean;
}

/** Converts a delivery that was just accepted. */
export function toFresh(delivery: Delivery, now: Times, { timed }: Timing): Waiting {
  const early = Math.max(0, (delivery.notBefore ?? 0) - now.wall);
  const scheduled = delivery.notBefore !== undefined;
  return {
    delivery,
    attempts: 0,
    budgetFrom: now.wall + early,
    parked: false,
    alone: false,
    scheduled,
    timed,
    due: now.steady + early,
    failedAt: Number.POSITIVE_INFINITY,
  };
}

/** Whether it may be tried before its time, as a probe or after its endpoint recovered. */
export function mayBeEarly(waiting: Waiting): boolean {
  return !waiting.parked && !waiting.timed;
}

/**
 * Converts a delivery read from the spool. Its due time is wall time; if that is further off than any delay that
 * Postern sets, a wrong clock wrote it.
 */
export function toWaiting(queued: QueuedDelivery, now: Times, road: Timing): Waiting {
  const wait = queued.dueAt - now.wall;
  const { attempts, budgetFrom, parked } = queued;
  const timed = road.timed && attempts === 0;
  const wrong = !timed && wait > longestWait(queued);
  // A replayed delivery looks the same; the store then has no row for it.
  const scheduled = timed && budgetFrom > queued.createdAt;
  const due = now.steady + (wait <= 0 || wrong ? 0 : wait);
  const failedAt = Number.POSITIVE_INFINITY;
  const { heldSince } = queued;
  return { delivery: queued, attempts, budgetFrom, parked, alone: false, scheduled, timed, due, failedAt, heldSince };
}
