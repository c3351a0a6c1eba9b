import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import type { AttemptSummary, Settled } from '../settle.ts';
import type { Change } from './breaker.ts';
import { createHeap } from './endpoint-queue.ts';
import type { Lane } from './lane.ts';
import type { Waiting } from './waiting.ts';

interface GateDeps extends Pick<Tools, 'clock' | 'ids'> {
  /** The posts of all endpoints. */
  readonly posts: RoundRobin;
  readonly lag: LoopLag;
  readonly stopping: () => boolean;
}

/** One attempt at its endpoint: counts it against the limits, and records the result for the endpoint. */
export type LaneGate = ReturnType<typeof createGate>;

export function createGate(
  lane: Lane,
  waiting: Waiting,
  deps: GateDeps,
  onResult: (change: Change | null, result: AttemptSummary, settled: Settled, deliveries: number) => void,
) {
  const { clock, ids, posts, lag } = deps;
  const probe = lane.prepare(clock.monotonic());
  const { failedAt } = waiting;
  let stage: 'preparing' | 'waiting' | 'posting' | 'left' = 'preparing';
  let inDoubt = false;
  let sentAt = 0;
  let full = false;

  const mayPost = (): boolean =>
    !deps.stopping() && (probe || lane.phase === 'closed') && !lane.isHeld(clock.monotonic());

  function takeSlot(): boolean {
    if (!mayPost()) return false;
    stage = 'posting';
    inDoubt = lane.inDoubt;
    sentAt = clock.monotonic();
    full = lane.beginAttempt();
    posts.begin(lane, inDoubt);
    lag.look();
    return true;
  }

  /** Undoes the counts of the attempt, at whatever stage it ended. */
  function close(): void {
    if (stage === 'left') return;
    if (stage === 'preparing') lane.endPreparation();
    if (stage === 'posting') {
      lane.endAttempt();
      posts.end(lane, inDoubt);
    }
    stage = 'left';
    if (probe) lane.endProbe(clock.monotonic());
    if (lane.hasTurn()) posts.add(lane);
  }

  return {
    /** Waits until the limits allow sending. False if the endpoint was found unavailable meanwhile. */
    enter(): boolean | Promise<boolean> {
      if (!mayPost()) return false;
      stage = 'waiting';
      return new Promise((resolve) => {
        lane.wait(() => resolve(takeSlot()));
        posts.add(lane);
      });
    },
    /**
     * Reports the result and frees the slot immediately. If `deliveries` shared the attempt, `settled` is that of the
     * first: the endpoint learns from it once.
     */
    leave(result: AttemptSummary, settled: Settled, deliveries: number) {
      const now = clock.monotonic();
      const change = lane.learn(settled.lesson, {
        now,
        jitter: ids.jitter(),
        probe,
        sentAt,
        full,
        lag: lag.ms(),
        attempted: deliveries === 1 ? waiting.delivery : undefined,
      });
      close();
      onResult(change, result, settled, deliveries);
    },
    /** As in `EndpointStatus`. */
    othersPass: () => lane.hasPassedSince(failedAt),
    isUp: () => lane.phase === 'closed',
    close,
    /** Whether an attempt that was not sent yet is being prepared, or waits for a slot; undefined once it was sent. */
    waitsFor: () => (stage === 'preparing' ? 'ready' : stage === 'waiting' ? 'connection' : undefined),
  };
}

/** Milliseconds between measurements, and the decay of old values. */
const LOOK = 20;
const FADE = 0.8;

/** How late our event loop is: responses wait that long before they are read. */
type LoopLag = ReturnType<typeof createLoopLag>;

export function createLoopLag(clock: Clock) {
  let ms = 0;
  let looking = false;
  return frozen({
    /** Called while responses are awaited; measures from time to time. */
    look() {
      if (looking) return;
      looking = true;
      const due = clock.monotonic() + LOOK;
      clock.after(LOOK, () => {
        looking = false;
        ms = Math.max(clock.monotonic() - due, ms * FADE);
      });
    },
    /** The recent lag in milliseconds. */
    ms: () => ms,
  });
}

/**
 * Starts deliveries of the endpoints in turn, one at a time from each, up to `concurrency` in flight. No endpoint may
 * have more than `SHARE` times the free capacity in flight, so that some is always left for others, and busy endpoints
 * get equal shares (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length
 * thresholds for shared-memory packet switches", 1998).
 */
export type RoundRobin = ReturnType<typeof createRoundRobin>;

/** One endpoint alone gets four fifths of all slots, five endpoints 19 % each. */
const SHARE = 4;

