import { HOUR_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { RunningTime } from '../base/running-time.ts';
import { FORMATS } from '../inbound/formats.ts';
import { isPulled } from '../inbound/pulled.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import {
  type Attempted,
  type DeliveryOutcome,
  type EndpointStatus,
  notSent,
  type Prepared,
  type Road,
  type Shipment,
  sameFor,
} from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/waiting.ts';
import { type AttemptResult, errorOf, type Settled, settle, settleUnattempted } from '../queue/settle.ts';
import { basicAuth, type Destination, type Destinations, type PostTarget } from './destinations.ts';
import { createPreparation, type PreparationDeps } from './preparation.ts';
import { createSharedPosts } from './shared-posts.ts';
import type { Findings, Mail, Post, Poster } from './types.ts';

// Delivers the kinds `inbound` and `events`: posts a message or a batch of events, signed.

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

/** A delivery that was posted, with its outcome. */
interface Judged {
  readonly waiting: Waiting;
  readonly mail: Mail;
  readonly found: Findings;
  readonly settled: Settled;
}

export function createWebhookRoad(settings: WebhookRoadSettings, deps: WebhookRoadDeps): Road {
  const { spool, poster, destinations, clock, ids, time } = deps;
  const preparation = createPreparation(deps);
  const limit = settings.retryHours * HOUR_MS;
  const sharedPosts = createSharedPosts(settings, { batchEvents: destinations.batchEvents, clock });

  async function prepare(all: Attempted): Promise<Prepared> {
    const [{ delivery }] = all;
    const destination = await destinations.of(delivery);
    if (destination.kind !== 'here') return notSent(all, await follow(delivery, destination));
    const outcomes = new Map<Waiting, DeliveryOutcome>();
    const mails: WaitingMail[] = [];
    const found = await Promise.all(
      all.map(async (waiting) => ({ waiting, mail: await find(waiting, all.length > 1) })),
    );
    for (const { waiting, mail } of found)
      if ('message' in mail) mails.push([waiting, mail]);
      else outcomes.set(waiting, mail);
    const [first, ...others] = mails;
    if (!first) return { outcomes };
    const target = destinations.target(delivery);
    const post = await preparation.render([first, ...others], target);
    if (!post) return { outcomes };
    if (post === 'store away') {
      for (const [waiting] of mails) outcomes.set(waiting, { kind: 'put off', at: clock.now() + WITHOUT_STORE });
      return { outcomes };
    }
    return { outcomes, shipment: toShipment(mails, post, target) };
  }

  /** Finds the message of a delivery, or returns the outcome if there is none. */
  async function find(waiting: Waiting, isShared: boolean): Promise<Mail | DeliveryOutcome> {
    const found = await preparation.find(waiting);
    if ('message' in found) return isShared && found.body.kind === 'file' ? ALONE : found;
    if (found.none === 'later') return { kind: 'put off', at: found.at };
    return ended(waiting, 'dropped');
  }

  function ended({ delivery: { id }, parked }: Waiting, state: 'dead' | 'dropped') {
    return { kind: 'gone', settlement: settleUnattempted(id, state, parked, clock.now()) } as const;
  }

  /** Applies a change made on another host to all queued deliveries of this webhook or route. */
  async function follow({ batch, routeId }: Delivery, destination: Destination): Promise<DeliveryOutcome> {
    if (destination.kind === 'nowhere' && batch) await spool.events.forget(batch.webhook, clock.now());
    if (destination.kind === 'there')
      await (batch ? spool.events.redirect(batch.webhook, destination.url) : spool.redirect(routeId, destination.url));
    return destination.kind === 'unknown' ? { kind: 'put off', at: clock.now() + WITHOUT_STORE } : { kind: 'gone' };
  }

  function toShipment(mails: readonly WaitingMail[], post: Post, target: PostTarget): Shipment | undefined {
    const posted = mails.flatMap(([waiting, mail], i) => {
      const found = post.found[i];
      return found ? [{ waiting, mail, found }] : [];
    });
    const [first] = posted;
    if (!first) return undefined;
    const { delivery } = first.waiting;
    const batch = posted.length > 1 ? post.id : undefined;
    const deliveries = posted.map(({ waiting }) => waiting);
    return {
      deliveries,
      async send(endpoint) {
        const result = await poster.post(delivery.url, { ...post.headers, ...basicAuth(target.password) }, post.body);
        const judged = posted.map((one) => ({ ...one, settled: judge(one.waiting, batch, target, result, endpoint) }));
        const delivered = judged[0]?.settled.outcome === 'delivered';
        if (endpoint.abandoned() && !delivered) return sameFor(deliveries, TURNED_BACK);
        if (batch !== undefined) sharedPosts.ended(delivery.routeId, result, delivered);
        const summary = result.kind === 'unanswered' ? { ...result, error: errorOf(result) } : result;
        return new Map(judged.map((one) => [one.waiting, { ...toOutcome(one), result: summary }]));
      },
      release: () => preparation.discard(delivery, post),
    };
  }

  function judge(
    waiting: Waiting,
    batch: string | undefined,
    target: PostTarget,
    result: AttemptResult,
    endpoint: EndpointStatus,
  ): Settled {
    const { delivery, attempts, parked, budgetFrom, heldSince: since } = waiting;
    const isOrdered = delivery.sequence !== undefined;
    return settle({
      delivery: { id: delivery.id, attempts, parked },
      result,
      now: clock.now(),
      jitter: ids.jitter(),
      budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
      othersPass: endpoint.othersPass(),
      ...(isOrdered && { order: { since, patience: settings.orderHoldMs, isUp: endpoint.isUp() } }),
      stop: FORMATS[target.format].stop,
      batch,
    });
  }

  /** The outcome of a delivery that was posted, with new verdicts; then the DSN, if the sender requested one. */
  function toOutcome({ waiting: { delivery }, mail: { message }, found, settled }: Judged) {
    const verdicts = message.verdicts ?? found.verdicts;
    return {
      kind: 'settled',
      settled,
      fresh: preparation.newVerdicts(delivery, message, found),
      afterwards: () => preparation.sendReport(message, verdicts, delivery, settled.outcome),
    } as const;
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
    shareRuleOf: sharedPosts.shareRuleOf,
    prepare,
    steps: deps.steps,
    async expire(waiting) {
      const { delivery } = waiting;
      return {
        ...ended(waiting, 'dead'),
        async afterwards() {
          const found = await spool.message(delivery.messageId);
          if (found?.message.verdicts)
            await preparation.sendReport(found.message, found.message.verdicts, delivery, 'failed');
        },
      };
    },
  });
}
