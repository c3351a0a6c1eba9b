import type { DeliveryKind, Endpoint } from '../delivery.ts';
import type { Road } from '../road.ts';
import type { AttemptSummary, Lesson } from '../settle.ts';
import {
  askNow,
  type BreakerState,
  begun,
  type Change,
  failsOnly,
  fromMemory,
  type HeldBy,
  isSuspect,
  type LastAttempt,
  learn,
  mayProbe,
  type Occasion,
  probed,
  probePosition,
  probeTime,
  readMemory,
  toMemory,
} from './breaker.ts';
import { afterIdle, type ConcurrencyBounds } from './concurrency-limit.ts';
import { createEndpointQueue, type EndpointQueue } from './endpoint-queue.ts';
import { mayBeEarly, type Times, type Waiting } from './waiting.ts';

/** Attempts in preparation at one time for one endpoint. */
const PREPARED = 32;
/** Milliseconds after which an endpoint with more ready attempts than its limit counts as the cause of the delay. */
const AHEAD = 250;
/** A suspect that is due within this time anyway is not made due when its endpoint is back. */
const SUSPECT_WAIT = 40_000;
/** How often the queue of an unavailable endpoint is searched for expired deliveries, in milliseconds. */
const LOOK_THROUGH = 3_600_000;

/**
 * The dispatcher's state of one endpoint: its waiting deliveries, its attempts in flight, and its breaker. All changes
 * to a lane are methods here, except `wakeAt`, which belongs to the agenda.
 */
export class Lane implements Endpoint {
  readonly account: string;
  readonly url: string;
  readonly kind: DeliveryKind;
  /** For the log: never the URL, which may contain secrets. */
  readonly host: string;
  readonly queue: EndpointQueue = createEndpointQueue();
  wakeAt = Number.POSITIVE_INFINITY;
  readonly #bounds: ConcurrencyBounds;
  #state: BreakerState;
  /** The state last saved on the spool. */
  #kept: string | null;
  /** Attempts in preparation: reading, parsing, signing. */
  #preparing = 0;
  /** Prepared attempts that wait for the limit of the endpoint. */
  readonly #turns: (() => void)[] = [];
  /** Attempts in flight. */
  #posting = 0;
  #probing = false;
  /** True while the outside deliveries of a recovered endpoint are loaded: they are due, whatever their time. */
  #pulling = false;
  /** Since when more attempts have been ready than its limit; Infinity: not now. */
  #aheadFrom = Number.POSITIVE_INFINITY;
  #lookAt: number;
  #usedAt: number;
  #last: LastAttempt | null = null;

  /** Restores the state that the spool saved for the endpoint. */
  constructor(
    { account, url, kind }: Endpoint,
    bounds: ConcurrencyBounds,
    memory: string | null,
    { wall, steady }: Times,
  ) {
    this.account = account;
    this.url = url;
    this.kind = kind;
    this.host = URL.parse(url)?.host ?? '';
    this.#bounds = bounds;
    this.#state = fromMemory(memory, wall - steady, steady, bounds);
    this.#kept = memory;
    this.#last = readMemory(memory)?.last ?? null;
    this.#lookAt = steady;
    this.#usedAt = steady;
  }

  /** closed: deliveries flow · open: failing · paused: answered 410. */
  get phase(): BreakerState['phase'] {
    return this.#state.phase;
  }

  /** All that is known of the endpoint. */
  get state(): BreakerState {
    return this.#state;
  }

  /** The last attempt that ended; of an endpoint that is up, since the lane was created. */
  get last(): LastAttempt | null {
    return this.#last;
  }