/** `startOne` starts one delivery of the lane and calls `add` if there are more. */
export function createRoundRobin(concurrency: number, startOne: (lane: Lane) => void) {
  // Sets keep the order in which lanes were added.
  const sound = new Set<Lane>();
  const doubtful = new Set<Lane>();
  const doubtfulMost = Math.max(1, Math.floor(concurrency / 2));
  /** In flight, by lane. */
  const held = new Map<Lane, number>();
  let inFlight = 0;
  let doubtfulInFlight = 0;
  let doubtfulNext = false;
  let pumping = false;
  let stopped = false;
  let onEmpty = (): void => {};

  function pumpSoon(): void {
    if (pumping || stopped) return;
    pumping = true;
    queueMicrotask(pump);
  }

  function pump(): void {
    pumping = false;
    while (inFlight < concurrency && !stopped) {
      const lane = next();
      if (!lane) return;
      sound.delete(lane);
      doubtful.delete(lane);
      startOne(lane);
    }
  }

  /** Sound and doubtful lanes take turns, so that neither waits forever for the other. */
  function next(): Lane | undefined {
    const firstSound = firstOf(sound);
    const firstDoubtful = doubtfulInFlight < doubtfulMost ? firstOf(doubtful) : undefined;
    doubtfulNext = !doubtfulNext;
    return doubtfulNext ? (firstDoubtful ?? firstSound) : (firstSound ?? firstDoubtful);
  }

  /** The first lane that has nothing in flight, or less than its share. */
  function firstOf(lanes: Iterable<Lane>): Lane | undefined {
    const share = SHARE * (concurrency - inFlight - 1);
    for (const lane of lanes) if ((held.get(lane) ?? 0) < Math.max(1, share)) return lane;
    return undefined;
  }

  return frozen({
    /** Announces that this lane may start a delivery now. */
    add(lane: Lane) {
      const { inDoubt } = lane;
      (inDoubt ? sound : doubtful).delete(lane);
      (inDoubt ? doubtful : sound).add(lane);
      pumpSoon();
    },
    /** Counts a delivery as in flight until `end`; `inDoubt` is that of the lane at the start. */
    begin(lane: Lane, inDoubt: boolean) {
      inFlight++;
      held.set(lane, (held.get(lane) ?? 0) + 1);
      if (inDoubt) doubtfulInFlight++;
    },
    end(lane: Lane, inDoubt: boolean) {
      inFlight--;
      const left = (held.get(lane) ?? 0) - 1;
      if (left > 0) held.set(lane, left);
      else held.delete(lane);
      if (inDoubt) doubtfulInFlight--;
      if (inFlight === 0) onEmpty();
      if (sound.size + doubtful.size > 0) pumpSoon();
    },
    /** Whether anything is in flight, or may start. */
    busy: () => inFlight > 0 || sound.size + doubtful.size > 0 || pumping,
    /** Stops starting deliveries; resolves when none is in flight. */
    async stop() {
      stopped = true;
      if (inFlight === 0) return;
      await new Promise<void>((resolve) => {
        onEmpty = resolve;
      });
    },
  });
}

/** Something to be woken at a given time. */
export interface Sleeper {
  /** Milliseconds of the monotonic clock; Infinity: never. Written by the agenda. */
  wakeAt: number;
}

/** A timer delay must fit in 31 bits (24.8 days) or it fires at once; for later times it is renewed once a day. */
const LONGEST = 24 * 3_600_000;

/** Wakes many sleepers with one timer. */
export function createTimerQueue<S extends Sleeper>(clock: Clock, wake: (sleeper: S) => void) {
  // A sleeper whose time was changed leaves its old entry behind; the entry is skipped because the times differ.
  const entries = createHeap<{ readonly sleeper: S; readonly at: number }>(({ at }) => at);
  let cancel = (): void => {};
  let armedFor = Number.POSITIVE_INFINITY;

  function arm(): void {
    const at = entries.peek()?.at ?? Number.POSITIVE_INFINITY;
    if (at === armedFor) return;
    cancel();
    armedFor = at;
    cancel =
      at === Number.POSITIVE_INFINITY
        ? () => {}
        : clock.after(Math.min(LONGEST, Math.max(0, Math.ceil(at - clock.monotonic()))), fire);
  }

  function fire(): void {
    armedFor = Number.POSITIVE_INFINITY;
    cancel = () => {};
    const now = clock.monotonic();
    for (let entry = entries.peek(); entry && entry.at <= now; entry = entries.peek()) {
      entries.take();
      if (entry.sleeper.wakeAt !== entry.at) continue;
      entry.sleeper.wakeAt = Number.POSITIVE_INFINITY;
      wake(entry.sleeper);
    }
    arm();
  }

  return frozen({
    /** Sets the time to wake a sleeper; replaces the previous one. */
    set(sleeper: S, at: number) {
      if (sleeper.wakeAt === at) return;
      sleeper.wakeAt = at;
      if (at === Number.POSITIVE_INFINITY) return;
      entries.add({ sleeper, at });
      arm();
    },
    stop() {
      cancel();
      entries.drain();
      armedFor = Number.NEGATIVE_INFINITY;
    },
  });
}
