// How many deliveries may be on their way to one endpoint at a time: enough that its round trips cost nothing, and no
// more than it works on. Pure.
//
// It starts small and doubles with each round of answers (the slow start of TCP, RFC 5681), then grows in steps. A
// failure that speaks of load halves it at once (additive increase, multiplicative decrease: Chiu and Jain, "Analysis of
// the increase and decrease algorithms for congestion avoidance", 1989), and failures of single messages cut it by their
// share (DCTCP, RFC 8257). The time that answers take bounds it too, as in TCP Vegas and Netflix's concurrency-limits:
// what takes much longer than the endpoint's own floor waits there in a queue, and more at a time would bring nothing.

/** The bounds for an endpoint. */
export interface PlaceBounds {
  readonly start: number;
  readonly most: number;
  /** Whether slow answers are a sign of load. Mail servers are slow on purpose (greylisting, tarpits). */
  readonly heedsLatency: boolean;
}

export interface Places {
  /** Not always whole, so that small steps add up. */
  readonly limit: number;
  /** Doubles with each round, until something speaks against it. */
  readonly doubling: boolean;
  /** Milliseconds that an answer takes while nothing waits at the endpoint; undefined until answers were timed. */
  readonly floor: number | undefined;
  readonly round: Round;
  /** What was before a cut for slowness, until the round after shows whether it helped. */
  readonly trial: Trial | undefined;
  /** Rounds in a row that were neither quick nor slow. */
  readonly between: number;
}

/** As many answers as there are places. */
interface Round {
  /** What was sent before says nothing: there were more or fewer on their way then. */
  readonly from: number;
  /** Something that was sent since `from` has come back: all that come from now on were sent among so many. */
  readonly settled: boolean;
  readonly answers: number;
  readonly failed: number;
  /** The sum of the logarithms of their times. */
  readonly logs: number;
  /** All places were taken at some time: else it was not the limit that kept anything. */
  readonly full: boolean;
}

interface Trial {
  readonly limit: number;
  /** To this the time of an answer falls at least, if a queue at the endpoint was the reason; undefined: not known. */
  readonly enough: number | undefined;
}

/** One attempt that came back. */
export interface PlaceAnswer {
  /** ok · failed: perhaps for the message's sake · strained: the endpoint is at its limit, or did not answer. */
  readonly kind: 'ok' | 'failed' | 'strained';
  readonly sentAt: number;
  readonly now: number;
  /** All places were taken when it was sent. */
  readonly full: boolean;
  /** Milliseconds by which our own event loop is late, which look like slowness of the endpoint. */
  readonly lag: number;
}

// Up to this many milliseconds above its floor an endpoint counts as quick, and up to twice as many not as slow: that
// much comes and goes with a busy machine, and a queue that short does no harm.
const SLACK = 20;
// The same in proportion to the floor: at its own limit, an endpoint has twice the floor with twice as many.
const QUICK = 1.5;
const SLOW = 2;
/** A cut for slowness: to no less, and to no more, of what was. Less than that would be lost in the noise. */
const DEEPEST_CUT = 0.5;
const LEAST_CUT = 0.75;
/** Rounds between quick and slow after which a cut shows whether the floor is still true. */
const BETWEEN = 16;
/** Answers of which the time says something. */
const TIMED = 4;
/** A step of growth: this part of what there is. It need not leave room for others, as TCP must. */
const STEP = 1 / 8;
/** Answers that make a new floor. One that is slower takes a trial. */
const FLOOR_ANSWERS = 32;
/** After so long without a post it starts anew: what an endpoint could do then proves nothing. */
const IDLE = 60_000;

export function newPlaces(limit: number): Places {
  const round = { ...openRound(Number.NEGATIVE_INFINITY), settled: true };
  return { limit, doubling: true, floor: undefined, round, trial: undefined, between: 0 };
}

/** What an endpoint begins with that had no post for as long. */
export function afterIdle(before: Places, idle: number, { start, most }: PlaceBounds): Places {
  if (idle < IDLE || before.limit <= start) return before;
  return { ...newPlaces(Math.min(start, most)), floor: before.floor };
}

/** What an answer says of the places. */
export function count(before: Places, answer: PlaceAnswer, bounds: PlaceBounds): Places {
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

/** At the end of a round. */
function judge(before: Places, round: Round, { now, lag }: PlaceAnswer, bounds: PlaceBounds): Places {
  const { limit } = before;
  const { answers, failed, logs, full } = round;
  if (failed > 0) return changed(before, Math.max(1, limit * (1 - failed / answers / 2)), now);
  // The mean over a logarithm: a few large messages or pauses among many answers do not make it slow.
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
  // While a queue still builds up, its time says nothing: the first cut for slowness is not measured.
  const isSteady = trial !== undefined || latency <= slow;
  const enough = isSteady ? (latency * (1 + fewer / limit)) / 2 : undefined;
  return { ...changed(next, fewer, now), trial: { limit, enough } };
}

/**
 * Fewer places shorten a queue at the endpoint. When answers take as long as before, there is none: the endpoint
 * became slower, or we did. That is its floor then, and the places are given back.
 */
function giveBack(places: Places, { limit }: Trial, latency: number, now: number): Places {
  return { ...changed(places, limit, now), floor: latency };
}

function grow(places: Places, { most }: PlaceBounds, now: number): Places {
  const { limit, doubling } = places;
  if (limit >= most) return { ...places, trial: undefined };
  if (doubling) return { ...places, limit: Math.min(most, 2 * limit) };
  return changed(places, Math.min(most, limit + Math.max(1, limit * STEP)), now);
}

/** Goes on with so many, in steps. */
function changed(places: Places, limit: number, now: number): Places {
  return { ...places, limit, doubling: false, trial: undefined, between: 0, round: openRound(now) };
}

/** Quicker answers lower the floor, the more the surer. */
function floorAfter(floor: number | undefined, latency: number, answers: number): number {
  if (floor === undefined) return latency;
  return floor + Math.min(0, latency - floor) * Math.min(1, answers / FLOOR_ANSWERS);
}

function openRound(from: number): Round {
  return { from, settled: false, answers: 0, failed: 0, logs: 0, full: false };
}
