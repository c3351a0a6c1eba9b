import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import type { Delivery, QueuedDelivery, Spool } from '../delivery.ts';
import type { Roads } from '../road.ts';
import type { Backlog } from './backlog.ts';
import { HELD } from './endpoint-queue.ts';
import { type Lane, toFresh, toWaiting } from './lane.ts';
import type { Lanes } from './lanes.ts';

// The end of time: what is due later is read too, and waits in memory by a clock that nobody sets.
const EVER = 8.64e15;
/** Reads at one time, so that a start with ten thousand endpoints does not hold up mail that comes in. */
const READS = 8;
/** Endpoints above which each holds a quarter, so that long queues for all of them still fit into memory. */
const MANY = 100;

interface FeederDeps {
  readonly spool: Pick<Spool, 'due'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly roads: Roads;
  readonly lanes: () => number;
  /** Called when there may be something new for a lane. */
  readonly poke: (lane: Lane) => void;
  readonly stopping: () => boolean;
}

/** Reads what waits for endpoints from the spool into their lanes. */
interface Feeder {
  feed(lane: Lane): void;
  /** Whether something is being read or waits for it. */
  busy(): boolean;
}

export function createFeeder({ spool, clock, log, roads, lanes, poke, stopping }: FeederDeps): Feeder {
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
    const times = { wall: clock.now(), steady: now };
    lane.load(
      found?.map((queued) => toWaiting(queued, times, roads[queued.kind])),
      full,
      now,
    );
  }

  function serveNext(): void {
    const [next] = hungry;
    if (!next) return;
    hungry.delete(next);
    poke(next);
  }

  return frozen({
    feed(lane) {
      if (reads >= READS) hungry.add(lane);
      else void read(lane);
    },
    busy: () => reads > 0 || hungry.size > 0,
  });
}

/** How long an endpoint's deliveries are left unread at most, whatever due time a wrong clock wrote. */
const LONGEST_SLEEP = 1_800_000;
const AGAIN = 5000;

interface IntakeDeps {
  readonly spool: Pick<Spool, 'endpoints' | 'onChange'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly roads: Roads;
  readonly lanes: Lanes;
  readonly backlog: Backlog;
  readonly poke: (lane: Lane) => void;
}

/** Hears of what comes onto the spool and of what is changed there by hand, and tells the lanes. */
interface Intake {
  /** Learns of every endpoint that has something on the spool, and listens from then on. */
  open(): Promise<void>;
  close(): void;
  /** Whether it is learning of a change. */
  busy(): boolean;
}

export function createIntake({ spool, clock, log, roads, lanes, backlog, poke }: IntakeDeps): Intake {
  let phase: 'opening' | 'open' | 'closed' = 'opening';
  let early: Delivery[] = [];
  let again = false;
  let learning = false;

  function hear(fresh: readonly Delivery[]): void {
    if (phase === 'opening') early.push(...fresh);
    if (phase !== 'open') return;
    if (fresh.length === 0) return relearn();
    const now = { wall: clock.now(), steady: clock.monotonic() };
    for (const delivery of fresh) {
      const lane = lanes.of(delivery, null);
      lane.queue.addFresh(toFresh(delivery, now, roads[delivery.kind]), now.steady);
      if (delivery.kind === 'inbound' && !lane.holdsUp(now.steady)) backlog.add(lane);
      poke(lane);
    }
  }

  /** Somebody changed the queue by hand: what is held may be wrong, and what was thought of the endpoints too. */
  function relearn(): void {
    for (const lane of lanes.all()) lane.doubt(clock.monotonic());
    backlog.clear();
    again = true;
    if (!learning) void learnAll();
  }

  async function learnAll(): Promise<void> {
    learning = true;
    while (again && phase === 'open') {
      again = false;
      await learn().catch((error: unknown) => {
        if (phase !== 'open') return;
        log.error('spool.fault', { error });
        clock.after(AGAIN, () => hear([]));
      });
    }
    learning = false;
    for (const lane of lanes.all()) poke(lane);
  }

  async function learn(): Promise<void> {
    for (const endpoint of await spool.endpoints()) {
      const { account, url, waiting, nextDue, memory } = endpoint;
      if ((waiting === 0 && memory === null) || lanes.has(account, url)) continue;
      const { queue } = lanes.of(endpoint, memory);
      const sleep = Math.min(Math.max(nextDue - clock.now(), 0), LONGEST_SLEEP);
      if (waiting > 0) queue.forget(clock.monotonic() + sleep);
    }
  }

  return frozen({
    async open() {
      spool.onChange(hear);
      await learn();
      phase = 'open';
      for (const lane of lanes.all()) poke(lane);
      const missed = early;
      early = [];
      if (missed.length > 0) hear(missed);
    },
    close() {
      phase = 'closed';
    },
    busy: () => learning,
  });
}
