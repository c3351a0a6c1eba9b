import { z } from 'zod';
import type { AttemptSummary, Lesson } from '../settle.ts';
import { count, newPlaces, type PlaceBounds, type Places } from './places.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

// The breaker opens after MISSES consecutive attempts without an answer (no connection, or none in time), or at
// FAILED_SHARE failures among at least RESULTS results in five minutes.
const MISSES = 5;
const FAILED_SHARE = 0.7;
const RESULTS = 10;
// The five minutes are two halves: the current one and the one before. So a result counts for 2.5 to 5 minutes.
const HALF_WINDOW = 2.5 * MINUTE;
const PROBE_GAP = 30_000;
const LATER_PROBE_GAP = 2 * MINUTE;
const LATER = 6 * HOUR;
const PROBE_JITTER = 0.2;
/** An endpoint that answered 410 is probed once a day, in case that was a mistake. */
const PAUSE_GAP = 24 * HOUR;
/** The longest time for which an endpoint may be held. */
export const LONGEST_HOLD = 7 * 24 * HOUR;

interface Half {
  readonly passed: number;
  readonly failed: number;
}

/** Who holds an endpoint. A hold of the operator is not ended by the account. */
export const HOLDERS = ['account', 'operator'] as const;
export type Holder = (typeof HOLDERS)[number];

/** A wish that nothing is sent to an endpoint for a time. */
export interface Hold {
  readonly by: Holder;
  readonly since: number;
  readonly until: number;
}

/** The state of an endpoint. Times are milliseconds of the monotonic clock. */
export interface EndpointState {
  /** closed: deliveries flow · open: failing, one probe at a time · paused: answered 410, one probe a day. */
  readonly phase: 'closed' | 'open' | 'paused';
  readonly since: number;
  /** When the next probe may be sent, unless the phase is closed. */
  readonly probeAt: number;
  /** How many deliveries may be in flight while closed. */
  readonly places: Places;
  /** Consecutive attempts without an answer. */
  readonly misses: number;
  readonly halfFrom: number;
  readonly half: Half;
  readonly halfBefore: Half;
  /** When a delivery last passed. */
  readonly passedAt: number;
  /** Set while it is held. Attempts in flight still count for the breaker. */
  readonly hold: Hold | null;
}

export interface Occasion {
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  /** The attempt was the probe of an endpoint that is not closed. */
  readonly probe: boolean;
  /** When it was sent, whether all places were taken then, and how late our event loop is, in milliseconds. */
  readonly sentAt: number;
  readonly full: boolean;
  readonly lag: number;
  /** The bounds for its places. */
  readonly bounds: PlaceBounds;
}

export type Change = 'opened' | 'closed' | 'paused' | 'resumed';

export interface Learned {
  readonly state: EndpointState;
  readonly change: Change | null;
}

const EMPTY: Half = { passed: 0, failed: 0 };

export function newEndpoint(now: number, { start, most }: PlaceBounds): EndpointState {
  return {
    phase: 'closed',
    since: now,
    probeAt: now,
    places: newPlaces(Math.min(start, most)),
    misses: 0,
    halfFrom: now,
    half: EMPTY,
    halfBefore: EMPTY,
    passedAt: Number.NEGATIVE_INFINITY,
    hold: null,
  };
}

/** Whether a probe may be sent now to an unavailable endpoint. */
export function mayProbe(state: EndpointState, now: number, probing: boolean): boolean {
  return state.phase !== 'closed' && !probing && now >= state.probeAt;
}

/**
 * Updates the state with the result of an attempt. While the endpoint is not closed, failures count only if they are
 * the probe's (except a 410).
 */
export function learn(before: EndpointState, lesson: Lesson, occasion: Occasion): Learned {
  if (lesson.kind === 'passed') return learnPass(before, occasion);
  if (lesson.kind === 'gone') return pause(before, occasion);
  if (lesson.kind === 'present')
    return before.phase === 'closed' ? unchanged({ ...before, misses: 0 }) : learnPass(before, occasion);
  if (before.phase === 'paused')
    return unchanged(occasion.probe ? { ...before, probeAt: occasion.now + PAUSE_GAP } : before);
  if (before.phase === 'open') {
    return unchanged(occasion.probe ? { ...before, probeAt: nextProbe(before.since, lesson, occasion) } : before);
  }
  return learnFailure(before, lesson, occasion);
}

/** Allows a probe now, after an operator changed the queue by hand. */
export function askNow(state: EndpointState, now: number): EndpointState {
  return state.phase === 'closed' ? state : { ...state, probeAt: now };
}

