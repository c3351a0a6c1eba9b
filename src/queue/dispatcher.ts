import { frozen } from '../base/frozen.ts';
import { createRunningTime } from '../base/running-time.ts';
import type { Service } from '../base/service.ts';
import { type Carried, createCarrier, type DeliveryDeps, PUT_OFF } from '../webhooks/carry.ts';
import type { DeliveryKind } from './delivery.ts';
import { createMeters, createNotices, showEndpoints } from './meters.ts';
import { toMemory } from './schedule/breaker.ts';
import type { EndpointQueue } from './schedule/endpoint-queue.ts';
import { createFeeder, createIntake } from './schedule/feeder.ts';
import { createAgenda, createGate, createRounds, isInDoubt, type Rounds } from './schedule/gate.ts';
import {
  createLanes,
  hasPlace,
  isLookDue,
  type Lane,
  nextStart,
  nextWake,
  takeNext,
  type Waiting,
} from './schedule/lane.ts';

export interface DispatcherSettings {
  /** Posts at one time, in all. */
  readonly concurrency: number;
  /** Posts at one time to one endpoint. */
  readonly concurrencyPerEndpoint: number;
  /** Messages on their way over SMTP at one time, in all; as many as posts when not set. */
  readonly mailConcurrency?: number | undefined;
  /** Messages on their way to one destination of mail at one time; as many as posts when not set. */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivery is tried. */
  readonly retryHours: number;
}

export interface Dispatcher extends Service {
  /** Nothing is in flight and nothing is due. */
  idle(): boolean;
}

/** Attempts that are made ready, posted or noted at one time, for each post. */
const ATTEMPTS_PER_POST = 4;
/** How long `stop` waits for those in flight. */
const STOP_WAIT = 10_000;

/**
 * Brings deliveries from the spool to their endpoints: those that are due, in turn over the endpoints, as many at a time as
 * the settings and each endpoint allow. What is in flight when the process ends is still waiting on the spool.
 */
export function createDispatcher(settings: DispatcherSettings, deps: DeliveryDeps): Dispatcher {
  const { spool, clock, ids, log } = deps;
  const most = (kind: DeliveryKind) =>
    kind === 'outbound'
      ? (settings.concurrencyPerDestination ?? settings.concurrencyPerEndpoint)
      : settings.concurrencyPerEndpoint;
  const limit = settings.retryHours * 3_600_000;
  const limitOf = (kind: DeliveryKind) => (kind === 'outbound' ? (deps.mail?.limit ?? limit) : limit);
  let phase: 'new' | 'running' | 'stopping' | 'abandoned' = 'new';
  const stopping = (): boolean => phase === 'stopping' || phase === 'abandoned';
  const time = deps.time ?? createRunningTime(clock);
  const notices = createNotices(log);
  const lanes = createLanes(clock, most);
  const meters = createMeters(deps.metrics);
  showEndpoints(lanes, deps.metrics);
  const agenda = createAgenda<Lane>(clock, poke);
  const intake = createIntake({ spool, clock, log, lanes, poke });
  const feeder = createFeeder({ spool, clock, log, lanes: lanes.count, poke, stopping });
  // An attempt is made ready, posted and noted; only the post has to do with the endpoint and waits for its place there.
  // Mail going out has places of its own: a server of mail may take ten minutes for what a webhook is allowed seconds for.
  const places = {
    posts: createPlaces(settings.concurrency),
    mail: createPlaces(settings.mailConcurrency ?? settings.concurrency),
  };
  const placesOf = ({ kind }: Lane) => (kind === 'outbound' ? places.mail : places.posts);
  const carrier = createCarrier({ ...deps, time, meters, limit, stopping, abandoned: () => phase === 'abandoned' });

  function createPlaces(concurrency: number) {
    const posts = createRounds(concurrency, (lane) => postOne(lane, posts));
    return { posts, attempts: createRounds(concurrency * ATTEMPTS_PER_POST, startOne) };
  }

  /** Looks what there is to do for an endpoint: read more, start something now, or wait for a time. */
  function poke(lane: Lane): void {
    if (phase !== 'running') return;
    const now = clock.monotonic();
    if (isLookDue(lane, now)) giveUpOld(lane, now);
    if (lane.queue.wantsLoad(now)) feeder.feed(lane);
    if (nextStart(lane, now) > now) agenda.set(lane, nextWake(lane, now));
    else placesOf(lane).attempts.add(lane);
  }

  function startOne(lane: Lane): void {
    const waiting = takeNext(lane, clock.monotonic());
    if (waiting) void send(lane, waiting);
    poke(lane);
  }

  function postOne(lane: Lane, posts: Rounds): void {
    if (hasPlace(lane)) lane.turns.shift()?.();
    if (lane.turns.length > 0 && hasPlace(lane)) posts.add(lane);
  }

  async function send(lane: Lane, waiting: Waiting): Promise<void> {
    const inDoubt = isInDoubt(lane);
    const { attempts, posts } = placesOf(lane);
    attempts.begin(inDoubt);
    lane.usedAt = clock.monotonic();
    const gate = createGate(lane, waiting, { clock, ids, posts, stopping }, (change, result, settled) => {
      meters.attempt(waiting.delivery, result, settled);
      if (change) notices.endpoint(lane, change, result);
      keep(lane);
      poke(lane);
    });
    const carried = await carrier.carry(waiting, gate);
    gate.close();
    requeue(lane.queue, waiting, carried, { wall: clock.now(), steady: clock.monotonic() });
    if (carried.kind === 'settled') notices.attempt(lane, waiting, carried);
    attempts.end(inDoubt);
    poke(lane);
  }

  /** Deliveries of an endpoint that is away get no attempts; those whose time is over end without one. */
  function giveUpOld(lane: Lane, now: number): void {
    if (!time.sure()) return;
    const { attempts } = placesOf(lane);
    for (const waiting of lane.queue.takeOver(now, ({ budgetFrom }) => time.age(budgetFrom) >= limitOf(lane.kind))) {
      attempts.begin(false);
      void carrier.giveUp(waiting).then((carried) => {
        requeue(lane.queue, waiting, carried, { wall: clock.now(), steady: clock.monotonic() });
        if (carried.kind === 'gone') notices.givenUp(lane, waiting);
        attempts.end(false);
      });
    }
  }

  function keep(lane: Lane): void {
    const memory = toMemory(lane.state, clock.now() - clock.monotonic());
    if (memory === lane.kept) return;
    lane.kept = memory;
    const { account, url, kind } = lane;
    spool.keepEndpoint({ account, url, kind }, memory).catch((error: unknown) => log.error('spool.fault', { error }));
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
      for (const lane of lanes.all()) for (const turn of lane.turns.splice(0)) turn();
      await Promise.all(
        [places.posts, places.mail].map(({ attempts }) => attempts.stop((expired) => clock.after(STOP_WAIT, expired))),
      );
      phase = 'abandoned';
    },
    idle: () => !places.posts.attempts.busy() && !places.mail.attempts.busy() && !feeder.busy() && !intake.busy(),
  });
}

/** What becomes of a delivery in memory after it was taken and carried; the spool knows already. */
function requeue(
  queue: EndpointQueue,
  waiting: Waiting,
  carried: Carried,
  { wall, steady: now }: { readonly wall: number; readonly steady: number },
): void {
  if (carried.kind === 'turned back') return queue.putBack(waiting);
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
    parked: settlement.parked,
    due: now + wait,
    failedAt: now,
  });
}