  /** The number of attempts that are being prepared, and of ready ones. */
  get pendingAttempts(): { readonly preparing: number; readonly ready: number } {
    return { preparing: this.#preparing, ready: this.#turns.length };
  }

  /** The limit that `concurrency` never exceeds. */
  get maxConcurrency(): number {
    return this.#bounds.most;
  }

  /** Whether the probe of an unavailable endpoint is running. */
  get probing(): boolean {
    return this.#probing;
  }

  /** Attempts in flight. */
  get posting(): number {
    return this.#posting;
  }

  /** The limit of attempts in flight. */
  get concurrency(): number {
    return this.#state.phase === 'closed' ? Math.floor(this.#state.concurrency.limit) : 1;
  }

  /**
   * Whether the endpoint is unavailable, did not answer last time, or only fails: its attempts may then take the full
   * timeout, and its deliveries wait for it and not for this host. All such endpoints together use at most half of the
   * capacity, so that fifty of them cannot block the mail of all others.
   */
  get inDoubt(): boolean {
    return this.#state.phase !== 'closed' || failsOnly(this.#state);
  }

  /** Takes a delivery that may start now from the queue. */
  takeNext(now: number): Waiting | undefined {
    if (!this.#hasRoom(now)) return undefined;
    if (this.#state.phase === 'closed') return this.queue.take(now);
    return this.queue.takeProbe(now, this.#isSuspect, probePosition(this.#state));
  }

  /** Takes the deliveries that share the attempt of `first` from the queue. A probe goes alone. */
  takeAlong(first: Waiting, now: number, { shareRuleOf }: Pick<Road, 'shareRuleOf'>): readonly Waiting[] {
    if (!shareRuleOf || this.#state.phase !== 'closed' || this.queue.nextDue() > now) return [];
    const company = shareRuleOf(first);
    return company ? this.queue.takeWith(company, now) : [];
  }

  /** The time from which something may start; `now` or earlier: immediately. Infinity: only after another event. */
  nextStart(now: number): number {
    if (this.isHeld(now)) return Number.POSITIVE_INFINITY;
    if (this.#state.phase === 'closed')
      return this.#wantsAttempt() ? Math.max(this.#state.restUntil, this.queue.nextDue()) : Number.POSITIVE_INFINITY;
    if (this.#probing) return Number.POSITIVE_INFINITY;
    return Math.max(probeTime(this.#state, this.#hasInnocent(now)), this.queue.nextProbe());
  }

  /**
   * The next time at which a delivery may start or is due outside, a hold ends, or an unavailable endpoint must be
   * searched for expired deliveries.
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

  /** Whether to search an unavailable endpoint for expired deliveries now; if so, schedules the next search. */
  isLookDue(now: number): boolean {
    if (!this.#isAway(now) || now < this.#lookAt) return false;
    this.#lookAt = now + LOOK_THROUGH;
    return true;
  }

  /** Whether the lane can be dropped: empty, closed and unused for ten minutes. */
  isSpare(now: number): boolean {
    const { phase, hold } = this.#state;
    return this.isEmpty() && phase === 'closed' && !hold && now - this.#usedAt > 600_000;
  }

  /** Whether nothing waits and nothing is in progress. */
  isEmpty(): boolean {
    return this.#preparing + this.#turns.length + this.#posting === 0 && this.queue.isEmpty();
  }

  /**
   * Whether its deliveries wait for the endpoint and not for this host: it is unavailable, held, in doubt, or has had
   * more attempts ready than its limit for some time (not just in a burst).
   */
  isBottleneck(now: number): boolean {
    if (this.inDoubt || this.isHeld(now)) return true;
    if (this.#wantsMore()) this.#aheadFrom = Number.POSITIVE_INFINITY;
    else this.#aheadFrom = Math.min(this.#aheadFrom, now);
    return now - this.#aheadFrom >= AHEAD;
  }

  /** Begins to prepare an attempt. Returns whether it is a probe of an unavailable endpoint. */
  prepare(now: number): boolean {
    if (this.#posting === 0) {
      const concurrency = afterIdle(this.#state.concurrency, now - this.#usedAt, this.#bounds);
      this.#state = { ...this.#state, concurrency };
    }
    this.#state = begun(this.#state, now);
    this.#usedAt = now;
    this.#preparing++;
    const probe = this.#state.phase !== 'closed';
    if (probe) this.#probing = true;
    return probe;
  }

  /** Preparation ended without a ready attempt. */
  endPreparation(): void {
    this.#preparing--;
  }

  /** An attempt is ready: `turn` is called when it may be sent, or must be turned back. */
  wait(turn: () => void): void {
    this.#preparing--;
    this.#turns.push(turn);
  }

  /** Calls the first waiting attempt if the limit allows. Returns whether another may follow. */
  callNext(): boolean {
    if (this.#hasSlot()) this.#turns.shift()?.();
    return this.#turns.length > 0 && this.#hasSlot();
  }

  /** Calls all waiting attempts, which then turn back. */
  callAll(): void {
    for (const turn of this.#turns.splice(0)) turn();
  }

  /** Whether a waiting attempt can be called. If the endpoint was found unavailable, all of them are called at once. */
  hasTurn(): boolean {
    if (this.#state.phase !== 'closed') this.callAll();
    return this.#turns.length > 0 && this.#hasSlot();
  }

  /** Counts an attempt as sent. Returns whether that reaches the limit. */
  beginAttempt(): boolean {
    this.#posting++;
    return this.#posting >= this.concurrency;
  }

  /** Counts an attempt as ended. */
  endAttempt(): void {
    this.#posting--;
  }

  /** The probe ended, at whatever stage. */
  endProbe(now: number): void {
    this.#probing = false;
    if (this.#state.phase !== 'closed') this.#state = probed(this.#state, now);
  }

  /** Updates the state with the result of an attempt. */
  learn(lesson: Lesson, occasion: Omit<Occasion, 'bounds'>): Change | null {
    const before = this.#state;
    const { state, change } = learn(before, lesson, { ...occasion, bounds: this.#bounds });
    this.#state = state;
    // In case one message was the cause, the others go first.
    const waits = ({ delivery, due }: Waiting) => due - occasion.now < SUSPECT_WAIT && isSuspect(before, delivery);
    if (change === 'closed' || change === 'resumed') this.#pulling = this.queue.makeAllDue(occasion.now, waits);
    return change;
  }

  /** Records how an attempt ended. */
  note(result: AttemptSummary, at: number): void {
    this.#last = { result, at };
  }

  /** Whether it is held now. */
  isHeld(now: number): boolean {
    const { hold } = this.#state;
    return hold !== null && now < hold.until;
  }

  /** Starts or extends a hold: nothing is sent, and attempts that are ready are turned back. */
  hold(by: HeldBy, ms: number, now: number): void {
    const { hold } = this.#state;
    this.#state = { ...this.#state, hold: { by, since: hold?.since ?? now, until: now + ms } };
    this.callAll();
  }

  /** Ends the hold. */
  release(): void {
    this.#state = { ...this.#state, hold: null };
  }

  /** Whether a delivery has passed since `at`. */
  hasPassedSince(at: number): boolean {
    return this.#state.passedAt > at;
  }

  /** Returns the state that the spool must save now; undefined if unchanged. `shift`: wall minus monotonic time. */
  newMemory(shift: number): string | null | undefined {
    const memory = toMemory(this.#state, shift, this.#last);
    if (memory === this.#kept) return undefined;
    this.#kept = memory;
    return memory;
  }

  /** Adds the deliveries loaded from the spool; undefined: the load failed. `full`: there may be more. */
  load(found: readonly Waiting[] | undefined, full: boolean, now: number): void {
    const pulled = this.#pulling && found ? found.map((one) => (mayBeEarly(one) ? { ...one, due: now } : one)) : found;
    this.queue.endLoad(pulled, full, now);
    if (found && !full) this.#pulling = false;
    this.#lookAt = now;
  }

  /** A delivery waited behind another until now, and may have expired meanwhile. */
  addTurn(waiting: Waiting, now: number): void {
    this.queue.addFresh(waiting, now);
    this.#lookAt = now;
  }

  /** After a manual change, the deliveries in memory and the state of the endpoint may be wrong: reload and probe. */
  invalidate(now: number): void {
    this.queue.forget(now);
    this.#state = askNow(this.#state, now);
  }

  /** Whether one more ready attempt may be sent now. */
  #hasSlot(): boolean {
    return this.#state.phase !== 'closed' || this.#posting < this.concurrency;
  }

  /**
   * Whether one more attempt may start. Preparation can take seconds (the name servers of the sender may be slow) and
   * costs the endpoint nothing, so more attempts are prepared than sent; many more once the endpoint has answered,
   * since it should then never wait for Postern.
   */
  #hasRoom(now: number): boolean {
    if (this.isHeld(now)) return false;
    if (this.#state.phase !== 'closed') return mayProbe(this.#state, now, this.#probing, this.#hasInnocent(now));
    return now >= this.#state.restUntil && this.#wantsAttempt();
  }

  #wantsAttempt(): boolean {
    return this.#preparing < (this.#answers() ? PREPARED : 2 * this.concurrency) && this.#wantsMore();
  }

  /** Whether a message that has not failed waits, which can tell a failing endpoint from failing messages. */
  #hasInnocent(now: number): boolean {
    const { opinionAt, probeAt } = this.#state;
    return opinionAt < probeAt && this.queue.hasInnocent(now, this.#isSuspect);
  }

  readonly #isSuspect = ({ delivery }: Waiting): boolean => isSuspect(this.#state, delivery);

  /** Whether more attempts should be ready or in flight. */
  #wantsMore(): boolean {
    const { concurrency } = this;
    const spare = this.#answers() ? Math.min(concurrency, PREPARED) : 0;
    return this.#turns.length + this.#posting < concurrency + spare;
  }

  /** Whether its deliveries may expire without an attempt. */
  #isAway(now: number): boolean {
    return this.#state.phase !== 'closed' || this.isHeld(now);
  }

  #answers(): boolean {
    const { passedAt, since } = this.#state;
    return passedAt >= since && !failsOnly(this.#state);
  }
}
