// The limit of concurrent deliveries to one endpoint: enough to hide the round-trip time, and no more than the endpoint
// can process. Pure.
//
// It starts small and doubles with each round of answers (the slow start of TCP, RFC 5681), then grows in steps. A
// failure that indicates load halves it at once (additive increase, multiplicative decrease: Chiu and Jain, "Analysis
// of the increase and decrease algorithms for congestion avoidance", 1989), and failures of single messages cut it by
// their share (DCTCP, RFC 8257). Latency bounds it too, as in TCP Vegas and Netflix's concurrency-limits: if it is far
// above the endpoint's own floor, requests queue up there, and more at a time would gain nothing.

/** The bounds for an endpoint. */
export interface ConcurrencyBounds {
  readonly start: number;
  readonly most: number;
  /** Whether slow answers are a sign of load. Mail servers are slow on purpose (greylisting, tarpits). */
  readonly heedsLatency: boolean;
}

export interface ConcurrencyLimit {
  /** Not always whole, so that small steps add up. */
  readonly limit: number;
  /** Doubles with each round, until a failure or latency stops that. */
  readonly doubling: boolean;
  /** Latency in milliseconds while nothing queues at the endpoint; undefined until measured. */
  readonly floor: number | undefined;
  readonly round: Round;
  /** The limit before a cut for latency, until the next round shows whether the cut helped. */
  readonly trial: Trial | undefined;
  /** Consecutive rounds that were neither quick nor slow. */
  readonly between: number;
}

/** As many answers as there are slots. */
interface Round {
  /** Attempts sent earlier are ignored: the number in flight was different then. */
  readonly from: number;
  /** An attempt sent since `from` has returned: all that return from now on were sent at the current limit. */
  readonly settled: boolean;
  readonly answers: number;
  readonly failed: number;
  /** The sum of the logarithms of the latencies. */
  readonly logs: number;
  /** All slots were taken at some time; otherwise the limit held nothing back. */
  readonly full: boolean;
}

interface Trial {
  readonly limit: number;
  /** The latency is at most this if a queue at the endpoint was the reason; undefined: unknown. */
  readonly enough: number | undefined;
}

/** The result of one attempt. */
interface LimitSample {
  /** ok · failed: perhaps because of the message · strained: the endpoint is at its limit, or did not answer. */
  readonly kind: 'ok' | 'failed' | 'strained';
  readonly sentAt: number;
  readonly now: number;
  /** All slots were taken when it was sent. */
  readonly full: boolean;
  /** Milliseconds by which our own event loop is late, which look like latency of the endpoint. */
  readonly lag: number;
}

// Up to this many milliseconds above its floor an endpoint counts as quick, and up to twice as many not as slow: such
// variation is normal on a busy machine, and a queue that short does no harm.
const SLACK = 20;
// The same in proportion to the floor: at its own limit, an endpoint has twice the floor with twice as many.
const QUICK = 1.5;
const SLOW = 2;
/** The bounds of a cut for latency, as parts of the limit. A smaller cut would be lost in the noise. */
const DEEPEST_CUT = 0.5;
const LEAST_CUT = 0.75;
/** Consecutive rounds between quick and slow after which a cut tests whether the floor still holds. */
const BETWEEN = 16;
/** Answers needed for a latency that means something. */
const TIMED = 4;
/** A step of growth, as a part of the limit. Unlike TCP, it need not leave room for others. */
const STEP = 1 / 8;
/** Answers after which a lower latency replaces the floor. A higher floor takes a trial. */
const FLOOR_ANSWERS = 32;
/** Milliseconds without a post after which an endpoint starts anew: its former capacity then proves nothing. */
const IDLE = 60_000;

export function newLimit(limit: number): ConcurrencyLimit {
  const round = { ...openRound(Number.NEGATIVE_INFINITY), settled: true };
  return { limit, doubling: true, floor: undefined, round, trial: undefined, between: 0 };
}

/** Returns the limit of an endpoint after `idle` milliseconds without a post. */
export function afterIdle(
  before: ConcurrencyLimit,
  idle: number,
  { start, most }: ConcurrencyBounds,
): ConcurrencyLimit {
  if (idle < IDLE || before.limit <= start) return before;
  return { ...newLimit(Math.min(start, most)), floor: before.floor };
}

