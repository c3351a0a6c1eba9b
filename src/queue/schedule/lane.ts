import type { Delivery, DeliveryKind, Endpoint, QueuedDelivery } from '../delivery.ts';
import type { Road, Sharing } from '../road.ts';
import { type AttemptSummary, type Lesson, longestWait } from '../settle.ts';
import {
  askNow,
  type Change,
  type EndpointState,
  fromMemory,
  learn,
  mayProbe,
  type Occasion,
  toMemory,
} from './breaker.ts';
import { createEndpointQueue, type EndpointQueue } from './endpoint-queue.ts';
import type { Sleeper } from './gate.ts';
import { afterIdle, type PlaceBounds } from './places.ts';

/** Attempts that are made ready at one time for one endpoint. */
const PREPARED = 32;
/** Milliseconds after which an endpoint for which more is ready than it takes is what holds up its deliveries. */
const AHEAD = 250;
/** How often the deliveries of an endpoint that is away are looked through for those whose time is over. */
const LOOK_THROUGH = 3_600_000;

/**
 * One endpoint as the dispatcher works on it: what waits for it, what is on its way, and what was learned of it.
 * Everything that happens to a lane is a method here; `wakeAt` alone belongs to the agenda.
 */
export class Lane implements Endpoint, Sleeper {
  readonly account: string;
  readonly url: string;
  readonly kind: DeliveryKind;
  /** For the log: never the URL, which may hold secrets. */
  readonly host: string;
  readonly queue: EndpointQueue = createEndpointQueue();
  wakeAt = Number.POSITIVE_INFINITY;
  readonly #bounds: PlaceBounds;
  #state: EndpointState;
  /** What was last kept on the spool. */
  #kept: string | null;
  /** Attempts that are being made ready: read, parsed, signed. */
  #preparing = 0;
  /** Those that are ready and wait for a place. */
  readonly #turns: (() => void)[] = [];
  /** Those on their way. */
  #posting = 0;
  #probing = false;
  /** While what waits outside for a recovered endpoint is read: it is due, whatever time it had. */
  #pulling = false;
  /** Since when more has been ready than it takes; Infinity: it is not. */
  #aheadFrom = Number.POSITIVE_INFINITY;
  #lookAt: number;
  #usedAt: number;
  #last: LastAttempt | null = null;

  /** Begins with what the spool kept of the endpoint. */
  constructor({ account, url, kind }: Endpoint, bounds: PlaceBounds, memory: string | null, { wall, steady }: Times) {
    this.account = account;
    this.url = url;
    this.kind = kind;
    this.host = URL.parse(url)?.host ?? '';
    this.#bounds = bounds;
    this.#state = fromMemory(memory, wall - steady, steady, bounds);
    this.#kept = memory;
    this.#lookAt = steady;
    this.#usedAt = steady;
  }

  /** closed: deliveries flow · open: it fails · paused: it said 410. */
  get phase(): EndpointState['phase'] {
    return this.#state.phase;
  }

  /** All that was learned of it. */
  get state(): EndpointState {
    return this.#state;
  }

  /** The attempt that came back last, since the lane was made. */
  get last(): LastAttempt | null {
    return this.#last;
  }

