import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { RunningTime } from '../base/running-time.ts';
import { FORMATS, MANDRILL, type PostStyle } from '../inbound/formats.ts';
import { isPulled } from '../inbound/pulled.ts';
import type { RouteTarget, Routing } from '../inbound/types.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import type { Carried, Engine, Gate, Road } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { type AttemptResult, errorOf, type Settled, settle, settleUnattempted } from '../queue/settle.ts';
import { createBeliefs } from '../store/beliefs.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import { createPreparation, type PreparationDeps } from './preparation.ts';
import { createSharedPosts } from './shared-posts.ts';
import type { Findings, Mail, Post, Poster } from './types.ts';

// The road for deliveries of the kinds `inbound` and `events`: posts a message or a batch of events, signed.

/** Milliseconds until a delivery is retried if the store was unavailable; short, so that it resumes soon after. */
const WITHOUT_STORE = 10_000;

export interface WebhookRoadSettings
  extends Pick<Road, 'concurrency' | 'concurrencyPerEndpoint' | 'concurrencyAtStart'> {
  /** How long a delivery is retried. */
  readonly retryHours: number;
  /** How long a delivery of a sequence may fail before the next one is tried. */
  readonly orderHoldMs: number;
  /** Maximum bytes of JSON in a POST of several events. */
  readonly batchBytes: number;
}

export interface WebhookRoadDeps extends PreparationDeps {
  readonly spool: PreparationDeps['spool'] &
    Pick<Spool, 'redirect'> & { readonly events: Pick<Spool['events'], 'forget' | 'redirect'> };
  /** Returns the progress of deliveries in the renderer. */
  readonly steps: NonNullable<Road['steps']>;
  readonly poster: Poster;
  readonly destinations: Destinations;
  readonly time: RunningTime;
  readonly ids: Ids;
}

const TURNED_BACK = { kind: 'turned back' } as const;

const ALONE = { kind: 'turned back', alone: true } as const;

/** A delivery with its message. */
type WaitingMail = readonly [waiting: Waiting, mail: Mail];

/** The outcome of each delivery. */
type Outcomes = ReadonlyMap<Waiting, Carried>;

/** The same outcome for all. */
const each = (mail: readonly WaitingMail[], carried: Carried): Outcomes =>
  new Map(mail.map(([waiting]) => [waiting, carried]));

