import { z } from 'zod';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/clock.ts';
import type { Delivery } from '../delivery.ts';
import type { AttemptSummary, Lesson } from '../settle.ts';
import { type ConcurrencyBounds, type ConcurrencyLimit, newLimit, updateLimit } from './concurrency-limit.ts';

// The breaker opens
// - after MISSES consecutive attempts without an answer (no connection, or none in time),
// - at FAILED_SHARE failures among at least RESULTS results in five minutes, or in eight seconds,
// - and when nothing has passed between at least RUN failures over RUN_MS, however much passed before.
const MISSES = 5;
const FAILED_SHARE = 0.7;
const RESULTS = 10;
const RUN = 5;
const RUN_MS = 5000;
/** Failures further apart than this do not form a run. */
const RUN_GAP = MINUTE_MS;
// Results are counted in two halves: the current one and the one before. So a result counts for 2.5 to 5 minutes, or
// for 4 to 8 seconds: past successes must not hide a current failure.
const LONG_HALF = 2.5 * MINUTE_MS;
const SHORT_HALF = 4000;
/** After RESULTS failures in a run, one attempt is begun in this time, until something passes or the breaker opens. */
const RUN_REST = 100;
/** Failed deliveries of a run that are remembered. */
const SUSPECTS = 32;
const PROBE_GAP = 30_000;
const LATER_PROBE_GAP = 2 * MINUTE_MS;
const LATER = 6 * HOUR_MS;
const PROBE_JITTER = 0.2;
/** At least this long from the end of a probe to the next. */
const PROBE_AGAIN = 1000;
// If a message may be the cause of the failures, another one may go before the next probe: at once, then after 1 s, 2 s
// and so on, up to SECOND_OPINION_LATEST.
const SECOND_OPINION = 1000;
const SECOND_OPINION_LATEST = 16_000;
/** An endpoint that answered 410 is probed once a day, in case that was a mistake. */
const PAUSE_GAP = DAY_MS;
/** The longest time for which an endpoint may be held. */
export const LONGEST_HOLD = 7 * DAY_MS;

interface Half {
  readonly passed: number;
  readonly failed: number;
}

/** Results of a recent time: of the current half, which began at `from`, and of the half before. */
interface Window {
  readonly from: number;
  readonly half: Half;
  readonly halfBefore: Half;
}

/** Failures between which nothing passed. */
interface Run {
  readonly failed: number;
  readonly from: number;
  readonly last: number;
  /** Whether messages may have caused some of them. */
  readonly doubtful: boolean;
  /** The messages that may be the cause, the latest last; without those of shared attempts. */
  readonly suspects: readonly Attempted[];
}

/** The delivery of an attempt. */
type Attempted = Pick<Delivery, 'id' | 'messageId'>;

/** Who paused an endpoint. The account cannot end a pause of the operator. */
export const HOLDERS = ['account', 'operator'] as const;
export type HeldBy = (typeof HOLDERS)[number];

/** A pause of an endpoint. */
export interface EndpointHold {
  readonly by: HeldBy;
  readonly since: number;
  readonly until: number;
  /** Set if it is from a version whose pauses were not in the store. */
  readonly local?: true;
}

/** The state of an endpoint. Times are milliseconds of the monotonic clock. */
export interface BreakerState {
  /** closed: deliveries flow · open: failing, one probe at a time · paused: answered 410, one probe a day. */
  readonly phase: 'closed' | 'open' | 'paused';
  readonly since: number;
  /** When the next probe may be sent, unless the phase is closed. */
  readonly probeAt: number;
  /** The limit of deliveries in flight while closed. */
  readonly concurrency: ConcurrencyLimit;
  /** Consecutive attempts without an answer. */
  readonly misses: number;
  readonly run: Run;
  readonly long: Window;
  readonly short: Window;
  /** While closed: when the next attempt may begin. */
  readonly restUntil: number;
  /** While open: when a message that did not fail lately may be sent; Infinity: only as the next probe. */
  readonly opinionAt: number;
  /** The delay of the second opinion after the next failure. */
  readonly opinionGap: number;
  /** When a delivery last passed. */
  readonly passedAt: number;
  /** Set while it is held. Attempts in flight still count for the breaker. */
  readonly hold: EndpointHold | null;
}