  /** Attempts that are being made ready, and those that are ready and wait for a place. */
  get making(): { readonly preparing: number; readonly ready: number } {
    return { preparing: this.#preparing, ready: this.#turns.length };
  }

  /** How many may ever be on their way. */
  get mostPlaces(): number {
    return this.#bounds.most;
  }

  /** Whether the one attempt is on its way that shows whether the endpoint is back. */
  get probing(): boolean {
    return this.#probing;
  }

  /** Attempts on their way. */
  get posting(): number {
    return this.#posting;
  }

  /** How many may be on their way. */
  get places(): number {
    return this.#state.phase === 'closed' ? Math.floor(this.#state.places.limit) : 1;
  }

  /**
   * An endpoint that is away, or that did not answer last time: its attempts may take as long as they are allowed to.
   * All such endpoints together hold at most half of the places, so that fifty of them cannot stop the mail of all
   * others.
   */
  get inDoubt(): boolean {
    return this.#state.phase !== 'closed' || this.#state.misses > 0;
  }

  /** What may start now, taken from the queue. */
  takeNext(now: number): Waiting | undefined {
    if (!this.#hasRoom(now)) return undefined;
    return this.#state.phase === 'closed' ? this.queue.take(now) : this.queue.takeProbe(now);
  }

  /** What goes along with `first` in the same attempt, taken from the queue. A probe goes alone. */
  takeAlong(first: Waiting, now: number, sharing: Sharing | undefined): readonly Waiting[] {
    if (!sharing || this.#state.phase !== 'closed' || this.queue.nextDue() > now) return [];
    const company = sharing.with(first);
    return company ? this.queue.takeWith(company, now) : [];
  }

  /**
   * When something may start, as far as time decides; now or earlier: at once. Infinity: not before something else
   * happens.
   */
  nextStart(now: number): number {
    if (this.isHeld(now)) return Number.POSITIVE_INFINITY;
    if (this.#state.phase === 'closed') return this.#hasRoom(now) ? this.queue.nextDue() : Number.POSITIVE_INFINITY;
    return this.#probing ? Number.POSITIVE_INFINITY : Math.max(this.#state.probeAt, this.queue.nextProbe());
  }

  /**
   * When to look at it again: something may start, something is due outside, a hold ends, or an endpoint that is away
   * is to be looked through.
   */
  nextWake(now: number): number {
    const start = this.nextStart(now);
    const outside = this.queue.outsideAt();
    const away = this.#isAway(now) && this.queue.nextDue() < Number.POSITIVE_INFINITY;
    return Math.min(
      start,
      this.#state.hold?.until ?? Number.POSITIVE_INFINITY,
      outside <= now ? Number.POSITIVE_INFINITY : outside,
      away ? this.#lookAt : Number.POSITIVE_INFINITY,
    );
  }

  /** Whether it is time to look through the queue of an endpoint that is away; says when the next time is. */
  isLookDue(now: number): boolean {
    if (!this.#isAway(now) || now < this.#lookAt) return false;
    this.#lookAt = now + LOOK_THROUGH;
    return true;
  }

  /** Nothing waits, nothing is known that must be remembered: the lane may be forgotten. */
  isSpare(now: number): boolean {
    const { phase, hold } = this.#state;
    return this.isEmpty() && phase === 'closed' && !hold && now - this.#usedAt > 600_000;
  }

  /** Nothing waits and nothing is taken up. */
  isEmpty(): boolean {
    return this.#preparing + this.#turns.length + this.#posting === 0 && this.queue.isEmpty();
  }

  /**
   * What waits for it waits for the endpoint and not for us: it is away, held, in doubt, or more is ready than it
   * takes, and not just because many became ready at one time.
   */
  holdsUp(now: number): boolean {
    if (this.inDoubt || this.isHeld(now)) return true;
    if (this.#wantsMore()) this.#aheadFrom = Number.POSITIVE_INFINITY;
    else this.#aheadFrom = Math.min(this.#aheadFrom, now);
    return now - this.#aheadFrom >= AHEAD;
  }

  /** An attempt is being made ready. Whether it is a probe of an endpoint that is away. */
  prepare(now: number): boolean {
    if (this.#posting === 0) {
      const places = afterIdle(this.#state.places, now - this.#usedAt, this.#bounds);
      this.#state = { ...this.#state, places };
    }
    this.#usedAt = now;
    this.#preparing++;
    const probe = this.#state.phase !== 'closed';
    if (probe) this.#probing = true;
    return probe;
  }

  /** An attempt that was being made ready ended before it was. */
  unprepare(): void {
    this.#preparing--;
  }

  /** An attempt is ready: `turn` is called when it has a place, or is to ask in vain for one. */
  wait(turn: () => void): void {
    this.#preparing--;
    this.#turns.push(turn);
  }

  /** Calls the first that waits if there is a place for it. Whether there is one for another. */
  callNext(): boolean {
    if (this.#hasPlace()) this.#turns.shift()?.();
    return this.#turns.length > 0 && this.#hasPlace();
  }

  /** Calls all that wait, to be turned back. */
  callAll(): void {
    for (const turn of this.#turns.splice(0)) turn();
  }

  /** Whether one that waits may be called. When the endpoint was found to be away, all of them are, at once. */
  hasTurn(): boolean {
    if (this.#state.phase !== 'closed') this.callAll();
    return this.#turns.length > 0 && this.#hasPlace();
  }

  /** An attempt sets out. Whether it took the last place. */
  setOut(): boolean {
    this.#posting++;
    return this.#posting >= this.places;
  }

  /** An attempt has come back. */
  comeBack(): void {
    this.#posting--;
  }

  /** The probe is over, however far it came. */
  endProbe(): void {
    this.#probing = false;
  }

  /** Learns from an attempt. */
  learn(lesson: Lesson, occasion: Omit<Occasion, 'bounds'>): Change | null {
    const { state, change } = learn(this.#state, lesson, { ...occasion, bounds: this.#bounds });
    this.#state = state;
    if (change === 'closed' || change === 'resumed') this.#pulling = this.queue.pull(occasion.now);
    return change;
  }

  /** Remembers how an attempt ended. */
  note(result: AttemptSummary, at: number): void {
    this.#last = { result, at };
  }

  /** Whether its account holds it now. */
  isHeld(now: number): boolean {
    const { hold } = this.#state;
    return hold !== null && now < hold.until;
  }

  /** Its account holds it for so long: nothing sets out, and what is ready is turned back. */
  hold(ms: number, now: number): void {
    const { hold } = this.#state;
    this.#state = { ...this.#state, hold: { since: hold?.since ?? now, until: now + ms } };
    this.callAll();
  }

  /** Its account no longer holds it. */
  release(): void {
    this.#state = { ...this.#state, hold: null };
  }

  /** Whether a delivery has passed since. */
  hasPassedSince(at: number): boolean {
    return this.#state.passedAt > at;
  }

  /**
   * What the spool is to keep of it from now on; undefined when that is nothing new. `shift` is wall time minus steady
   * time.
   */
  newMemory(shift: number): string | null | undefined {
    const memory = toMemory(this.#state, shift);
    if (memory === this.#kept) return undefined;
    this.#kept = memory;
    return memory;
  }

  /** Takes what was read from the spool; undefined: it could not be read. `full`: there may be more. */
  load(found: readonly Waiting[] | undefined, full: boolean, now: number): void {
    const pulled = this.#pulling && found ? found.map((one) => (mayBeEarly(one) ? { ...one, due: now } : one)) : found;
    this.queue.endLoad(pulled, full, now);
    if (found && !full) this.#pulling = false;
    this.#lookAt = now;
  }

  /** Somebody changed the queue by hand: what is held may be wrong, and what was thought of the endpoint too. */
  doubt(now: number): void {
    this.queue.forget(now);
    this.#state = askNow(this.#state, now);
  }

  /** Whether one more that is ready may set out now. */
  #hasPlace(): boolean {
    return this.#state.phase !== 'closed' || this.#posting < this.places;
  }

  /**
   * Whether one more attempt may start. Making it ready can take seconds (the name servers of its sender may be slow)
   * and costs the endpoint nothing, so more are made ready than set out; many more once the endpoint has shown that it
   * answers, for then it should never wait for us.
   */
  #hasRoom(now: number): boolean {
    if (this.isHeld(now)) return false;
    if (this.#state.phase !== 'closed') return mayProbe(this.#state, now, this.#probing);
    return this.#preparing < (this.#answers() ? PREPARED : 2 * this.places) && this.#wantsMore();
  }

  /** Whether less is ready and on its way than should be. */
  #wantsMore(): boolean {
    const { places } = this;
    const spare = this.#answers() ? Math.min(places, PREPARED) : 0;
    return this.#turns.length + this.#posting < places + spare;
  }

  /** Whether what waits may have to end without an attempt. */
  #isAway(now: number): boolean {
    return this.#state.phase !== 'closed' || this.isHeld(now);
  }

  #answers(): boolean {
    const { passedAt, since, misses } = this.#state;
    return passedAt >= since && misses === 0;
  }
}

/** An attempt that came back, and when (milliseconds since 1970). */
export interface LastAttempt {
  readonly result: AttemptSummary;
  readonly at: number;
}

/** A waiting delivery as the dispatcher holds it. */
export interface Waiting {
  readonly delivery: Delivery;
  /** Made so far. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly budgetFrom: number;
  readonly parked: boolean;
  /** It is to share no attempt: with others, it could not be made ready. */
  readonly alone: boolean;
  /**
   * Somebody chose its time and may choose another until it is sent: the store has the last word
   * (sending/scheduling.ts).
   */
  readonly scheduled: boolean;
  /**
   * Its time is somebody's wish and no backoff of ours: no probe takes it before that, and it may be as far off as they
   * like.
   */
  readonly timed: boolean;
  /** In milliseconds that only grow, so that a wall clock that is set cannot put it off. */
  readonly due: number;
  /** When it last failed, as far as this process knows (milliseconds that only grow); Infinity: never. */
  readonly failedAt: number;
}

/** Now: milliseconds since 1970, and milliseconds that only grow. */
export interface Times {
  readonly wall: number;
  readonly steady: number;
}

/** A delivery that was accepted a moment ago. */
export function toFresh(delivery: Delivery, now: Times, { timed }: Pick<Road, 'timed'>): Waiting {
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

/** Whether it may be tried before its time, because its endpoint is back or to see whether it is. */
export function mayBeEarly(waiting: Waiting): boolean {
  return !waiting.parked && !waiting.timed;
}

/**
 * A delivery read from the spool. Its due time is wall time; one further off than any wait we give was written by a
 * wrong clock.
 */
export function toWaiting(queued: QueuedDelivery, now: Times, road: Pick<Road, 'timed'>): Waiting {
  const wait = queued.dueAt - now.wall;
  const { attempts, budgetFrom, parked } = queued;
  const timed = road.timed && attempts === 0;
  const wrong = !timed && wait > longestWait(queued);
  // One that was replayed looks the same; the store has no row of it then.
  const scheduled = timed && budgetFrom > queued.createdAt;
  const due = now.steady + (wait <= 0 || wrong ? 0 : wait);
  const failedAt = Number.POSITIVE_INFINITY;
  return { delivery: queued, attempts, budgetFrom, parked, alone: false, scheduled, timed, due, failedAt };
}
