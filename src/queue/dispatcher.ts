import { withTimeout } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import { tableOf } from '../base/tables.ts';
import type { Tools } from '../base/tools.ts';
import type { Verdicts } from '../mail/addresses/envelope.ts';
import {
  DELIVERY_KINDS,
  type DeliveryKind,
  type Endpoint,
  type EndpointName,
  type Settlement,
  type Spool,
} from './delivery.ts';
import { createPreparations, type LaneView, viewLane } from './insight.ts';
import { createDeliveryMeters, createDeliveryNotices, type Meters, registerEndpointGauges } from './meters.ts';
import { type Attempted, type DeliveryOutcome, type DeliveryOutcomes, type Roads, sameFor } from './road.ts';
import type { Backlog } from './schedule/backlog.ts';
import { type HeldBy, LONGEST_HOLD } from './schedule/breaker.ts';
import type { EndpointQueue } from './schedule/endpoint-queue.ts';
import { createFeeder, createIntake } from './schedule/feeder.ts';
import {
  createGate,
  createLoopLag,
  createRoundRobin,
  createTimerQueue,
  type LaneGate,
  type RoundRobin,
} from './schedule/gate.ts';
import type { Lane } from './schedule/lane.ts';
import { createLanes } from './schedule/lanes.ts';
import { createOverdue } from './schedule/overdue.ts';
import { type Times, toWaiting, type Waiting } from './schedule/waiting.ts';

export interface DispatcherDeps extends Tools {
  readonly spool: Spool;
  /** The road of each kind of delivery. */
  readonly roads: Roads;
  /** Counts the deliveries that wait for this host. */
  readonly backlog: Backlog;
  /** The age of deliveries. */
  readonly time: RunningTime;
}

/** An endpoint to which nothing is sent until that time (milliseconds since 1970). */
export interface HeldEndpoint extends Endpoint {
  readonly until: number;
  readonly by: HeldBy;
}

export type Dispatcher = ReturnType<typeof createDispatcher>;

/** Maximum number of attempts being prepared or recorded: per attempt in flight, and in total. */
const BESIDE_EACH = 3;
const BESIDE_ALL = 192;
/** How long `stop` waits for attempts in flight. */
const STOP_WAIT = 10_000;
/** The delay after an attempt that failed for a local reason. */
const PUT_OFF = 30_000;

/** The limits of a road: attempts in flight (`posts`), and with those being prepared and recorded (`attempts`). */
interface RoadLimits {
  readonly posts: RoundRobin;
  readonly attempts: RoundRobin;
}

/**
 * Delivers from the queue to the endpoints, each delivery over the road of its kind. Endpoints with due deliveries take
 * turns, within the concurrency limits of the road and of each endpoint. A delivery in flight when the process ends is
 * still waiting in the queue.
 */
