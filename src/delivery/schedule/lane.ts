import { type EndpointState, mayProbe } from '../endpoint.ts';
import { createEndpointQueue, type EndpointQueue } from './endpoint-queue.ts';
import type { Waiting } from './waiting.ts';

/** Attempts that are made ready at one time for one endpoint. */
const PREPARED = 32;
/** How often the deliveries of an endpoint that is away are looked through for those whose time is over. */
const LOOK_THROUGH = 3_600_000;

/** One endpoint as the dispatcher works on it. */
export interface Lane {
  readonly account: string;
  readonly url: string;
  /** For the log: never the URL, which may hold secrets. */
  readonly host: string;
  readonly queue: EndpointQueue;
  /** Deliveries on their way to it at one time. */
  readonly most: number;
  state: EndpointState;
  /** What was last kept on the spool. */
  kept: string | null;
  /** Attempts that are being made ready: read, parsed, signed. */
  preparing: number;
  /** Those that are ready and wait for a place among the posts. */
  readonly turns: (() => void)[];
  /** Posts that wait for an answer. */
  posting: number;
  probing: boolean;
  /** While what waits outside for a recovered endpoint is read: it is due, whatever time it had. */
  pulling: boolean;
  lookAt: number;
  /** When the agenda wakes it; Infinity for never. */
  wakeAt: number;
  usedAt: number;
}

export function createLane(
  { account, url, most }: Pick<Lane, 'account' | 'url' | 'most'>,
  state: EndpointState,
  kept: string | null,
  now: number,
): Lane {
  return {
    account,
    url,
    most,
    host: URL.parse(url)?.host ?? '',
    queue: createEndpointQueue(),
    state,
    kept,
    preparing: 0,
    turns: [],
    posting: 0,
    probing: false,
    pulling: false,
    lookAt: now,
    wakeAt: Number.POSITIVE_INFINITY,
    usedAt: now,
  };
}

/** Whether one more that is ready may be posted now. */
export function hasPlace({ state, posting }: Lane): boolean {
  return state.phase !== 'closed' || posting < state.limit;
}

/**
 * Whether one more attempt may start. Making it ready can take seconds (the name servers of its sender may be slow) and
 * costs the endpoint nothing, so more are made ready than are posted; many more once the endpoint has shown that it takes
 * all it may have, for then it should never wait for us.
 */
function hasRoom(lane: Lane, now: number): boolean {
  const { phase, limit } = lane.state;
  if (phase !== 'closed') return mayProbe(lane.state, now, lane.probing);
  const proven = limit >= lane.most;
  return (
    lane.preparing < (proven ? PREPARED : 2 * limit) && lane.turns.length + lane.posting < (proven ? 2 * limit : limit)
  );
}

/** What may start now, taken from the queue. */
export function takeNext(lane: Lane, now: number): Waiting | undefined {
  if (!hasRoom(lane, now)) return undefined;
  return lane.state.phase === 'closed' ? lane.queue.take(now) : lane.queue.takeProbe(now);
}

/** When something may start, as far as time decides; now or earlier: at once. Infinity: not before something else happens. */
export function nextStart(lane: Lane, now: number): number {
  if (lane.state.phase === 'closed') return hasRoom(lane, now) ? lane.queue.nextDue() : Number.POSITIVE_INFINITY;
  return lane.probing ? Number.POSITIVE_INFINITY : Math.max(lane.state.probeAt, lane.queue.nextProbe());
}

/** When to look at the lane again: something may start, something is due outside, or an endpoint that is away is to be looked through. */
export function nextWake(lane: Lane, now: number): number {
  const start = nextStart(lane, now);
  const outside = lane.queue.outsideAt();
  const away = lane.state.phase !== 'closed' && lane.queue.nextDue() < Number.POSITIVE_INFINITY;
  return Math.min(
    start,
    outside <= now ? Number.POSITIVE_INFINITY : outside,
    away ? lane.lookAt : Number.POSITIVE_INFINITY,
  );
}

/** Whether it is time to look through the queue of an endpoint that is away; says when the next time is. */
export function isLookDue(lane: Lane, now: number): boolean {
  if (lane.state.phase === 'closed' || now < lane.lookAt) return false;
  lane.lookAt = now + LOOK_THROUGH;
  return true;
}

/** Nothing waits, nothing is known that must be remembered: the lane may be forgotten. */
export function isSpare(lane: Lane, now: number): boolean {
  return (
    lane.preparing + lane.turns.length + lane.posting === 0 &&
    lane.state.phase === 'closed' &&
    now - lane.usedAt > 600_000 &&
    lane.queue.nextDue() === Number.POSITIVE_INFINITY &&
    lane.queue.outsideAt() === Number.POSITIVE_INFINITY
  );
}
