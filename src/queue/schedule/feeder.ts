import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import type { Delivery, QueuedDelivery, Spool } from '../delivery.ts';
import type { Roads } from '../road.ts';
import type { Backlog } from './backlog.ts';
import { HELD } from './endpoint-queue.ts';
import type { Lane } from './lane.ts';
import type { Lanes } from './lanes.ts';
import { toFresh, toWaiting } from './waiting.ts';

// The largest date: deliveries due later are loaded too, and wait in memory by the monotonic clock.
const EVER = 8.64e15;
/** Concurrent reads, so that a start with ten thousand endpoints does not delay incoming mail. */
const READS = 8;
/** Above this many endpoints each holds a quarter, so that the queues of all of them fit in memory. */
const MANY = 100;

interface FeederDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'due'>;
  readonly roads: Roads;
  readonly lanes: () => number;
  /** Called when a lane may have new work. */
  readonly poke: (lane: Lane) => void;
  readonly stopping: () => boolean;
}

/** Loads waiting deliveries from the spool into their lanes. */
export function createFeeder({ spool, clock, log, roads, lanes, poke, stopping }: FeederDeps) {
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
    feed(lane: Lane) {
      if (reads >= READS) hungry.add(lane);
      else void read(lane);
    },
    /** Whether a load is running or waiting. */
    busy: () => reads > 0 || hungry.size > 0,
  });
}

/** The longest time in ms that an endpoint's deliveries stay unread, in case a wrong clock wrote the due time. */
const LONGEST_SLEEP = 1_800_000;
const AGAIN = 5000;

interface IntakeDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'endpoints' | 'onChange' | 'onTurn'>;
  readonly roads: Roads;
  readonly lanes: Lanes;
  readonly backlog: Backlog;
  readonly poke: (lane: Lane) => void;
}

/** Passes new deliveries and manual changes of the spool on to the lanes. */
export function createIntake({ spool, clock, log, roads, lanes, backlog, poke }: IntakeDeps) {
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
      // Behind another, or pulled by its consumer: it does not wait for this host and needs no memory.
      if (delivery.behind || roads[delivery.kind].isPulled?.(delivery.url)) continue;
      const lane = lanes.of(delivery, null);
      lane.queue.addFresh(toFresh(delivery, now, roads[delivery.kind]), now.steady);
      if (delivery.kind === 'inbound' && !lane.isBottleneck(now.steady)) backlog.add(lane);
      poke(lane);
    }
  }

  /** Ignored until the intake is open, which reads all deliveries. */
  function hearTurns(due: readonly QueuedDelivery[]): void {
    if (phase !== 'open') return;
    const now = { wall: clock.now(), steady: clock.monotonic() };
    for (const queued of due) {
      if (roads[queued.kind].isPulled?.(queued.url)) continue;
      const lane = lanes.of(queued, null);
      // The copy in memory of one that left its sequence is outdated.
      if (queued.sequence === undefined) lane.queue.forget(now.steady);
      else lane.addTurn(toWaiting(queued, now, roads[queued.kind]), now.steady);
      poke(lane);
    }
  }

  /** After a manual change, the deliveries in memory and the state of the endpoints may be wrong: reloads all. */
  function relearn(): void {
    for (const lane of lanes.all()) lane.invalidate(clock.monotonic());
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
      const { url, kind, nextDue, memory } = endpoint;
      const waiting = roads[kind].isPulled?.(url) ? 0 : endpoint.waiting;
      if ((waiting === 0 && memory === null) || lanes.has(endpoint)) continue;
      const { queue } = lanes.of(endpoint, memory);
      const sleep = Math.min(Math.max(nextDue - clock.now(), 0), LONGEST_SLEEP);
      if (waiting > 0) queue.forget(clock.monotonic() + sleep);
    }
  }

  return frozen({
    /** Loads every endpoint with deliveries, then listens for changes. `before` is called before any starts. */
    async open(before: () => void) {
      spool.onChange(hear);
      spool.onTurn(hearTurns);
      await learn();
      before();
      phase = 'open';
      for (const lane of lanes.all()) poke(lane);
      const missed = early;
      early = [];
      if (missed.length > 0) hear(missed);
    },
    close() {
      phase = 'closed';
    },
    /** Whether a change is being loaded. */
    busy: () => learning,
  });
}