export function createDispatcher(deps: DispatcherDeps) {
  const { spool, roads, backlog, time, clock, ids, log, metrics } = deps;
  let phase: 'new' | 'running' | 'stopping' | 'abandoned' = 'new';
  const stopping = (): boolean => phase === 'stopping' || phase === 'abandoned';
  const notices = createDeliveryNotices(log, roads);
  const lag = createLoopLag(clock);
  const lanes = createLanes(clock, roads);
  const preparations = createPreparations({ roads, clock });
  const meters = createDeliveryMeters(metrics);
  registerEndpointGauges(lanes, metrics);
  const agenda = createTimerQueue<Lane>(clock, poke);
  const intake = createIntake({ spool, clock, log, roads, lanes, backlog, poke });
  const feeder = createFeeder({ spool, clock, log, roads, lanes: lanes.count, poke, stopping });
  /** Deliveries in flight that the spool has put behind others. */
  const putBehind = new Set<string>();
  const engine = createEngine({ ...deps, meters, stopping, abandoned: () => phase === 'abandoned', putBehind });
  const overdue = createOverdue({
    spool,
    roads,
    time,
    clock,
    log,
    async giveUp(queued) {
      const now = { wall: clock.now(), steady: clock.monotonic() };
      const waiting = toWaiting(queued, now, roads[queued.kind]);
      if ((await engine.giveUp(waiting)).kind === 'gone') notices.notPulled(waiting);
    },
  });
  // An attempt is prepared, sent and recorded; only sending involves the endpoint and needs one of its slots. Each
  // road has its own slots: a mail server may take ten minutes where a webhook is allowed seconds.
  const limits = limitsByKind(roads, (concurrency): RoadLimits => {
    const posts = createRoundRobin(concurrency, (lane) => postOne(lane, posts));
    const beside = Math.min(concurrency * BESIDE_EACH, BESIDE_ALL);
    return { posts, attempts: createRoundRobin(concurrency + beside, startOne) };
  });
  const allLimits = [...new Set(Object.values(limits))];

  /** Decides what to do next for an endpoint: load more, start an attempt now, or sleep until a given time. */
  function poke(lane: Lane): void {
    if (phase !== 'running') return;
    const now = clock.monotonic();
    if (lane.state.hold && !lane.isHeld(now)) {
      lane.release();
      keep(lane);
    }
    // Nothing is loaded or started; only the end of a hold is scheduled.
    if (roads[lane.kind].isPulled?.(lane.url)) return agenda.set(lane, lane.nextWake(now));
    // Resets the count in case a counted delivery vanished without being taken up.
    if (lane.isBottleneck(now) || lane.isEmpty()) backlog.excuse(lane);
    if (lane.isLookDue(now)) giveUpOld(lane, now);
    if (lane.queue.wantsLoad(now)) feeder.feed(lane);
    if (lane.nextStart(now) > now) agenda.set(lane, lane.nextWake(now));
    else limits[lane.kind].attempts.add(lane);
  }

  function startOne(lane: Lane): void {
    const now = clock.monotonic();
    const waiting = lane.takeNext(now);
    if (waiting) {
      const along = lane.takeAlong(waiting, now, roads[waiting.delivery.kind]);
      for (let taken = 0; taken <= along.length; taken++) backlog.take(lane);
      void attempt(lane, [waiting, ...along]);
    }
    poke(lane);
  }

  function postOne(lane: Lane, posts: RoundRobin): void {
    if (lane.callNext()) posts.add(lane);
  }

  async function attempt(lane: Lane, all: Attempted): Promise<void> {
    const [waiting] = all;
    const { inDoubt } = lane;
    const { attempts, posts } = limits[lane.kind];
    attempts.begin(lane, inDoubt);
    const gate = createGate(
      lane,
      waiting,
      { clock, ids, posts, lag, stopping },
      (change, result, settled, deliveries) => {
        meters.attempt(waiting.delivery, result, settled, deliveries);
        lane.note(result, clock.now());
        if (change) notices.endpoint(lane, change, result);
        keep(lane);
        poke(lane);
      },
    );
    const made = preparations.begin(lane, all, gate);
    const outcomes = await engine.attempt(all, gate);
    gate.close();
    made();
    const now = { wall: clock.now(), steady: clock.monotonic() };
    // In reverse, since each delivery put back goes to the front.
    for (const waiting of all.toReversed())
      if (putBehind.delete(waiting.delivery.id)) lane.queue.leaveOutside(waiting.delivery.id, now.steady);
      else requeue(lane.queue, waiting, outcomes.get(waiting) ?? ALONE, now);
    for (const waiting of all) {
      const outcome = outcomes.get(waiting);
      if (outcome?.kind === 'settled' && !outcome.isLogged) notices.attempt(lane, waiting, outcome);
    }
    attempts.end(lane, inDoubt);
    poke(lane);
  }

  /** Deliveries of an unavailable endpoint get no attempts; this ends the expired ones. */
  function giveUpOld(lane: Lane, now: number): void {
    if (!time.sure()) return;
    const { attempts } = limits[lane.kind];
    const isOver = ({ delivery, budgetFrom }: Waiting) => time.age(budgetFrom) >= roads[delivery.kind].limit;
    for (const waiting of lane.queue.takeExpired(now, isOver)) {
      attempts.begin(lane, false);
      void engine.giveUp(waiting).then((outcome) => {
        requeue(lane.queue, waiting, outcome, { wall: clock.now(), steady: clock.monotonic() });
        if (outcome.kind === 'gone') notices.givenUp(lane, waiting);
        attempts.end(lane, false);
      });
    }
  }

  /** Saves the state that must survive a restart; undefined if it has not changed. */
  function write(lane: Lane): Promise<void> | undefined {
    const memory = lane.newMemory(clock.now() - clock.monotonic());
    const { account, url, kind } = lane;
    return memory === undefined ? undefined : spool.keepEndpoint({ account, url, kind }, memory);
  }

  /** Probes an endpoint now if it is unavailable. */
  function probe(endpoint: EndpointName): void {
    const lane = lanes.get(endpoint);
    lane?.invalidate(clock.monotonic());
    if (lane) poke(lane);
  }

  function hold(lane: Lane, until: number, by: HeldBy): void {
    // Whole seconds, as shown to people.
    const end = Math.floor(until / 1000) * 1000;
    lane.hold(by, Math.min(end - clock.now(), LONGEST_HOLD), clock.monotonic());
  }

  function keep(lane: Lane): void {
    write(lane)?.catch((error: unknown) => log.error('spool.fault', { error }));
  }

  return frozen({
    /** Starts to deliver, except to `held` endpoints. */
    async start(held: readonly HeldEndpoint[] = []) {
      phase = 'running';
      await intake.open(() => {
        for (const { until, by, ...endpoint } of held) {
          const lane = lanes.of(endpoint, null);
          // A pause that is only in this queue is not in the store yet.
          if (!lane.state.hold?.local) hold(lane, until, by);
          keep(lane);
        }
      });
      overdue.start();
    },
    async stop() {
      phase = 'stopping';
      intake.close();
      agenda.stop();
      for (const lane of lanes.all()) lane.callAll();
      await overdue.stop();
      await withTimeout(clock, STOP_WAIT, Promise.all(allLimits.map(({ attempts }) => attempts.stop())));
      phase = 'abandoned';
    },
    /** Returns the lanes of these endpoints, or all. */
    lanes: (isWanted: (endpoint: Endpoint) => boolean = () => true): readonly LaneView[] =>
      [...lanes.all()].filter(isWanted).map((lane) => viewLane(lane, clock)),
    /** Returns the deliveries that are being prepared, for one endpoint or for all. */
    preparing: preparations.list,
    /** Sends nothing to an endpoint until then (ms since 1970); its mail may expire. Resolves once that is saved. */
    async hold(endpoint: Endpoint, until: number, by: HeldBy) {
      const lane = lanes.of(endpoint, null);
      hold(lane, until, by);
      poke(lane);
      await write(lane);
    },
    /** Whether it is held now. */
    isHeld: (endpoint: EndpointName) => lanes.get(endpoint)?.isHeld(clock.monotonic()) ?? false,
    /** Ends a hold. */
    async release(endpoint: EndpointName) {
      const lane = lanes.get(endpoint);
      if (!lane) return;
      lane.release();
      poke(lane);
      await write(lane);
    },
    /** Makes all deliveries to an endpoint due now, and probes it if it is down. Returns how many were not due. */
    async retry(endpoint: EndpointName) {
      const count = await spool.retryEndpoint(endpoint.account, endpoint.url, clock.now());
      probe(endpoint);
      return count;
    },
    probe,
    /** Whether nothing is in flight and nothing is due. */
    idle: () => allLimits.every(({ attempts }) => !attempts.busy()) && !feeder.busy() && !intake.busy(),
  });
}