/** The road to webhooks. */
export function createWebhookRoad(settings: WebhookRoadSettings, deps: WebhookRoadDeps): Road {
  const { spool, poster, destinations, clock, ids, time } = deps;
  const preparation = createPreparation(deps);
  const limit = settings.retryHours * 3_600_000;
  const sharedPosts = createSharedPosts(settings, { batchEvents: destinations.batchEvents, clock });

  /** Makes one attempt for one delivery, or for several of one route; returns their outcomes in order. */
  async function attempt(all: readonly Waiting[], gate: Gate, engine: Engine): Promise<readonly Carried[]> {
    const [first] = all;
    if (!first) return [];
    const destination = await destinations.of(first.delivery);
    if (destination.kind !== 'here') {
      const carried = await follow(first.delivery, destination);
      return all.map(() => carried);
    }
    const found = await Promise.all(all.map((waiting) => find(waiting, all.length > 1, engine)));
    const mail = found.flatMap((one, i): WaitingMail[] => {
      const waiting = all[i];
      return waiting && 'message' in one ? [[waiting, one]] : [];
    });
    const carried = await carry(mail, gate, engine);
    return all.map((waiting, i) => {
      const one = found[i];
      return one && !('message' in one) ? one : (carried.get(waiting) ?? ALONE);
    });
  }

  /** Finds the message of a delivery, or returns the outcome if there is none. */
  async function find(waiting: Waiting, shared: boolean, engine: Engine): Promise<Mail | Carried> {
    const { delivery, parked } = waiting;
    const found = await preparation.find(waiting);
    if ('message' in found) return shared && found.body.kind === 'file' ? ALONE : found;
    if (found.none === 'later') return { kind: 'put off', at: found.at };
    await engine.settle(delivery, settleUnattempted(delivery.id, 'dropped', parked, clock.now()));
    return { kind: 'gone' };
  }

  /** Posts the messages and returns the outcomes of those that were in the POST. */
  async function carry(mail: readonly WaitingMail[], gate: Gate, engine: Engine): Promise<Outcomes> {
    const [first, ...others] = mail;
    if (!first) return new Map();
    const [{ delivery }] = first;
    const target = destinations.target(delivery);
    const post = await preparation.render([first, ...others], target);
    if (!post) return new Map();
    if (post === 'store away') return each(mail, { kind: 'put off', at: clock.now() + WITHOUT_STORE });
    try {
      return await send(mail, post, target, gate, engine);
    } finally {
      await preparation.discard(delivery, post);
    }
  }

  /** Applies a change made on another host to all queued deliveries of this webhook or route. */
  async function follow({ batch, routeId }: Delivery, destination: Destination): Promise<Carried> {
    if (destination.kind === 'nowhere' && batch) await spool.events.forget(batch.webhook, clock.now());
    if (destination.kind === 'there')
      await (batch ? spool.events.redirect(batch.webhook, destination.url) : spool.redirect(routeId, destination.url));
    return destination.kind === 'unknown' ? { kind: 'put off', at: clock.now() + WITHOUT_STORE } : { kind: 'gone' };
  }

  async function send(
    mail: readonly WaitingMail[],
    { id, headers, body, found }: Post,
    target: PostTarget,
    gate: Gate,
    engine: Engine,
  ): Promise<Outcomes> {
    const posted = mail.flatMap((one, i) => (found[i] ? [{ one, found: found[i] }] : []));
    const all = posted.map(({ one }) => one);
    const [first] = all;
    if (!first || !(await gate.enter())) return each(all, TURNED_BACK);
    const batch = all.length > 1 ? id : undefined;
    const [{ delivery }] = first;
    const result = await poster.post(delivery.url, { ...headers, ...basicAuth(target.password) }, body);
    const judged = posted.map((part) => ({ ...part, settled: judge(part.one, batch, target, result, gate) }));
    const [{ settled } = { settled: undefined }] = judged;
    const delivered = settled?.outcome === 'delivered';
    if (!settled || (engine.abandoned() && !delivered)) return each(all, TURNED_BACK);
    const summary = result.kind === 'unanswered' ? { ...result, error: errorOf(result) } : result;
    gate.leave(summary, settled, all.length);
    if (batch !== undefined) sharedPosts.ended(delivery.routeId, result, delivered);
    await Promise.all(judged.map(({ one, found, settled }) => note(one, found, settled, engine)));
    return new Map(
      judged.map(({ one: [waiting], settled }) => [waiting, { kind: 'settled', settled, result: summary }]),
    );
  }

  function judge(
    [waiting]: WaitingMail,
    batch: string | undefined,
    target: PostTarget,
    result: AttemptResult,
    gate: Gate,
  ): Settled {
    const { delivery, attempts, parked, budgetFrom, heldSince: since } = waiting;
    const isOrdered = delivery.sequence !== undefined;
    return settle({
      delivery: { id: delivery.id, attempts, parked },
      result,
      now: clock.now(),
      jitter: ids.jitter(),
      budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
      othersPass: gate.othersPass(),
      ...(isOrdered && { order: { since, patience: settings.orderHoldMs, isUp: gate.isUp() } }),
      stop: FORMATS[target.format].stop,
      batch,
    });
  }

  /** Records the outcome of a delivery, with new verdicts, and sends the DSN if the sender requested one. */
  async function note(
    [{ delivery }, { message }]: WaitingMail,
    found: Findings,
    { settlement, outcome }: Settled,
    engine: Engine,
  ): Promise<void> {
    await engine.settle(delivery, settlement, preparation.fresh(delivery, message, found));
    await preparation.tell(message, message.verdicts ?? found.verdicts, delivery, outcome);
  }

  return frozen({
    concurrency: settings.concurrency,
    concurrencyPerEndpoint: settings.concurrencyPerEndpoint,
    concurrencyAtStart: settings.concurrencyAtStart,
    heedsLatency: true,
    limit,
    timed: false,
    isPulled,
    isAlarming: () => true,
    attempt: async (waiting, gate, engine) => (await attempt([waiting], gate, engine))[0] ?? TURNED_BACK,
    sharing: frozen({ with: sharedPosts.with, attempt }),
    steps: deps.steps,
    async expire({ delivery, parked }, engine): Promise<Carried> {
      await engine.settle(delivery, settleUnattempted(delivery.id, 'dead', parked, clock.now()));
      const found = await spool.message(delivery.messageId);
      if (found?.message.verdicts) await preparation.tell(found.message, found.message.verdicts, delivery, 'failed');
      return { kind: 'gone' };
    },
  });
}

