import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Service } from '../base/service.ts';
import { tableOf } from '../base/tables.ts';
import { DELIVERY_KINDS, type DeliveryKind, type Endpoint, type EndpointName, type Spool } from './delivery.ts';
import { createMakings, type LaneView, type Making, viewLane } from './insight.ts';
import { createDeliveryMeters, createDeliveryNotices, type Meters, showEndpoints } from './meters.ts';
import type { Carried, Engine, Gate, Roads } from './road.ts';
import type { Backlog } from './schedule/backlog.ts';
import { LONGEST_HOLD } from './schedule/breaker.ts';
import type { EndpointQueue } from './schedule/endpoint-queue.ts';
import { createFeeder, createIntake } from './schedule/feeder.ts';
import { createAgenda, createGate, createLag, createRounds, type Rounds } from './schedule/gate.ts';
import type { Lane, Times, Waiting } from './schedule/lane.ts';
import { createLanes } from './schedule/lanes.ts';

export interface DispatcherDeps {
  readonly spool: Spool;
  /** The road of each kind of delivery. */
  readonly roads: Roads;
  /** What waits for us is counted there. */
  readonly backlog: Backlog;
  /** How long things have been tried. */
  readonly time: RunningTime;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface Dispatcher extends Service {
  /** Nothing is in flight and nothing is due. */
  idle(): boolean;
  /** The lanes of these endpoints, or all. */
  lanes(isWanted?: (endpoint: Endpoint) => boolean): readonly LaneView[];
  /** What is being made ready for an endpoint, or for all of them. */
  making(endpoint?: EndpointName): Promise<readonly Making[]>;
  /**
   * Posts nothing to an endpoint until then (milliseconds since 1970); what waits for it goes on waiting, and its time
   * goes on. Resolves when a restart would know it too.
   */
  hold(endpoint: Endpoint, until: number): Promise<void>;
  /** Ends a hold. */
  release(endpoint: EndpointName): Promise<void>;
  /**
   * Makes all that waits for an endpoint due now, and probes it now if it is down. Answers how many were not due yet.
   */
  retry(endpoint: EndpointName): Promise<number>;
}

/** Attempts that are made ready or noted at one time beside each that is on its way, and beside all of them. */
const BESIDE_EACH = 3;
const BESIDE_ALL = 192;
/** How long `stop` waits for those in flight. */
const STOP_WAIT = 10_000;
/** How long an attempt that could not be made for a reason of ours is put off. */
const PUT_OFF = 30_000;

/** Attempts that may be made ready over a road, and those of them that may be on their way. */
interface Places {
  readonly posts: Rounds;
  readonly attempts: Rounds;
}

/**
 * Brings deliveries from the queue to their endpoints, each over the road of its kind: those that are due, in turn over
 * the endpoints, as many at a time as the road and each endpoint allow. What is in flight when the process ends is
 * still waiting on the queue.
 */
export function createDispatcher(deps: DispatcherDeps): Dispatcher {
  const { spool, roads, backlog, time, clock, ids, log, metrics } = deps;
  let phase: 'new' | 'running' | 'stopping' | 'abandoned' = 'new';
  const stopping = (): boolean => phase === 'stopping' || phase === 'abandoned';
  const notices = createDeliveryNotices(log, roads);
  const lag = createLag(clock);
  const lanes = createLanes(clock, roads);
  const makings = createMakings({ roads, clock });
  const meters = createDeliveryMeters(metrics);
  showEndpoints(lanes, metrics);
  const agenda = createAgenda<Lane>(clock, poke);
  const intake = createIntake({ spool, clock, log, roads, lanes, backlog, poke });
  const feeder = createFeeder({ spool, clock, log, roads, lanes: lanes.count, poke, stopping });
  const engine = createEngine({ ...deps, meters, stopping, abandoned: () => phase === 'abandoned' });
  // An attempt is made ready, carried and noted; only the middle has to do with the endpoint and waits for its place
  // there. Each road has places of its own: a server of mail may take ten minutes for what a webhook is allowed seconds
  // for.
  const places = placesOf(roads, (concurrency): Places => {
    const posts = createRounds(concurrency, (lane) => postOne(lane, posts));
    const beside = Math.min(concurrency * BESIDE_EACH, BESIDE_ALL);
    return { posts, attempts: createRounds(concurrency + beside, startOne) };
  });
  const allPlaces = [...new Set(Object.values(places))];

  /** Looks what there is to do for an endpoint: read more, start something now, or wait for a time. */
  function poke(lane: Lane): void {
    if (phase !== 'running') return;
    const now = clock.monotonic();
    if (lane.state.hold && !lane.isHeld(now)) {
      lane.release();
      keep(lane);
    }
    // A count must not outlive what it counted, should something vanish without being taken up.
    if (lane.holdsUp(now) || lane.isEmpty()) backlog.excuse(lane);
    if (lane.isLookDue(now)) giveUpOld(lane, now);
    if (lane.queue.wantsLoad(now)) feeder.feed(lane);
    if (lane.nextStart(now) > now) agenda.set(lane, lane.nextWake(now));
    else places[lane.kind].attempts.add(lane);
  }

  function startOne(lane: Lane): void {
    const now = clock.monotonic();
    const waiting = lane.takeNext(now);
    if (waiting) {
      const along = lane.takeAlong(waiting, now, roads[waiting.delivery.kind].sharing);
      for (let taken = 0; taken <= along.length; taken++) backlog.take(lane);
      void send(lane, waiting, along);
    }
    poke(lane);
  }

  function postOne(lane: Lane, posts: Rounds): void {
    if (lane.callNext()) posts.add(lane);
  }

  async function send(lane: Lane, waiting: Waiting, along: readonly Waiting[]): Promise<void> {
    const { inDoubt } = lane;
    const { attempts, posts } = places[lane.kind];
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
    const made = makings.begin(lane, [waiting, ...along], gate);
    const outcomes = await engine.carry(waiting, along, gate);
    gate.close();
    made();
    const now = { wall: clock.now(), steady: clock.monotonic() };
    // The last one first: what is put back goes to the front.
    for (const { waiting, carried } of outcomes.toReversed()) requeue(lane.queue, waiting, carried, now);
    for (const { waiting, carried } of outcomes)
      if (carried.kind === 'settled') notices.attempt(lane, waiting, carried);
    attempts.end(lane, inDoubt);
    poke(lane);
  }

  /** Deliveries of an endpoint that is away get no attempts; those whose time is over end without one. */
  function giveUpOld(lane: Lane, now: number): void {
    if (!time.sure()) return;
    const { attempts } = places[lane.kind];
    const isOver = ({ delivery, budgetFrom }: Waiting) => time.age(budgetFrom) >= roads[delivery.kind].limit;
    for (const waiting of lane.queue.takeOver(now, isOver)) {
      attempts.begin(lane, false);
      void engine.giveUp(waiting).then((carried) => {
        requeue(lane.queue, waiting, carried, { wall: clock.now(), steady: clock.monotonic() });
        if (carried.kind === 'gone') notices.givenUp(lane, waiting);
        attempts.end(lane, false);
      });
    }
  }

  /** Writes what a restart must not forget; undefined when that is nothing new. */
  function write(lane: Lane): Promise<void> | undefined {
    const memory = lane.newMemory(clock.now() - clock.monotonic());
    const { account, url, kind } = lane;
    return memory === undefined ? undefined : spool.keepEndpoint({ account, url, kind }, memory);
  }

  function keep(lane: Lane): void {
    write(lane)?.catch((error: unknown) => log.error('spool.fault', { error }));
  }

  return frozen({
    async start() {
      phase = 'running';
      await intake.open();
    },
    async stop() {
      phase = 'stopping';
      intake.close();
      agenda.stop();
      for (const lane of lanes.all()) lane.callAll();
      await Promise.all(allPlaces.map(({ attempts }) => attempts.stop((expired) => clock.after(STOP_WAIT, expired))));
      phase = 'abandoned';
    },
    lanes: (isWanted = () => true) => [...lanes.all()].filter(isWanted).map((lane) => viewLane(lane, clock)),
    making: makings.list,
    async hold(endpoint, until) {
      const lane = lanes.of(endpoint, null);
      lane.hold(Math.min(until - clock.now(), LONGEST_HOLD), clock.monotonic());
      poke(lane);
      await write(lane);
    },
    async release({ account, url }) {
      const lane = lanes.get(account, url);
      if (!lane) return;
      lane.release();
      poke(lane);
      await write(lane);
    },
    async retry({ account, url }) {
      const count = await spool.retryEndpoint(account, url, clock.now());
      const lane = lanes.get(account, url);
      lane?.doubt(clock.monotonic());
      if (lane) poke(lane);
      return count;
    },
    idle: () => allPlaces.every(({ attempts }) => !attempts.busy()) && !feeder.busy() && !intake.busy(),
  });
}

/** Places for each kind; kinds that go over the same road share them. */
function placesOf(roads: Roads, create: (concurrency: number) => Places): Readonly<Record<DeliveryKind, Places>> {
  const made = new Map(Object.values(roads).map((road) => [road, create(road.concurrency)]));
  return tableOf(DELIVERY_KINDS, (kind) => made.get(roads[kind]) ?? create(roads[kind].concurrency));
}

interface EngineDeps extends Pick<DispatcherDeps, 'spool' | 'roads' | 'clock' | 'log'> {
  readonly meters: Meters;
  /** True once the dispatcher stops: then nothing is waited for. */
  readonly stopping: () => boolean;
  readonly abandoned: () => boolean;
}

/** Takes deliveries over their roads. Neither function ever throws. */
function createEngine({ spool, roads, clock, log, meters, stopping, abandoned }: EngineDeps) {
  /**
   * A result that cannot be written holds its place among all attempts until it can: a daemon whose disk is full must
   * stop posting, for it would post the same things again and again.
   */
  const settle: Engine['settle'] = async ({ id, kind }, settlement, fresh) => {
    for (let logged = false; ; logged = true) {
      try {
        await spool.settle(settlement, fresh);
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
  };
  const engine: Engine = frozen({ settle, abandoned });

  /**
   * Between two attempts somebody may have dropped the delivery or sent it to another URL; what we hold does not know.
   */
  async function stillWaits({ delivery }: Waiting): Promise<boolean> {
    const queued = await spool.delivery(delivery.id);
    return queued?.state === 'waiting' && queued.url === delivery.url;
  }

  async function carryOne(waiting: Waiting, gate: Gate): Promise<Carried> {
    const { delivery } = waiting;
    try {
      const held = waiting.attempts > 0 || waiting.alone || delivery.notBefore !== undefined;
      if (held && !(await stillWaits(waiting))) return { kind: 'gone' };
      return await roads[delivery.kind].attempt(waiting, gate, engine);
    } catch (error) {
      if (!stopping()) log.error('delivery.fault', { delivery: delivery.id, message: delivery.messageId, error });
      return { kind: 'put off' };
    }
  }

  return frozen({
    /** One attempt. A fault of ours with several does not tell which one it is about: each is tried alone. */
    async carry(first: Waiting, along: readonly Waiting[], gate: Gate): Promise<readonly Outcome[]> {
      const { sharing } = roads[first.delivery.kind];
      if (!sharing || along.length === 0) return [{ waiting: first, carried: await carryOne(first, gate) }];
      const all = [first, ...along];
      const carried = await sharing.attempt(all, gate, engine).catch((error: unknown) => {
        if (!stopping()) log.error('delivery.fault', { deliveries: all.map(({ delivery }) => delivery.id), error });
        return [];
      });
      return all.map((waiting, i) => ({ waiting, carried: carried[i] ?? { kind: 'turned back', alone: true } }));
    },
    /** Ends a delivery whose time was over while its endpoint was away, unless somebody chose another time for it. */
    async giveUp(waiting: Waiting): Promise<Carried> {
      const { delivery } = waiting;
      try {
        return await roads[delivery.kind].expire(waiting, engine);
      } catch (error) {
        log.error('delivery.fault', { delivery: delivery.id, error });
        return { kind: 'gone' };
      }
    },
  });
}

/** A delivery that was taken up, and what came of that. */
interface Outcome {
  readonly waiting: Waiting;
  readonly carried: Carried;
}

/** What becomes of a delivery in memory after it was taken and carried; the queue knows already. */
function requeue(queue: EndpointQueue, waiting: Waiting, carried: Carried, { wall, steady: now }: Times): void {
  if (carried.kind === 'turned back') return queue.putBack(carried.alone ? { ...waiting, alone: true } : waiting);
  if (carried.kind === 'put off') {
    const due = now + (carried.at === undefined ? PUT_OFF : Math.max(0, carried.at - wall));
    return queue.defer({
      ...waiting,
      due,
      budgetFrom: carried.moved && carried.at !== undefined ? carried.at : waiting.budgetFrom,
    });
  }
  const settled = carried.kind === 'settled' ? carried.settled : undefined;
  if (settled?.outcome !== 'deferred') return queue.done(waiting.delivery.id);
  const { wait, settlement } = settled;
  queue.defer({
    ...waiting,
    attempts: waiting.attempts + 1,
    timed: false,
    parked: settlement.parked,
    due: now + wait,
    failedAt: now,
  });
}