function learnPass(before: EndpointState, occasion: Occasion): Learned {
  const { now, bounds } = occasion;
  if (before.phase !== 'closed') {
    // Restarts with one at a time, whatever the limit was before.
    const state = { ...newEndpoint(now, bounds), places: newPlaces(1), passedAt: now, hold: before.hold };
    return { state, change: before.phase === 'paused' ? 'resumed' : 'closed' };
  }
  const window = counted(before, now, 1, 0);
  const places = count(before.places, { ...occasion, kind: 'ok' }, bounds);
  return unchanged({ ...before, ...window, places, misses: 0, passedAt: now });
}

function learnFailure(before: EndpointState, lesson: Lesson, occasion: Occasion): Learned {
  const { now } = occasion;
  if (lesson.aside) return unchanged(before);
  const window = counted(before, now, 0, 1);
  const misses = lesson.kind === 'unanswered' ? before.misses + 1 : 0;
  const kind = lesson.strained || lesson.kind === 'unanswered' ? 'strained' : 'failed';
  const places = count(before.places, { ...occasion, kind }, occasion.bounds);
  const state = { ...before, ...window, misses, places };
  if (misses < MISSES && !mostlyFails(state)) return unchanged(state);
  return {
    state: { ...state, phase: 'open', since: now, probeAt: nextProbe(now, lesson, occasion) },
    change: 'opened',
  };
}

function pause(before: EndpointState, { now }: Occasion): Learned {
  if (before.phase === 'paused') return unchanged({ ...before, probeAt: now + PAUSE_GAP });
  return { state: { ...before, phase: 'paused', since: now, probeAt: now + PAUSE_GAP }, change: 'paused' };
}

const unchanged = (state: EndpointState): Learned => ({ state, change: null });

function counted(
  before: EndpointState,
  now: number,
  passed: number,
  failed: number,
): Pick<EndpointState, 'halfFrom' | 'half' | 'halfBefore'> {
  const halves = Math.floor((now - before.halfFrom) / HALF_WINDOW);
  const { half, halfBefore } = before;
  if (halves === 0)
    return {
      halfFrom: before.halfFrom,
      half: { passed: half.passed + passed, failed: half.failed + failed },
      halfBefore,
    };
  return {
    halfFrom: before.halfFrom + halves * HALF_WINDOW,
    half: { passed, failed },
    halfBefore: halves === 1 ? half : EMPTY,
  };
}

function mostlyFails({ half, halfBefore }: EndpointState): boolean {
  const failed = half.failed + halfBefore.failed;
  const all = failed + half.passed + halfBefore.passed;
  return all >= RESULTS && failed / all >= FAILED_SHARE;
}

function nextProbe(since: number, lesson: Lesson, { now, jitter }: Occasion): number {
  const gap = now - since >= LATER ? LATER_PROBE_GAP : PROBE_GAP;
  return now + Math.max(gap * (1 - PROBE_JITTER + 2 * PROBE_JITTER * jitter), lesson.leaveAlone);
}

const memorySchema = z.object({
  phase: z.enum(['closed', 'open', 'paused']),
  since: z.number(),
  probeAt: z.number(),
  // Without a holder it is from the time when only accounts could hold.
  hold: z.object({ by: z.enum(HOLDERS).default('account'), since: z.number(), until: z.number() }).nullish(),
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
 * closed and not held. `shift` is wall time minus `now`; `last`: what people are told when they ask why mail waits.
 */
export function toMemory(
  { phase, since, probeAt, hold }: EndpointState,
  shift: number,
  last: LastAttempt | null,
): string | null {
  if (phase === 'closed' && !hold) return null;
  const wall = (time: number) => Math.round(time + shift);
  const kept = { phase, since: wall(since), probeAt: wall(probeAt), ...(last && { last }) };
  if (!hold) return JSON.stringify(kept);
  return JSON.stringify({
    ...kept,
    hold: { ...hold, since: wall(hold.since), until: toWholeSecond(wall(hold.until)) },
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
export function fromMemory(memory: string | null, shift: number, now: number, bounds: PlaceBounds): EndpointState {
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
function toHold({ hold }: EndpointMemory, shift: number, now: number): Hold | null {
  if (!hold || hold.until - shift <= now) return null;
  return {
    by: hold.by,
    since: Math.min(hold.since - shift, now),
    until: Math.min(hold.until - shift, now + LONGEST_HOLD),
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
