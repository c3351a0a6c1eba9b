import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Routing, SigningKeys } from '../inbound/types.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, DeliveryKind, Message, Settlement, Spool } from '../queue/delivery.ts';
import type { Meters } from '../queue/meters.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { type Settled, settle, settleUnattempted } from '../queue/settle.ts';
import { createForwarding, type ForwardingParts } from '../returns/forwarding.ts';
import { createNotifying, type NotifyingSettings } from '../returns/reports.ts';
import type { Returns } from '../returns/returns.ts';
import { createReturning } from '../returns/road.ts';
import { createRoad, type MailParts } from '../sending/road.ts';
import { createBeliefs } from '../store/beliefs.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import type { Poster, Rendered, Renderer, Told } from './types.ts';

/** How long an attempt that could not be made for a reason of ours is put off. */
export const PUT_OFF = 30_000;
/** How long one is put off for which the store could not be asked: a store that is back should not be waited for much longer. */
const WITHOUT_STORE = 10_000;

/** The parts that a delivery goes through. */
export interface DeliveryDeps {
  readonly spool: Spool;
  readonly renderer: Renderer;
  readonly poster: Poster;
  readonly destinations: Destinations;
  readonly signingKeys: SigningKeys;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Without these, mail going out stays on the spool. */
  readonly mail?: (MailParts & { readonly limit: number }) | undefined;
  /** Without it, mail that came back stays on the spool. */
  readonly returns?: Returns | undefined;
  readonly postmaster: ForwardingParts;
  readonly notifying: NotifyingSettings;
  readonly metrics?: Metrics | undefined;
  /** How long things have been tried; without it, as far as this process knows. */
  readonly time?: RunningTime | undefined;
}

export interface CarryDeps extends DeliveryDeps {
  readonly time: RunningTime;
  readonly meters: Meters;
  /** After how many milliseconds a delivery is given up. */
  readonly limit: number;
  /** True once the dispatcher stops: then nothing is waited for. */
  readonly stopping: () => boolean;
  /** True once those in flight had their time to finish: connections are cut from then on, which says nothing of the endpoint. */
  readonly abandoned: () => boolean;
}

/** What the endpoint has to say while a delivery is on its way to it. */
export interface Gate {
  /** Waits for a place among those in flight. False: not now, the endpoint was found to be away meanwhile. */
  enter(): boolean | Promise<boolean>;
  /** Hears of the result at once; the place is free from then on. */
  leave(result: Told, settled: Settled): void;
  /** Whether other deliveries passed since this one last failed. */
  othersPass(): boolean;
}

/** settled: attempted · gone: no longer on the spool · put off: nothing was attempted, for a reason of ours · turned back: nor here, the endpoint is away. */
export type Carried =
  | { readonly kind: 'settled'; readonly settled: Settled; readonly result: Told }
  /** Until this wall time, or for `PUT_OFF` when none is said. `moved`: its time begins then, because that is when it is wanted. */
  | { readonly kind: 'put off'; readonly at?: number; readonly moved?: boolean }
  | { readonly kind: 'gone' | 'turned back' };

export interface Carrier {
  /** One attempt, from the spool to the endpoint and its result back onto the spool. Never throws. */
  carry(waiting: Waiting, gate: Gate): Promise<Carried>;
  /** Ends a delivery whose time was over while its endpoint was away, unless somebody chose another time for it. Never throws. */
  giveUp(waiting: Waiting): Promise<Carried>;
}

