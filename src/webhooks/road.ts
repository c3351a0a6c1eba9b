import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import { type AttachmentMode, FORMATS, factsOf, MANDRILL, type PostStyle } from '../inbound/formats.ts';
import type { RouteTarget, Routing, SigningKeys } from '../inbound/types.ts';
import type { Notes } from '../journal/types.ts';
import type { Verdicts } from '../mail/envelope.ts';
import type { Delivery, Message, Spool } from '../queue/delivery.ts';
import type { Carried, Engine, Gate, Road, SenderReports } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { type AttemptResult, type Settled, settle, settleUnattempted } from '../queue/settle.ts';
import type { Scanning } from '../scan/scanning.ts';
import { createBeliefs } from '../store/beliefs.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';
import { createSharedPosts } from './shared-posts.ts';
import type { Findings, Poster, Rendered, Renderer, RenderPart } from './types.ts';

// The road for deliveries of the kinds `inbound` and `events`: posts a message or a batch of events, signed.

/** Milliseconds until a delivery is retried if the store was unavailable; short, so that it resumes soon after. */
const WITHOUT_STORE = 10_000;

export interface WebhookRoadSettings
  extends Pick<Road, 'concurrency' | 'concurrencyPerEndpoint' | 'concurrencyAtStart'> {
  /** How long a delivery is retried. */
  readonly retryHours: number;
  /** Maximum bytes of JSON in a POST of several events. */
  readonly batchBytes: number;
}

export interface WebhookRoadDeps {
  readonly spool: Pick<Spool, 'message' | 'redirect' | 'attempts'> & {
    readonly events: Pick<Spool['events'], 'forget' | 'redirect'>;
  };
  readonly renderer: Renderer;
  /** Returns the progress of deliveries in the renderer. */
  readonly steps: NonNullable<Road['steps']>;
  readonly poster: Poster;
  readonly destinations: Destinations;
  readonly signingKeys: Pick<SigningKeys, 'keysFor'>;
  readonly senderReports: SenderReports;
  /** Undefined if no scanner is configured. */
  readonly scanning: Pick<Scanning, 'turn' | 'of'> | undefined;
  /** The history. */
  readonly notes: Notes;
  readonly time: RunningTime;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** A delivery with its message. */
interface Mail extends RenderPart {
  readonly waiting: Waiting;
  readonly delivery: Delivery;
}

/** A POST and its contents. */
interface RenderedMail extends Pick<Rendered, 'body' | 'headers'> {
  /** How it is posted, from its first byte to what its answer means. */
  readonly target: PostTarget;
  /** The id of the POST if several messages share it. */
  readonly batch: string | undefined;
  readonly parts: readonly (Mail & Findings)[];
}

const TURNED_BACK = { kind: 'turned back' } as const;

const ALONE = { kind: 'turned back', alone: true } as const;

/** The outcome of each delivery. */
type Outcomes = ReadonlyMap<Waiting, Carried>;

/** The same outcome for all. */
const each = (mail: readonly Mail[], carried: Carried): Outcomes =>
  new Map(mail.map(({ waiting }) => [waiting, carried]));

/** The road to webhooks. */
export function createWebhookRoad(settings: WebhookRoadSettings, deps: WebhookRoadDeps): Road {
  const { spool, renderer, poster, destinations, signingKeys, clock, ids, log, time } = deps;
  const limit = settings.retryHours * 3_600_000;
  const unparsed = deps.metrics.counter('postern_message_parse_failures_total');
  const countVerdicts = createVerdictMeters(deps.metrics);
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
    const mail = found.filter((one) => 'message' in one);
    const carried = await carry(mail, gate, engine);
    return found.map((one) => ('message' in one ? (carried.get(one.waiting) ?? ALONE) : one));
  }