/** Updates the limit with an answer. */
export function updateLimit(
  before: ConcurrencyLimit,
  answer: LimitSample,
  bounds: ConcurrencyBounds,
): ConcurrencyLimit {
  const { now, sentAt, kind } = answer;
  const { round } = before;
  if (sentAt < round.from) return before;
  if (kind === 'strained') return changed(before, Math.max(1, Math.floor(before.limit / 2)), now);
  if (!round.settled) return { ...before, round: { ...openRound(now), settled: true } };
  const counted = {
    ...round,
    answers: round.answers + 1,
    failed: round.failed + (kind === 'failed' ? 1 : 0),
    logs: round.logs + Math.log(Math.max(1, now - sentAt)),
    full: round.full || answer.full,
  };
  if (counted.answers < (before.doubling ? before.limit : Math.max(before.limit, TIMED)))
    return { ...before, round: counted };
  return judge({ ...before, round: { ...openRound(round.from), settled: true } }, counted, answer, bounds);
}

/** Decides at the end of a round. */
function judge(
  before: ConcurrencyLimit,
  round: Round,
  { now, lag }: LimitSample,
  bounds: ConcurrencyBounds,
): ConcurrencyLimit {
  const { limit } = before;
  const { answers, failed, logs, full } = round;
  if (failed > 0) return changed(before, Math.max(1, limit * (1 - failed / answers / 2)), now);
  // The geometric mean: a few large messages or pauses among many answers do not make it slow.
  const latency = Math.exp(logs / answers);
  if (!bounds.heedsLatency || answers < TIMED) return full ? grow(before, bounds, now) : before;
  const floor = floorAfter(before.floor, latency, answers);
  const next = { ...before, floor };
  if (!full) return next;
  const { trial } = before;
  if (trial?.enough !== undefined && latency > trial.enough) return giveBack(next, trial, latency, now);
  if (latency <= Math.max(QUICK * floor, floor + SLACK) + lag) return grow({ ...next, between: 0 }, bounds, now);
  const slow = Math.max(SLOW * floor, floor + 2 * SLACK) + lag;
  const least = Math.min(bounds.start, limit);
  if (before.doubling) return changed(next, latency > slow ? Math.max(least, limit / 2) : limit, now);
  if (latency <= slow && before.between < BETWEEN) return { ...next, trial: undefined, between: before.between + 1 };
  const fewer = Math.max(least, limit * Math.min(LEAST_CUT, Math.max(DEEPEST_CUT, slow / latency)));
  if (fewer >= limit) return { ...next, trial: undefined, floor: latency };
  // While a queue is still building up, its latency says nothing: the first cut for latency is not measured.
  const isSteady = trial !== undefined || latency <= slow;
  const enough = isSteady ? (latency * (1 + fewer / limit)) / 2 : undefined;
  return { ...changed(next, fewer, now), trial: { limit, enough } };
}

/**
 * Fewer slots shorten a queue at the endpoint. If the latency stays as it was, there is no queue: the endpoint became
 * slower, or this host did. The latency is then the new floor, and the cut is undone.
 */
function giveBack(before: ConcurrencyLimit, { limit }: Trial, latency: number, now: number): ConcurrencyLimit {
  return { ...changed(before, limit, now), floor: latency };
}

function grow(before: ConcurrencyLimit, { most }: ConcurrencyBounds, now: number): ConcurrencyLimit {
  const { limit, doubling } = before;
  if (limit >= most) return { ...before, trial: undefined };
  if (doubling) return { ...before, limit: Math.min(most, 2 * limit) };
  return changed(before, Math.min(most, limit + Math.max(1, limit * STEP)), now);
}

/** Sets the limit and continues in steps. */
function changed(before: ConcurrencyLimit, limit: number, now: number): ConcurrencyLimit {
  return { ...before, limit, doubling: false, trial: undefined, between: 0, round: openRound(now) };
}

/** A lower latency lowers the floor, weighted by the number of answers. */
function floorAfter(floor: number | undefined, latency: number, answers: number): number {
  if (floor === undefined) return latency;
  return floor + Math.min(0, latency - floor) * Math.min(1, answers / FLOOR_ANSWERS);
}

function openRound(from: number): Round {
  return { from, settled: false, answers: 0, failed: 0, logs: 0, full: false };
}