export function createCarrier(deps: CarryDeps): Carrier {
  const { spool, renderer, poster, destinations, signingKeys, clock, ids, log, time, meters } = deps;
  const notifying = createNotifying(deps.notifying, deps);
  const road =
    deps.mail && createRoad({ ...deps, ...deps.mail, notifying, note: (settlement) => note('outbound', settlement) });
  const returning =
    deps.returns &&
    createReturning({ ...deps, returns: deps.returns, note: (settlement) => note('return', settlement) });

  const forwarding = createForwarding({
    ...deps,
    ...deps.postmaster,
    note: (settlement) => note('return', settlement),
  });

  async function carry(waiting: Waiting, gate: Gate): Promise<Carried> {
    try {
      return await attempt(waiting, gate);
    } catch (error) {
      if (!deps.stopping())
        log.error('delivery.fault', { delivery: waiting.delivery.id, message: waiting.delivery.messageId, error });
      return { kind: 'put off' };
    }
  }

  async function attempt(waiting: Waiting, gate: Gate): Promise<Carried> {
    const { delivery } = waiting;
    if ((waiting.attempts > 0 || delivery.notBefore !== undefined) && !(await stillWaits(waiting)))
      return { kind: 'gone' };
    if (delivery.kind === 'outbound') return road ? await road.attempt(waiting, gate) : { kind: 'put off' };
    if (delivery.kind === 'return' && delivery.task !== 'read') return await forwarding.attempt(waiting, gate);
    if (delivery.kind === 'return') return returning ? await returning.attempt(waiting, gate) : { kind: 'put off' };
    const destination = await destinations.of(delivery);
    if (destination.kind !== 'here') return await follow(delivery, destination);
    const found = await spool.message(delivery.messageId, delivery.id);
    if (!found) {
      await note(delivery.kind, settleUnattempted(delivery.id, 'dropped', waiting.parked, clock.now()));
      return { kind: 'gone' };
    }
    const keys = await signingKeys.keysFor(delivery.account, delivery.url);
    if (!keys) return { kind: 'put off', at: clock.now() + WITHOUT_STORE };
    const rendered = await renderer.render({
      ...found,
      delivery,
      keys: inTurn(keys, waiting.attempts),
      at: clock.now(),
    });
    if (rendered.parseError !== null) meters.unparsed();
    try {
      const carried = await post(waiting, rendered, gate);
      if (carried.kind !== 'settled') return carried;
      const fresh = found.message.verdicts || delivery.batch ? undefined : rendered.verdicts;
      if (fresh) meters.verdicts(fresh);
      await note(delivery.kind, carried.settled.settlement, fresh);
      if (found.message.envelope.dsn)
        await tell(found.message, found.message.verdicts ?? rendered.verdicts, delivery, carried.settled.outcome);
      return carried;
    } finally {
      // A file that cannot be removed is no reason to say anything else of the attempt.
      await renderer
        .discard(rendered.body)
        ?.catch((error: unknown) => log.error('delivery.fault', { delivery: delivery.id, error }));
    }
  }

  /** Changes the queue as another host was told to, for all that waits of this webhook or route. */
  async function follow({ batch, routeId }: Delivery, destination: Destination): Promise<Carried> {
    if (destination.kind === 'nowhere' && batch) await spool.events.forget(batch.webhook, clock.now());
    if (destination.kind === 'there')
      await (batch ? spool.events.redirect(batch.webhook, destination.url) : spool.redirect(routeId, destination.url));
    return destination.kind === 'unknown' ? { kind: 'put off', at: clock.now() + WITHOUT_STORE } : { kind: 'gone' };
  }

  /**
   * A stranger's reverse-path is told of only what he proved to be his: whoever asked for reports could have us write to anybody else
   * (RFC 3834 section 2).
   */
  async function tell(
    message: Message,
    { spf }: Verdicts,
    delivery: Delivery,
    outcome: Settled['outcome'],
  ): Promise<void> {
    if (outcome === 'deferred' || spf.result !== 'pass') return;
    await notifying.tell(message, delivery, outcome, outcome === 'failed' ? '5.4.7 delivery time expired' : '');
  }

  /** Between two attempts somebody may have dropped the delivery or sent it to another URL; what we hold does not know. */
  async function stillWaits({ delivery }: Waiting): Promise<boolean> {
    const queued = await spool.delivery(delivery.id);
    return queued?.state === 'waiting' && queued.url === delivery.url;
  }

  async function post(waiting: Waiting, rendered: Rendered, gate: Gate): Promise<Carried> {
    if (!(await gate.enter())) return { kind: 'turned back' };
    const result = await poster.post(waiting.delivery.url, rendered.headers, rendered.body);
    const settled = settle({
      delivery: { id: waiting.delivery.id, attempts: waiting.attempts, parked: waiting.parked },
      result,
      now: clock.now(),
      jitter: ids.jitter(),
      budget: { age: time.age(waiting.budgetFrom), limit: deps.limit, mayEnd: time.sure() },
      othersPass: gate.othersPass(),
    });
    if (deps.abandoned() && settled.outcome !== 'delivered') return { kind: 'turned back' };
    gate.leave(result, settled);
    return { kind: 'settled', settled, result };
  }

  /**
   * Writes a settlement, and the verdicts that were taken on the way to it, however long the spool takes to be able to.
   * A result that cannot be written holds its place among all attempts until it can: a daemon whose disk is full must stop
   * posting, for it would post the same things again and again.
   */
  async function note(of: DeliveryKind, settlement: Settlement, fresh?: Verdicts): Promise<void> {
    for (let told = false; ; told = true) {
      try {
        await spool.settle(settlement, fresh);
        if (settlement.state === 'dead') meters.dead(of);
        return;
      } catch (error) {
        if (deps.stopping()) return;
        if (!told) log.error('delivery.fault', { delivery: settlement.deliveryId, error });
        await new Promise<void>((resolve) => {
          clock.after(PUT_OFF, resolve);
        });
        if (deps.stopping()) return;
      }
    }
  }

  async function giveUp(waiting: Waiting): Promise<Carried> {
    const {
      delivery,
      delivery: { id, kind },
      parked,
    } = waiting;
    try {
      if (kind === 'outbound' && road) return await road.expire(waiting);
      await note(delivery.kind, settleUnattempted(id, 'dead', parked, clock.now()));
      const found = kind === 'outbound' ? undefined : await spool.message(delivery.messageId);
      if (found?.message.verdicts && found.message.envelope.dsn)
        await tell(found.message, found.message.verdicts, delivery, 'failed');
    } catch (error) {
      log.error('delivery.fault', { delivery: id, error });
    }
    return { kind: 'gone' };
  }

  return frozen({ carry, giveUp });
}