export interface Occasion {
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  /** The attempt was the probe of an endpoint that is not closed. */
  readonly probe: boolean;
  /** When it was sent, whether that reached the limit, and how late our event loop is, in milliseconds. */
  readonly sentAt: number;
  readonly full: boolean;
  readonly lag: number;
  /** The bounds of its limit. */
  readonly bounds: ConcurrencyBounds;
  /** Absent if several deliveries shared the attempt. */
  readonly attempted?: Attempted | undefined;
}

export type Change = 'opened' | 'closed' | 'paused' | 'resumed';

export interface Learned {
  readonly state: BreakerState;
  readonly change: Change | null;
}

const EMPTY: Half = { passed: 0, failed: 0 };
const NO_RUN: Run = { failed: 0, from: 0, last: Number.NEGATIVE_INFINITY, doubtful: false, suspects: [] };
const NEVER = Number.POSITIVE_INFINITY;

export function newEndpoint(now: number, { start, most }: ConcurrencyBounds): BreakerState {
  return {
    phase: 'closed',
    since: now,
    probeAt: now,
    concurrency: newLimit(Math.min(start, most)),
    misses: 0,
    run: NO_RUN,
    long: { from: now, half: EMPTY, halfBefore: EMPTY },
    short: { from: now, half: EMPTY, halfBefore: EMPTY },
    restUntil: now,
    opinionAt: NEVER,
    opinionGap: 0,
    passedAt: Number.NEGATIVE_INFINITY,
    hold: null,
  };
}

/** Whether only failures came from it lately. */
export function failsOnly({ misses, run }: BreakerState): boolean {
  return misses > 0 || run.failed >= RUN;
}

/** Whether this message failed in the current run of failures, and may be its cause. */
export function isSuspect({ run }: BreakerState, { messageId }: Pick<Attempted, 'messageId'>): boolean {
  return run.suspects.some((suspect) => suspect.messageId === messageId);
}

/** Whether a probe may be sent now to an unavailable endpoint; `other`: of a message that did not fail lately. */
export function mayProbe(state: BreakerState, now: number, probing: boolean, other = false): boolean {
  return state.phase !== 'closed' && !probing && now >= probeTime(state, other);
}

/** When a probe may be sent, which may be earlier for a message that did not fail lately. */
export function probeTime({ probeAt, opinionAt }: BreakerState, other: boolean): number {
  return other ? Math.min(probeAt, opinionAt) : probeAt;
}

/** Learns from an attempt. While the endpoint is not closed, failures count only for probes (except a 410). */
export function learn(before: BreakerState, lesson: Lesson, occasion: Occasion): Learned {
  if (lesson.kind === 'passed') return learnPass(before, occasion);
  if (lesson.kind === 'gone') return pause(before, occasion);
  if (lesson.kind === 'present')
    return before.phase === 'closed' ? unchanged({ ...before, misses: 0, run: NO_RUN }) : learnPass(before, occasion);
  if (before.phase === 'paused')
    return unchanged(occasion.probe ? { ...before, probeAt: occasion.now + PAUSE_GAP } : before);
  if (before.phase === 'open') {
    if (!occasion.probe) return unchanged(before);
    const after = { ...before, run: longer(before.run, lesson, occasion) };
    return unchanged({ ...after, ...nextProbe(after, lesson, occasion, before.run) });
  }
  return learnFailure(before, lesson, occasion);
}

/** An attempt is begun. While all fail, the next one is begun a little later. */
export function begun(state: BreakerState, now: number): BreakerState {
  return state.run.failed >= RESULTS ? { ...state, restUntil: now + RUN_REST } : state;
}

/**
 * The position in the queue from which to take a probe, from 0 to 1. If messages may be the cause of the failures, it
 * is seldom near those that failed (the golden ratio spreads evenly).
 */
export function probePosition({ run }: BreakerState): number {
  return run.doubtful ? (run.failed * 0.618034) % 1 : 0;
}

/** A probe ended, perhaps unsent because this host failed to prepare it: delays the next one. */
export function probed(state: BreakerState, now: number): BreakerState {
  const next = now + PROBE_AGAIN;
  return { ...state, probeAt: Math.max(state.probeAt, next), opinionAt: Math.max(state.opinionAt, next) };
}

/** Allows a probe now, after an operator changed the queue by hand. */
export function askNow(state: BreakerState, now: number): BreakerState {
  return state.phase === 'closed' ? state : { ...state, probeAt: now };
}