  /** Finds the message of a delivery, or returns the outcome if there is none. */
  async function find(waiting: Waiting, shared: boolean, engine: Engine): Promise<Mail | Carried> {
    const { delivery, parked, budgetFrom } = waiting;
    const scanning = delivery.kind === 'inbound' ? deps.scanning : undefined;
    const turn = scanning && waiting.attempts === 0 ? await scanning.turn(delivery, budgetFrom) : undefined;
    if (turn !== undefined) return { kind: 'put off', at: turn };
    const found = await spool.message(delivery.messageId, delivery.id);
    if (!found) {
      await engine.settle(delivery, settleUnattempted(delivery.id, 'dropped', parked, clock.now()));
      return { kind: 'gone' };
    }
    // A shared POST is built in memory.
    if (shared && found.body.kind === 'blob') return ALONE;
    const { message, body } = found;
    if (!scanning || message.scan) return { waiting, delivery, message, body };
    const { id, envelope, trace } = message;
    const { scan, at } = await scanning.of({ id, envelope, trace, recipients: [delivery.recipient], body }, budgetFrom);
    if (scan) return { waiting, delivery, message: { ...message, scan }, body };
    return { kind: 'put off', at };
  }

  /** Posts the messages and returns the outcomes of those that were in the POST. */
  async function carry(mail: readonly Mail[], gate: Gate, engine: Engine): Promise<Outcomes> {
    const [first] = mail;
    if (!first) return new Map();
    const { account, url } = first.delivery;
    const keys = await signingKeys.keysFor(account, url);
    if (!keys) return each(mail, { kind: 'put off', at: clock.now() + WITHOUT_STORE });
    const rendered = await render(first, mail, inTurn(keys, first.waiting.attempts));
    if (!rendered) return new Map();
    if (rendered === 'store away') return each(mail, { kind: 'put off', at: clock.now() + WITHOUT_STORE });
    for (const part of rendered.parts) {
      if (part.parseError !== null) unparsed.add();
      if (part.delivery.kind === 'inbound') noteParsed(part);
    }
    try {
      return await post(first, rendered, gate, engine);
    } finally {
      // Failing to remove the file does not change the outcome of the attempt.
      await renderer
        .discard(rendered.body)
        ?.catch((error: unknown) => log.error('delivery.fault', { delivery: first.delivery.id, error }));
    }
  }

  function noteParsed({ delivery: { id }, message, summary, verdicts }: RenderedMail['parts'][number]): void {
    deps.notes.note({ what: 'parsed', id, sender: message.envelope.mailFrom, summary, verdicts });
  }

  /** Undefined if a shared POST broke the parser. A shared POST omits messages whose verdicts take long. */
  async function render(
    first: Mail,
    mail: readonly Mail[],
    keys: readonly string[],
  ): Promise<RenderedMail | 'store away' | undefined> {
    const at = clock.now();
    const target = destinations.target(first.delivery);
    const style = { ...target, attachments: await attachmentsOf(first, target) };
    try {
      if (mail.length === 1) {
        const { body, headers, ...part } = await renderer.render({ ...first, keys, at, style });
        return { body, headers, target, batch: undefined, parts: [{ ...first, ...part }] };
      }
      const shared = await renderer.renderShared({ url: first.delivery.url, parts: mail, keys, at, style });
      if (!shared) return undefined;
      const parts = mail.flatMap((one, i) => (shared.parts[i] ? [{ ...one, ...shared.parts[i] }] : []));
      return { ...shared, target, batch: parts.length > 1 ? shared.id : undefined, parts };
    } catch (error) {
      // The secret that signs links was never read.
      if (error instanceof StoreAway) return 'store away';
      throw error;
    }
  }

  /** How its attachments go this time: once the receiver has found a post too large, `auto` means links. */
  async function attachmentsOf({ waiting, delivery, body }: Mail, target: PostTarget): Promise<AttachmentMode> {
    const { attachments, format } = target;
    if (attachments !== 'auto' || waiting.attempts === 0 || delivery.kind !== 'inbound') return attachments;
    if (factsOf(format).whole) return attachments;
    const statuses = (await spool.attempts(delivery.id)).map(({ status }) => status);
    const bytes = body.kind === 'blob' ? body.size : body.bytes.length;
    if (!wasTooLarge(statuses, bytes)) return attachments;
    log.info('delivery.too_large', { delivery: delivery.id, message: delivery.messageId, bytes });
    return 'link';
  }

  /** Applies a change made on another host to all queued deliveries of this webhook or route. */
  async function follow({ batch, routeId }: Delivery, destination: Destination): Promise<Carried> {
    if (destination.kind === 'nowhere' && batch) await spool.events.forget(batch.webhook, clock.now());
    if (destination.kind === 'there')
      await (batch ? spool.events.redirect(batch.webhook, destination.url) : spool.redirect(routeId, destination.url));
    return destination.kind === 'unknown' ? { kind: 'put off', at: clock.now() + WITHOUT_STORE } : { kind: 'gone' };
  }