/**
 * While a rotation lasts there are two keys and room for one in X-Mandrill-Signature: odd attempts use the present one, even
 * ones the previous, so that a consumer that has not changed over yet gets its mail at the second try.
 */
function inTurn(keys: readonly string[], attempts: number): readonly string[] {
  return keys.length > 1 && attempts % 2 === 1 ? [...keys].reverse() : keys;
}

/** Where a delivery goes now. here: to its URL, as the queue has it · there: to another · nowhere: its webhook was deleted · unknown: the store is away, and nothing is known of it. */
export type Destination =
  | { readonly kind: 'here' | 'nowhere' | 'unknown' }
  | { readonly kind: 'there'; readonly url: string };

/** Whether posts still go where the queue of this host has them go: another host may have been told otherwise. */
export interface Destinations {
  of(delivery: Pick<Delivery, 'url' | 'routeId' | 'recipient' | 'batch'>): Promise<Destination>;
}

export interface DestinationDeps {
  readonly store: Pick<Store, 'webhooks' | 'inboundRoutes'>;
  readonly routing: Pick<Routing, 'urlOf'>;
  readonly clock: Clock;
}

/** How long a webhook is believed to be there, at its URL. */
const FRESH_MS = 5000;

const HERE = { kind: 'here' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

/**
 * Asked before every attempt. A webhook that was deleted gets nothing more. A route that was deleted has its mail all the same: we
 * took it for that URL.
 */
export function createDestinations({ store, routing, clock }: DestinationDeps): Destinations {
  const webhooks = createBeliefs(async (id) => (await store.webhooks.one({ id }))?.url ?? null, FRESH_MS, { clock });

  async function ofBatch(url: string, webhook: string): Promise<Destination> {
    const believed = await webhooks.of(webhook);
    if (believed === undefined) return UNKNOWN;
    if (believed === url) return HERE;
    // The queue may know better than what is believed: a call to this host changes both, one after the other.
    const now = await webhooks.now(webhook);
    return now === null ? { kind: 'nowhere' } : toThere(url, now);
  }

  async function ofMail({
    url,
    routeId,
    recipient,
  }: Pick<Delivery, 'url' | 'routeId' | 'recipient'>): Promise<Destination> {
    const believed = routing.urlOf(routeId, recipient.slice(recipient.lastIndexOf('@') + 1));
    if (believed === undefined || believed === url) return HERE;
    return toThere(url, (await store.inboundRoutes.one({ id: routeId }))?.url ?? url);
  }

  return frozen({
    async of(delivery) {
      try {
        return delivery.batch ? await ofBatch(delivery.url, delivery.batch.webhook) : await ofMail(delivery);
      } catch (error) {
        if (error instanceof StoreAway) return UNKNOWN;
        throw error;
      }
    },
  });
}

const toThere = (url: string, now: string): Destination => (now === url ? HERE : { kind: 'there', url: now });