function learnPass(before: BreakerState, occasion: Occasion): Learned {
  const { now, bounds } = occasion;
  if (before.phase !== 'closed') {
    // Restarts with one at a time, whatever the limit was before.
    const state = { ...newEndpoint(now, bounds), concurrency: newLimit(1), passedAt: now, hold: before.hold };
    return { state, change: before.phase === 'paused' ? 'resumed' : 'closed' };
  }
  return unchanged({
    ...before,
    long: counted(before.long, LONG_HALF, now, 1, 0),
    short: counted(before.short, SHORT_HALF, now, 1, 0),
    concurrency: updateLimit(before.concurrency, { ...occasion, kind: 'ok' }, bounds),
    misses: 0,
    run: NO_RUN,
    restUntil: now,
    passedAt: now,
  });
}

function learnFailure(before: BreakerState, lesson: Lesson, occasion: Occasion): Learned {
  const { now, attempted } = occasion;
  if (lesson.aside) return unchanged(before);
  const kind = lesson.strained || lesson.kind === 'unanswered' ? 'strained' : 'failed';
  const concurrency = updateLimit(before.concurrency, { ...occasion, kind }, occasion.bounds);
  // Repeated failures of one message only prove that nothing has passed since.
  const isAgain = lesson.suspect === true && isIn(before.run, attempted);
  const state: BreakerState = isAgain
    ? { ...before, concurrency, run: { ...before.run, last: now } }
    : {
        ...before,
        concurrency,
        misses: lesson.kind === 'unanswered' ? before.misses + 1 : 0,
        run: longer(before.run, lesson, occasion),
        long: counted(before.long, LONG_HALF, now, 0, 1),
        short: counted(before.short, SHORT_HALF, now, 0, 1),
      };
  if (!isDown(state, now)) return unchanged(state);
  const open: BreakerState = { ...state, phase: 'open', since: now };
  return { state: { ...open, ...nextProbe(open, lesson, occasion, before.run) }, change: 'opened' };
}

/** Adds a failure to a run. */
function longer(run: Run, { suspect }: Lesson, { now, attempted }: Occasion): Run {
  const isNew = now - run.last > RUN_GAP;
  return {
    failed: isNew ? 1 : run.failed + 1,
    from: isNew ? now : run.from,
    last: now,
    doubtful: run.doubtful || suspect === true,
    suspects:
      suspect && attempted && !isIn(run, attempted) ? [...run.suspects, attempted].slice(-SUSPECTS) : run.suspects,
  };
}

const isIn = ({ suspects }: Run, attempted: Attempted | undefined): boolean =>
  suspects.some(({ id }) => id === attempted?.id);

function pause(before: BreakerState, { now }: Occasion): Learned {
  if (before.phase === 'paused') return unchanged({ ...before, probeAt: now + PAUSE_GAP });
  return { state: { ...before, phase: 'paused', since: now, probeAt: now + PAUSE_GAP }, change: 'paused' };
}

const unchanged = (state: BreakerState): Learned => ({ state, change: null });

function counted(
  { from, half, halfBefore }: Window,
  span: number,
  now: number,
  passed: number,
  failed: number,
): Window {
  const halves = Math.floor((now - from) / span);
  if (halves === 0) return { from, half: { passed: half.passed + passed, failed: half.failed + failed }, halfBefore };
  return { from: from + halves * span, half: { passed, failed }, halfBefore: halves === 1 ? half : EMPTY };
}

function isDown({ misses, run, long, short }: BreakerState, now: number): boolean {
  if (misses >= MISSES || mostlyFails(long)) return true;
  // A burst proves nothing: failures of both halves.
  if (short.halfBefore.failed > 0 && mostlyFails(short)) return true;
  return run.failed >= RUN && now - run.from >= RUN_MS;
}

function mostlyFails({ half, halfBefore }: Window): boolean {
  const failed = half.failed + halfBefore.failed;
  const all = failed + half.passed + halfBefore.passed;
  return all >= RESULTS && failed / all >= FAILED_SHARE;
}

