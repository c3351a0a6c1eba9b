import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Delivery, DeliveryKind, Endpoint, QueuedDelivery } from '../delivery.ts';
import { longestWait } from '../settle.ts';
import { type EndpointState, fromMemory, mayProbe } from './breaker.ts';
import { createEndpointQueue, type EndpointQueue } from './endpoint-queue.ts';

/** Attempts that are made ready at one time for one endpoint. */
const PREPARED = 32;
/** How often the deliveries of an endpoint that is away are looked through for those whose time is over. */
const LOOK_THROUGH = 3_600_000;

/** One endpoint as the dispatcher works on it. */
export interface Lane extends Endpoint {
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
  { account, url, kind, most }: Endpoint & Pick<Lane, 'most'>,
  state: EndpointState,
  kept: string | null,
  now: number,
): Lane {
  return {
    account,
    url,
    kind,
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

/** Lanes above which those without work are forgotten now and then. */
const MANY = 1000;

/** The lanes of all endpoints that have work, or had some of late. */
export interface Lanes {
  /** The lane of an endpoint; a new one begins with what the spool kept of it. */
  of(endpoint: Endpoint, memory: string | null): Lane;
  has(account: string, url: string): boolean;
  all(): Iterable<Lane>;
  count(): number;
}

/** `mostFor`: deliveries on their way to one endpoint at one time. */
export function createLanes(clock: Clock, mostFor: (kind: DeliveryKind) => number): Lanes {
  const lanes = new Map<string, Lane>();
  let sweepAt = MANY;

  /** Doubles the count at which it looks again, so that many busy endpoints are not looked through for every new one. */
  function sweep(now: number): void {
    for (const [key, lane] of lanes) if (isSpare(lane, now)) lanes.delete(key);
    sweepAt = Math.max(MANY, 2 * lanes.size);
  }

  return frozen({
    of({ account, url, kind }, memory) {
      const known = lanes.get(keyOf(account, url));
      if (known) return known;
      const now = clock.monotonic();
      if (lanes.size >= sweepAt) sweep(now);
      const most = mostFor(kind);
      const lane = createLane(
        { account, url, kind, most },
        fromMemory(memory, clock.now() - now, now, most),
        memory,
        now,
      );
      lanes.set(keyOf(account, url), lane);
      return lane;
    },
    has: (account, url) => lanes.has(keyOf(account, url)),
    all: () => lanes.values(),
    count: () => lanes.size,
  });
}

const keyOf = (account: string, url: string): string => `${account}\0${url}`;

/** A waiting delivery as the dispatcher holds it. */
export interface Waiting {
  readonly delivery: Delivery;
  /** Made so far. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly budgetFrom: number;
  readonly parked: boolean;
  /** Somebody chose its time and may choose another until it is sent: the store has the last word (sending/scheduling.ts). */
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
  return attempts === 0 && delivery.kind === 'outbound';
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