/**
 * Where a delivery goes now. here: to its queued URL · there: to another URL · nowhere: its webhook was deleted ·
 * unknown: the store is unavailable and nothing is cached.
 */
type Destination = { readonly kind: 'here' | 'nowhere' | 'unknown' } | { readonly kind: 'there'; readonly url: string };

/** Checks whether the queued URL is still current: another host may have changed it. */
export interface Destinations {
  of(delivery: Pick<Delivery, 'url' | 'routeId' | 'recipient' | 'batch'>): Promise<Destination>;
  /** How many messages of this route may share a POST; other formats than Mandrill's hold one. */
  batchEvents(delivery: Pick<Delivery, 'routeId' | 'recipient'>): number;
  /** How it is posted. The mail of a deleted route, and a batch of events, has the form of Mandrill. */
  target(delivery: Pick<Delivery, 'routeId' | 'recipient'>): PostTarget;
}

/** The form of a post, and the password that it is sent with. */
export type PostTarget = PostStyle & Pick<RouteTarget, 'password'> & { readonly url: string | null };

/** For mail whose route is not known. */
export const PLAIN_TARGET: PostTarget = { ...MANDRILL, password: null, url: null };

/** Rails expects this user; others ignore it. A user and password in the URL come first (post/post.ts). */
export function basicAuth(password: string | null): Readonly<Record<string, string>> {
  if (password === null) return {};
  return { authorization: `Basic ${Buffer.from(`actionmailbox:${password}`).toString('base64')}` };
}

interface DestinationDeps {
  readonly store: Pick<Store, 'webhooks' | 'inboundRoutes'>;
  readonly routing: Pick<Routing, 'routeOf'>;
  readonly clock: Clock;
}

/** Milliseconds for which the URL of a webhook is cached. */
const FRESH_MS = 5000;

const HERE = { kind: 'here' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

/**
 * Checks the destination before every attempt. A deleted webhook gets nothing more. Mail of a deleted route is still
 * delivered, because we accepted it for that URL.
 */
export function createDestinations({ store, routing, clock }: DestinationDeps): Destinations {
  const webhooks = createBeliefs(async (id) => (await store.webhooks.one({ id }))?.url ?? null, FRESH_MS, { clock });

  async function ofBatch(url: string, webhook: string): Promise<Destination> {
    const believed = await webhooks.of(webhook);
    if (believed === undefined) return UNKNOWN;
    if (believed === url) return HERE;
    // The queue may be newer than the cache: an API call on this host updates both, one after the other.
    const now = await webhooks.now(webhook);
    return now === null ? { kind: 'nowhere' } : toThere(url, now);
  }

  async function ofMail({
    url,
    routeId,
    recipient,
  }: Pick<Delivery, 'url' | 'routeId' | 'recipient'>): Promise<Destination> {
    const believed = routing.routeOf(routeId, domainOf(recipient))?.url;
    if (believed === undefined || believed === url) return HERE;
    return toThere(url, (await store.inboundRoutes.one({ id: routeId }))?.url ?? url);
  }

  return frozen({
    batchEvents({ routeId, recipient }) {
      const target = routing.routeOf(routeId, domainOf(recipient));
      return target?.format === 'mandrill' ? target.batchEvents : 1;
    },
    target: ({ routeId, recipient }) => routing.routeOf(routeId, domainOf(recipient)) ?? PLAIN_TARGET,
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

/** The domain of an address, as written. */
const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1);

const toThere = (url: string, now: string): Destination => (now === url ? HERE : { kind: 'there', url: now });
