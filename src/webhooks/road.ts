import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Routing, SigningKeys } from '../inbound/types.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, Message, Spool } from '../queue/delivery.ts';
import type { Carried, Engine, Gate, Road, SenderReports } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { type Settled, settle, settleUnattempted } from '../queue/settle.ts';
import { createBeliefs } from '../store/beliefs.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import type { Poster, Rendered, Renderer } from './types.ts';

// The road of the kinds `inbound` and `events`: a message or a batch of events, as a signed POST.

/**
 * How long a delivery is put off for which the store could not be asked: a store that is back should not be waited for
 * much longer.
 */
const WITHOUT_STORE = 10_000;

export interface WebhookRoadSettings extends Pick<Road, 'concurrency' | 'concurrencyPerEndpoint'> {
  /** How long a delivery is tried. */
  readonly retryHours: number;
}

export interface WebhookRoadDeps {
  readonly spool: Pick<Spool, 'message' | 'redirect'> & {
    readonly events: Pick<Spool['events'], 'forget' | 'redirect'>;
  };
  readonly renderer: Renderer;
  readonly poster: Poster;
  readonly destinations: Destinations;
  readonly signingKeys: Pick<SigningKeys, 'keysFor'>;
  readonly senderReports: SenderReports;
  readonly time: RunningTime;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** The road to webhooks. */
export function createWebhookRoad(settings: WebhookRoadSettings, deps: WebhookRoadDeps): Road {
  const { spool, renderer, poster, destinations, signingKeys, clock, ids, log, time } = deps;
  const limit = settings.retryHours * 3_600_000;
  const unparsed = deps.metrics.counter('postern_message_parse_failures_total');
  const countVerdicts = createVerdictMeters(deps.metrics);

  async function attempt(waiting: Waiting, gate: Gate, engine: Engine): Promise<Carried> {
    const { delivery } = waiting;
    const destination = await destinations.of(delivery);
    if (destination.kind !== 'here') return await follow(delivery, destination);
    const found = await spool.message(delivery.messageId, delivery.id);
    if (!found) {
      await engine.settle(delivery, settleUnattempted(delivery.id, 'dropped', waiting.parked, clock.now()));
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
    if (rendered.parseError !== null) unparsed.add();
    try {
      const carried = await post(waiting, rendered, gate, engine);
      if (carried.kind !== 'settled') return carried;
      const fresh = found.message.verdicts || delivery.kind === 'events' ? undefined : rendered.verdicts;
      if (fresh) countVerdicts(fresh);
      await engine.settle(delivery, carried.settled.settlement, fresh);
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

  async function post(waiting: Waiting, rendered: Rendered, gate: Gate, engine: Engine): Promise<Carried> {
    if (!(await gate.enter())) return { kind: 'turned back' };
    const result = await poster.post(waiting.delivery.url, rendered.headers, rendered.body);
    const settled = settle({
      delivery: { id: waiting.delivery.id, attempts: waiting.attempts, parked: waiting.parked },
      result,
      now: clock.now(),
      jitter: ids.jitter(),
      budget: { age: time.age(waiting.budgetFrom), limit, mayEnd: time.sure() },
      othersPass: gate.othersPass(),
    });
    if (engine.abandoned() && settled.outcome !== 'delivered') return { kind: 'turned back' };
    gate.leave(result, settled);
    return { kind: 'settled', settled, result };
  }

  /**
   * A stranger's reverse-path is told of only what he proved to be his: whoever asked for reports could have us write
   * to anybody else (RFC 3834 section 2).
   */
  async function tell(
    message: Message,
    { spf }: Verdicts,
    delivery: Delivery,
    outcome: Settled['outcome'],
  ): Promise<void> {
    if (outcome === 'deferred' || spf.result !== 'pass') return;
    const diag = outcome === 'failed' ? '5.4.7 delivery time expired' : '';
    await deps.senderReports.tell(message, delivery, outcome, diag);
  }

  return frozen({
    concurrency: settings.concurrency,
    concurrencyPerEndpoint: settings.concurrencyPerEndpoint,
    limit,
    timed: false,
    isAlarming: () => true,
    attempt,
    async expire({ delivery, parked }, engine): Promise<Carried> {
      await engine.settle(delivery, settleUnattempted(delivery.id, 'dead', parked, clock.now()));
      const found = await spool.message(delivery.messageId);
      if (found?.message.verdicts && found.message.envelope.dsn)
        await tell(found.message, found.message.verdicts, delivery, 'failed');
      return { kind: 'gone' };
    },
  });
}

/**
 * While a rotation lasts there are two keys and room for one in X-Mandrill-Signature: odd attempts use the present one,
 * even ones the previous, so that a consumer that has not changed over yet gets its mail at the second try.
 */
function inTurn(keys: readonly string[], attempts: number): readonly string[] {
  return keys.length > 1 && attempts % 2 === 1 ? [...keys].reverse() : keys;
}

/** Counts verdicts that were just taken. */
function createVerdictMeters(metrics: Metrics): (verdicts: Verdicts) => void {
  const of = (method: string, ...results: readonly string[]) => {
    const count = (result: string) => metrics.counter('postern_authentication_results_total', { method, result });
    const known = new Map<string, Counter>(results.map((result) => [result, count(result)]));
    const other = count('other');
    return (result: string) => (known.get(result) ?? other).add();
  };
  const methods = {
    spf: of('spf', 'pass', 'fail', 'softfail', 'neutral', 'none', 'temperror', 'permerror'),
    dkim: of('dkim', 'pass', 'fail', 'none'),
    dmarc: of('dmarc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
    arc: of('arc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
  };
  return ({ spf, dkim, dmarc, arc }) => {
    methods.spf(spf.result);
    methods.dkim(dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none');
    methods.dmarc(dmarc.result);
    methods.arc(arc.result);
  };
}

/**
 * Where a delivery goes now. here: to its URL, as the queue has it · there: to another · nowhere: its webhook was
 * deleted · unknown: the store is away, and nothing is known of it.
 */
type Destination = { readonly kind: 'here' | 'nowhere' | 'unknown' } | { readonly kind: 'there'; readonly url: string };

/** Whether posts still go where the queue of this host has them go: another host may have been told otherwise. */
export interface Destinations {
  of(delivery: Pick<Delivery, 'url' | 'routeId' | 'recipient' | 'batch'>): Promise<Destination>;
}

interface DestinationDeps {
  readonly store: Pick<Store, 'webhooks' | 'inboundRoutes'>;
  readonly routing: Pick<Routing, 'routeOf'>;
  readonly clock: Clock;
}

/** How long a webhook is believed to be there, at its URL. */
const FRESH_MS = 5000;

const HERE = { kind: 'here' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

/**
 * Asked before every attempt. A webhook that was deleted gets nothing more. A route that was deleted has its mail all
 * the same: we took it for that URL.
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
    const believed = routing.routeOf(routeId, domainOf(recipient))?.url;
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

/** The domain of an address, as it was written. */
const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1);

const toThere = (url: string, now: string): Destination => (now === url ? HERE : { kind: 'there', url: now });
