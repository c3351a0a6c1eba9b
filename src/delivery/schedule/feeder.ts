import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { QueuedDelivery, Spool } from '../../spool/types.ts';
import { HELD } from './endpoint-queue.ts';
import type { Lane } from './lane.ts';
import { mayBeEarly, toWaiting, type Waiting } from './waiting.ts';

// The end of time: what is due later is read too, and waits in memory by a clock that nobody sets.
const EVER = 8.64e15;
/** Reads at one time, so that a start with ten thousand endpoints does not hold up mail that comes in. */
const READS = 8;
/** Endpoints above which each holds a quarter, so that long queues for all of them still fit into memory. */
const MANY = 100;

export interface FeederDeps {
  readonly spool: Pick<Spool, 'due'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly lanes: () => number;
  /** Called when there may be something new for a lane. */
  readonly poke: (lane: Lane) => void;
  readonly stopping: () => boolean;
}

/** Reads what waits for endpoints from the spool into their lanes. */
export interface Feeder {
  feed(lane: Lane): void;
  /** Whether something is being read or waits for it. */
  busy(): boolean;
}

export function createFeeder({ spool, clock, log, lanes, poke, stopping }: FeederDeps): Feeder {
  const hungry = new Set<Lane>();
  let reads = 0;

  async function read(lane: Lane): Promise<void> {
    reads++;
    const count = lanes() > MANY ? HELD / 4 : HELD;
    const found = await spool
      .due(lane.account, lane.url, EVER, count, lane.queue.beginLoad())
      .catch((error: unknown) => {
        if (!stopping()) log.error('spool.fault', { error });
        return undefined;
      });
    reads--;
    take(lane, found, count);
    poke(lane);
    serveNext();
  }

  function take(lane: Lane, found: readonly QueuedDelivery[] | undefined, count: number): void {
    const now = clock.monotonic();
    const full = found?.length === count;
    lane.queue.endLoad(
      found?.map((queued) => toHeld(lane, queued, now)),
      full,
      now,
    );
    if (found && !full) lane.pulling = false;
    lane.lookAt = now;
  }

  function toHeld(lane: Lane, queued: QueuedDelivery, now: number): Waiting {
    const waiting = toWaiting(queued, { wall: clock.now(), steady: now });
    return lane.pulling && mayBeEarly(waiting) ? { ...waiting, due: now } : waiting;
  }

  function serveNext(): void {
    const [next] = hungry;
    if (!next) return;
    hungry.delete(next);
    poke(next);
  }

  return Object.freeze({
    feed(lane: Lane) {
      if (reads >= READS) hungry.add(lane);
      else void read(lane);
    },
    busy: () => reads > 0 || hungry.size > 0,
  });
}
