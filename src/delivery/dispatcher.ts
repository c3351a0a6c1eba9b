import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import type { SigningKeys } from '../inbound/types.ts';
import type { Delivery, QueuedDelivery, Spool } from '../spool/types.ts';
import { createAgenda } from './agenda.ts';
import { type Carried, createCarrier, PUT_OFF } from './carry.ts';
import { askNow, fromMemory, toMemory } from './endpoint.ts';
import { HELD } from './endpoint-queue.ts';
import { createGate } from './gate.ts';
import { createLane, isLookDue, isSpare, type Lane, nextStart, nextWake, takeNext } from './lane.ts';
import { createNotices } from './notices.ts';
import { createRunningTime } from './running-time.ts';
import { settleUnattempted } from './settle.ts';
import type { Poster, Renderer } from './types.ts';
import { toFresh, toWaiting, type Waiting } from './waiting.ts';

export interface DispatcherSettings {
  /** Attempts at one time, in all. */
  readonly concurrency: number;
  /** Posts at one time to one endpoint. */
  readonly concurrencyPerEndpoint: number;
  /** How long a delivery is tried. */
  readonly retryHours: number;
}

export interface DispatcherDeps {
  readonly spool: Spool;
  readonly renderer: Renderer;
  readonly poster: Poster;
  readonly signingKeys: SigningKeys;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface Dispatcher extends Service {
  /** Nothing is in flight and nothing is due. */
  idle(): boolean;
}

/** The end of time for the spool: what is due later is held too, by a clock that cannot be set. */
const EVER = 8.64e15;
const LOAD_AGAIN = 5000;
/** How long `stop` waits for those in flight. */
const STOP_WAIT = 10_000;
/** How long an endpoint's deliveries are left on the spool at most, whatever a wrong clock wrote. */
const LONGEST_SLEEP = 1_800_000;
/** Reads of the spool at one time, so that a start with ten thousand endpoints does not hold up mail that comes in. */
const LOADS = 8;
/** Endpoints in memory above which those without work are forgotten. */
const MANY_LANES = 1000;

/**
 * Brings deliveries from the spool to their endpoints: those that are due, in turn over the endpoints, as many at a time as
 * the settings and each endpoint allow. What is in flight when the process ends is still waiting on the spool.
 */
export function createDispatcher(settings: DispatcherSettings, deps: DispatcherDeps): Dispatcher {
  const { spool, clock, ids, log } = deps;
  const most = settings.concurrencyPerEndpoint;
  const limit = settings.retryHours * 3_600_000;
  const time = createRunningTime(clock);
  const notices = createNotices(log);
  const lanes = new Map<string, Lane>();
  // Lanes in which something may start now, in turn. A Set keeps the order in which they came.
  const ready = new Set<Lane>();
  // Lanes that want to read while enough others do.
  const hungry = new Set<Lane>();
  const agenda = createAgenda<Lane>(clock, poke);
  const carrier = createCarrier({ ...deps, time, limit, stopping: () => phase === 'stopping', abandoned: () => abandoned });
  let phase: 'new' | 'restoring' | 'running' | 'stopping' = 'new';
  let abandoned = false;
  let inFlight = 0;
  let loads = 0;
  let pumping = false;
  let resyncing = false;
  let early: Delivery[] = [];
  let onEmpty = (): void => {};

  function laneOf(account: string, url: string, memory: string | null): Lane {
    const key = `${account}\0${url}`;
    const known = lanes.get(key);
    if (known) return known;
    const now = clock.monotonic();
    if (lanes.size >= MANY_LANES) for (const [name, lane] of lanes) if (isSpare(lane, now)) lanes.delete(name);
    const lane = createLane(account, url, fromMemory(memory, clock.now() - now, now, most), memory, now);
    lanes.set(key, lane);
    return lane;
  }

  /** Looks what there is to do for an endpoint: read more, start something now, or wait for a time. */
  function poke(lane: Lane): void {
    if (phase !== 'running') return;
    const now = clock.monotonic();
    if (isLookDue(lane, now)) giveUpOld(lane, now);
    if (lane.queue.wantsLoad(now)) feed(lane);
    if (nextStart(lane, now, most) > now) return agenda.set(lane, nextWake(lane, now, most));
    ready.add(lane);
    pumpSoon();
  }

  function pumpSoon(): void {
    if (pumping) return;
    pumping = true;
    queueMicrotask(pump);
  }

  function pump(): void {
    pumping = false;
    while (phase === 'running' && inFlight < settings.concurrency) {
      const [lane] = ready;
      if (!lane) return;
      ready.delete(lane);
      const waiting = takeNext(lane, clock.monotonic(), most);
      if (waiting) start(lane, waiting);
      poke(lane);
    }
  }

  function start(lane: Lane, waiting: Waiting): void {
    inFlight++;
    lane.usedAt = clock.monotonic();
    const gate = createGate(lane, waiting, { clock, ids, most, stopping: () => phase === 'stopping' }, (change, result) => {
      if (change) notices.endpoint(lane, change, result);
      keep(lane);
      poke(lane);
    });
    void carrier.carry(waiting, gate).then((carried) => {
      gate.close();
      finish(lane, waiting, carried);
    });
  }

  function finish(lane: Lane, waiting: Waiting, carried: Carried): void {
    requeue(lane, waiting, carried);
    if (carried.kind === 'settled') notices.attempt(lane, waiting, carried);
    ended();
    poke(lane);
  }

  function requeue({ queue }: Lane, waiting: Waiting, carried: Carried): void {
    const now = clock.monotonic();
    if (carried.kind === 'turned back') return queue.putBack(waiting);
    if (carried.kind === 'put off') return queue.defer({ ...waiting, due: now + PUT_OFF });
    const settled = carried.kind === 'settled' ? carried.settled : undefined;
    if (settled?.outcome !== 'deferred') return queue.done(waiting.delivery.id);
    const { wait, settlement } = settled;
    queue.defer({ ...waiting, attempts: waiting.attempts + 1, parked: settlement.parked, due: now + wait, failedAt: now });
  }

  function ended(): void {
    inFlight--;
    if (inFlight === 0) onEmpty();
    if (ready.size > 0) pumpSoon();
  }

  /** Deliveries of an endpoint that is away get no attempts; those whose time is over end without one. */
  function giveUpOld(lane: Lane, now: number): void {
    if (!time.sure()) return;
    for (const waiting of lane.queue.takeOver(now, ({ budgetFrom }) => time.age(budgetFrom) >= limit)) {
      inFlight++;
      void carrier.note(settleUnattempted(waiting.delivery.id, 'dead', waiting.parked, clock.now())).then(() => {
        lane.queue.done(waiting.delivery.id);
        notices.givenUp(lane, waiting);
        ended();
      });
    }
  }

  function feed(lane: Lane): void {
    if (loads >= LOADS) hungry.add(lane);
    else void load(lane);
  }

  async function load(lane: Lane): Promise<void> {
    loads++;
    // With many endpoints each holds less, so that a long queue for all of them still fits into memory.
    const count = lanes.size > 100 ? HELD / 4 : HELD;
    const found = await spool.due(lane.account, lane.url, EVER, count, lane.queue.beginLoad()).catch((error: unknown) => {
      if (phase === 'running') log.error('spool.fault', { error });
      return undefined;
    });
    loads--;
    const now = clock.monotonic();
    lane.queue.endLoad(found?.map((queued) => held(lane, queued, now)), found?.length === count, now + LOAD_AGAIN);
    if (found && found.length < count) lane.pulling = false;
    lane.lookAt = now;
    poke(lane);
    const [next] = hungry;
    if (!next) return;
    hungry.delete(next);
    poke(next);
  }

  function held(lane: Lane, queued: QueuedDelivery, now: number): Waiting {
    const waiting = toWaiting(queued, { wall: clock.now(), steady: now });
    return lane.pulling && !waiting.parked ? { ...waiting, due: now } : waiting;
  }

  function keep(lane: Lane): void {
    const memory = toMemory(lane.state, clock.now() - clock.monotonic());
    if (memory === lane.kept) return;
    lane.kept = memory;
    spool.keepEndpoint(lane.account, lane.url, memory).catch((error: unknown) => log.error('spool.fault', { error }));
  }

  function onChange(fresh: readonly Delivery[]): void {
    if (phase === 'restoring') early.push(...fresh);
    if (phase !== 'running') return;
    if (fresh.length === 0) return void resync();
    const now = { wall: clock.now(), steady: clock.monotonic() };
    for (const delivery of fresh) {
      const lane = laneOf(delivery.account, delivery.url, null);
      lane.queue.addFresh(toFresh(delivery, now), now.steady);
      poke(lane);
    }
  }

  /** Somebody changed the queue by hand: what is held may be wrong, and what was thought of the endpoints too. */
  async function resync(): Promise<void> {
    for (const lane of lanes.values()) {
      lane.queue.forget(clock.monotonic());
      lane.state = askNow(lane.state, clock.monotonic());
    }
    if (resyncing) return;
    resyncing = true;
    await restore().catch((error: unknown) => log.error('spool.fault', { error }));
    resyncing = false;
    for (const lane of lanes.values()) poke(lane);
  }

  /** Learns of every endpoint that has something on the spool. */
  async function restore(): Promise<void> {
    for (const { account, url, waiting, nextDue, memory } of await spool.endpoints()) {
      if (waiting === 0 && memory === null) continue;
      const known = lanes.has(`${account}\0${url}`);
      const lane = laneOf(account, url, memory);
      const sleep = Math.min(Math.max(nextDue - clock.now(), 0), LONGEST_SLEEP);
      if (!known && waiting > 0) lane.queue.forget(clock.monotonic() + sleep);
    }
  }

  return Object.freeze({
    async start() {
      phase = 'restoring';
      spool.onChange(onChange);
      await restore();
      phase = 'running';
      const missed = early;
      early = [];
      if (missed.length > 0) onChange(missed);
      for (const lane of lanes.values()) poke(lane);
    },
    async stop() {
      phase = 'stopping';
      agenda.stop();
      for (const lane of lanes.values()) for (const turn of lane.turns.splice(0)) turn();
      if (inFlight > 0) {
        await new Promise<void>((resolve) => {
          const cancel = clock.after(STOP_WAIT, resolve);
          onEmpty = () => { cancel(); resolve(); };
        });
      }
      abandoned = true;
    },
    idle: () => inFlight === 0 && loads === 0 && hungry.size === 0 && ready.size === 0 && !pumping && !resyncing,
  });
}