/** Creates the limits for each kind; kinds of the same road share them. */
function limitsByKind(
  roads: Roads,
  create: (concurrency: number) => RoadLimits,
): Readonly<Record<DeliveryKind, RoadLimits>> {
  const made = new Map(Object.values(roads).map((road) => [road, create(road.concurrency)]));
  return tableOf(DELIVERY_KINDS, (kind) => made.get(roads[kind]) ?? create(roads[kind].concurrency));
}

interface EngineDeps extends Pick<DispatcherDeps, 'spool' | 'roads' | 'clock' | 'log'> {
  readonly meters: Meters;
  /** True once the dispatcher is stopping: then nothing is waited for. */
  readonly stopping: () => boolean;
  readonly abandoned: () => boolean;
  readonly putBehind: Set<string>;
}

/** Runs deliveries over their roads. Its functions never throw. */
function createEngine({ spool, roads, clock, log, meters, stopping, abandoned, putBehind }: EngineDeps) {
  /**
   * Writes a settlement. Retries until it is written, and counts as an attempt meanwhile: with a full disk, Postern
   * must stop sending, or it would send the same deliveries again and again.
   */
  async function write({ delivery: { id, kind } }: Waiting, settlement: Settlement, fresh?: Verdicts): Promise<void> {
    for (let logged = false; ; logged = true) {
      try {
        if (await spool.settle(settlement, fresh)) putBehind.add(id);
        if (settlement.state === 'dead') meters.dead(kind);
        return;
      } catch (error) {
        if (stopping()) return;
        if (!logged) log.error('delivery.fault', { delivery: id, error });
        await new Promise<void>((resolve) => {
          clock.after(PUT_OFF, resolve);
        });
        if (stopping()) return;
      }
    }
  }

  async function record(waiting: Waiting, outcome: DeliveryOutcome): Promise<void> {
    if (outcome.kind === 'turned back') return;
    const settlement = outcome.kind === 'settled' ? outcome.settled.settlement : outcome.settlement;
    if (settlement) await write(waiting, settlement, outcome.fresh);
    await outcome.afterwards?.();
  }

  async function recordAll(outcomes: DeliveryOutcomes): Promise<DeliveryOutcomes> {
    await Promise.all(Array.from(outcomes, ([waiting, outcome]) => record(waiting, outcome)));
    return outcomes;
  }

  /** Whether the delivery in memory is current: it may have been dropped or redirected between two attempts. */
  async function stillWaits({ delivery, attempts, alone }: Waiting): Promise<boolean> {
    if (attempts === 0 && !alone && delivery.notBefore === undefined) return true;
    const queued = await spool.delivery(delivery.id);
    return queued?.state === 'waiting' && queued.url === delivery.url;
  }

  /** Prepares, sends and records. */
  async function carry(all: Attempted, gate: LaneGate): Promise<DeliveryOutcomes> {
    const [first, ...others] = all;
    if (others.length === 0 && !(await stillWaits(first))) return sameFor(all, { kind: 'gone' });
    const { outcomes, shipment } = await roads[first.delivery.kind].prepare(all);
    if (!shipment) return recordAll(outcomes);
    try {
      await recordAll(outcomes);
      if (!(await gate.enter()))
        return new Map([...outcomes, ...sameFor(shipment.deliveries, { kind: 'turned back' })]);
      const sent = await shipment.send({ othersPass: gate.othersPass, isUp: gate.isUp, abandoned });
      const settled = [...sent.values()].filter((outcome) => outcome.kind === 'settled');
      if (settled[0]) gate.leave(settled[0].result, settled[0].settled, settled.length);
      return new Map([...outcomes, ...(await recordAll(sent))]);
    } finally {
      await shipment.release?.();
    }
  }

  return frozen({
    /** Makes one attempt. A local fault in a shared one has no known culprit, so each delivery is then tried alone. */
    async attempt(all: Attempted, gate: LaneGate): Promise<DeliveryOutcomes> {
      const [{ delivery }, ...others] = all;
      try {
        return await carry(all, gate);
      } catch (error) {
        const named =
          others.length > 0
            ? { deliveries: all.map((waiting) => waiting.delivery.id) }
            : { delivery: delivery.id, message: delivery.messageId };
        if (!stopping()) log.error('delivery.fault', { ...named, error });
        return sameFor(all, others.length > 0 ? ALONE : { kind: 'put off' });
      }
    },
    /** Expires a delivery of an unavailable endpoint, unless a new send time was chosen for it. */
    async giveUp(waiting: Waiting): Promise<DeliveryOutcome> {
      const { delivery } = waiting;
      try {
        const outcome = await roads[delivery.kind].expire(waiting);
        await record(waiting, outcome);
        return outcome;
      } catch (error) {
        log.error('delivery.fault', { delivery: delivery.id, error });
        return { kind: 'gone' };
      }
    },
  });
}

/** A delivery that shares no attempt next time. */
const ALONE: DeliveryOutcome = { kind: 'turned back', alone: true };

/** Puts a delivery back into the endpoint's queue in memory, or removes it; the spool is already up to date. */
function requeue(queue: EndpointQueue, waiting: Waiting, outcome: DeliveryOutcome, { wall, steady: now }: Times): void {
  if (outcome.kind === 'turned back') return queue.putBack(outcome.alone ? { ...waiting, alone: true } : waiting);
  if (outcome.kind === 'put off') {
    const due = now + (outcome.at === undefined ? PUT_OFF : Math.max(0, outcome.at - wall));
    return queue.defer({
      ...waiting,
      due,
      budgetFrom: outcome.moved && outcome.at !== undefined ? outcome.at : waiting.budgetFrom,
    });
  }
  const settled = outcome.kind === 'settled' ? outcome.settled : undefined;
  if (settled?.outcome !== 'deferred') return queue.done(waiting.delivery.id);
  const { wait, settlement } = settled;
  queue.defer({
    ...waiting,
    attempts: waiting.attempts + 1,
    timed: false,
    parked: settlement.parked,
    due: now + wait,
    failedAt: now,
    heldSince: settlement.failure?.since,
  });
}