  async function post(
    { delivery }: Mail,
    { headers, body, target, batch, parts }: RenderedMail,
    gate: Gate,
    engine: Engine,
  ): Promise<Outcomes> {
    if (!(await gate.enter())) return each(parts, TURNED_BACK);
    const { url, routeId } = delivery;
    const result = await poster.post(url, { ...headers, ...basicAuth(target.password) }, body);
    const judged = parts.map((part) => ({ part, settled: judge(part, { batch, target }, result, gate) }));
    const [first] = judged;
    const delivered = first?.settled.outcome === 'delivered';
    if (!first || (engine.abandoned() && !delivered)) return each(parts, TURNED_BACK);
    gate.leave(result, first.settled, parts.length);
    if (batch !== undefined) sharedPosts.ended(routeId, result, delivered);
    await Promise.all(judged.map(({ part, settled }) => note(part, settled, engine)));
    return new Map(judged.map(({ part, settled }) => [part.waiting, { kind: 'settled', settled, result }]));
  }

  function judge(
    { waiting }: Mail,
    { batch, target }: Pick<RenderedMail, 'batch' | 'target'>,
    result: AttemptResult,
    gate: Gate,
  ): Settled {
    const { delivery, attempts, parked, budgetFrom } = waiting;
    return settle({
      delivery: { id: delivery.id, attempts, parked },
      result,
      now: clock.now(),
      jitter: ids.jitter(),
      budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
      othersPass: gate.othersPass(),
      stop: FORMATS[target.format].stop,
      batch,
    });
  }

  /** Records the outcome of a delivery, with new verdicts, and sends the DSN if the sender requested one. */
  async function note(
    { delivery, message, verdicts }: RenderedMail['parts'][number],
    { settlement, outcome }: Settled,
    engine: Engine,
  ): Promise<void> {
    const fresh = message.verdicts || delivery.kind === 'events' ? undefined : verdicts;
    if (fresh) countVerdicts(fresh);
    await engine.settle(delivery, settlement, fresh);
    if (message.envelope.dsn) await tell(message, message.verdicts ?? verdicts, delivery, outcome);
  }

  /**
   * Reports to the reverse-path only if SPF passed: a forged one would make us send mail to third parties
   * (RFC 3834 section 2).
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
    concurrencyAtStart: settings.concurrencyAtStart,
    heedsLatency: true,
    limit,
    timed: false,
    isAlarming: () => true,
    attempt: async (waiting, gate, engine) => (await attempt([waiting], gate, engine))[0] ?? TURNED_BACK,
    sharing: frozen({ with: sharedPosts.with, attempt }),
    steps: deps.steps,
    async expire({ delivery, parked }, engine): Promise<Carried> {
      await engine.settle(delivery, settleUnattempted(delivery.id, 'dead', parked, clock.now()));
      const found = await spool.message(delivery.messageId);
      if (found?.message.verdicts && found.message.envelope.dsn)
        await tell(found.message, found.message.verdicts, delivery, 'failed');
      return { kind: 'gone' };
    },
  });
}

/** Below this no framework is known to refuse a form for its size, but for those that answer 413. */
const LARGE_FORM = 1024 * 1024;

/**
 * Whether a receiver refused a message of `size` bytes for its size: by 413, or by the answers of frameworks that have no
 * status for it (Django 400, Rack 500), given twice.
 */
export function wasTooLarge(statuses: readonly (number | null)[], size: number): boolean {
  if (statuses.includes(413)) return true;
  return size > LARGE_FORM && statuses.filter((status) => status === 400 || status === 500).length > 1;
}

/**
 * During a rotation there are two keys, but X-Mandrill-Signature holds one signature: odd attempts use the current key,
 * even ones the previous, so that a consumer with the old key accepts the second attempt.
 */
function inTurn(keys: readonly string[], attempts: number): readonly string[] {
  return keys.length > 1 && attempts % 2 === 1 ? [...keys].reverse() : keys;
}

/** Counts new verdicts. */
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