/** When to send a probe, and a second opinion, after a failure. Failures before the breaker opened give none. */
function nextProbe(
  { since, run, opinionAt, opinionGap }: BreakerState,
  { leaveAlone }: Lesson,
  { now, jitter, attempted }: Occasion,
  before: Run,
): Pick<BreakerState, 'probeAt' | 'opinionAt' | 'opinionGap'> {
  const gap = now - since >= LATER ? LATER_PROBE_GAP : PROBE_GAP;
  const probeAt = now + Math.max(gap * (1 - PROBE_JITTER + 2 * PROBE_JITTER * jitter), leaveAlone);
  const asksOthers = run.doubtful && leaveAlone === 0 && opinionGap <= SECOND_OPINION_LATEST;
  if (!asksOthers) return { probeAt, opinionAt: NEVER, opinionGap };
  if (now > since && isIn(before, attempted)) return { probeAt, opinionAt, opinionGap };
  return { probeAt, opinionAt: now + opinionGap, opinionGap: Math.max(SECOND_OPINION, 2 * opinionGap) };
}

const memorySchema = z.object({
  phase: z.enum(['closed', 'open', 'paused']),
  since: z.number(),
  probeAt: z.number(),
  // Without a holder it is from a version in which only accounts could hold.
  hold: z
    .object({
      by: z.enum(HOLDERS).default('account'),
      since: z.number(),
      until: z.number(),
      // Absent if it is from a version whose pauses were not in the store.
      shared: z.boolean().default(false),
    })
    .nullish(),
  last: z
    .object({
      at: z.number(),
      result: z.discriminatedUnion('kind', [
        z.object({ kind: z.literal('answered'), status: z.number(), durationMs: z.number() }),
        z.object({ kind: z.literal('unanswered'), error: z.string(), durationMs: z.number() }),
      ]),
    })
    .nullish()
    .catch(null),
});

/** An attempt that ended, and when (milliseconds since 1970). */
export interface LastAttempt {
  readonly result: AttemptSummary;
  readonly at: number;
}

/** The saved state of an endpoint, in wall time. */
export type EndpointMemory = z.infer<typeof memorySchema>;

/**
 * Returns the state that must survive a restart, as text for the spool, in wall time; null while the endpoint is
 * closed and not held. `shift` is wall time minus `now`; `last` is for the reason why mail waits.
 */
export function toMemory(
  { phase, since, probeAt, hold }: BreakerState,
  shift: number,
  last: LastAttempt | null,
): string | null {
  if (phase === 'closed' && !hold) return null;
  const wall = (time: number) => Math.round(time + shift);
  const kept = { phase, since: wall(since), probeAt: wall(probeAt), ...(last && { last }) };
  if (!hold) return JSON.stringify(kept);
  const { by, since: from, until, local } = hold;
  return JSON.stringify({
    ...kept,
    hold: { by, since: wall(from), until: toWholeSecond(wall(until)), ...(!local && { shared: true }) },
  });
}

/** The end of a hold is shown in seconds; converted between two clocks, it may fall a millisecond short of one. */
export function toWholeSecond(time: number): number {
  return Math.round(time / 1000) * 1000;
}

/**
 * Restores the saved state. Unreadable text counts as none, and a wrong clock delays a probe by at most 24 hours
 * (paused) or 6 hours (open), and the end of a hold by at most the longest one.
 */
export function fromMemory(memory: string | null, shift: number, now: number, bounds: ConcurrencyBounds): BreakerState {
  const fresh = newEndpoint(now, bounds);
  const kept = readMemory(memory);
  if (!kept) return fresh;
  const hold = toHold(kept, shift, now);
  if (kept.phase === 'closed') return { ...fresh, hold };
  const longest = kept.phase === 'paused' ? PAUSE_GAP : LATER;
  const probeAt = Math.min(Math.max(kept.probeAt - shift, now), now + longest);
  return { ...fresh, phase: kept.phase, since: Math.min(kept.since - shift, now), probeAt, hold };
}

/** Restores a hold; null if it is over. */
function toHold({ hold }: EndpointMemory, shift: number, now: number): EndpointHold | null {
  if (!hold || hold.until - shift <= now) return null;
  return {
    by: hold.by,
    since: Math.min(hold.since - shift, now),
    until: Math.min(hold.until - shift, now + LONGEST_HOLD),
    ...(!hold.shared && { local: true }),
  };
}

/** Parses the saved state; undefined if there is none or it is unreadable. */
export function readMemory(memory: string | null): EndpointMemory | undefined {
  if (memory === null) return undefined;
  try {
    return memorySchema.safeParse(JSON.parse(memory)).data;
  } catch {
    return undefined;
  }
}
