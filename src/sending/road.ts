import { type Bytes, readAll } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Tools } from '../base/tools.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import type { Message, Settlement, Spool } from '../queue/delivery.ts';
import {
  type DeliveryOutcome,
  type EndpointStatus,
  notSent,
  type Road,
  type SenderReports,
  type Shipment,
  sameFor,
} from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/waiting.ts';
import { type MailAttempt, type Settled, settleMail, settleUnattempted, summaryOf } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import { type Copies, type CopyClaim, stateOf } from './copies.ts';
import type { OwnDomains } from './domains/own-domains.ts';
import { type Happening, tellsDeferral, toExpiry, toHappening, toReport } from './reporter.ts';
import type { Claim, Scheduling } from './scheduling.ts';
import type { SendingQuota } from './sending-quota.ts';
import type { Sources } from './transport/sources.ts';
import type { ComposeJob, Composer, ComposeSettings, MailTransport } from './types.ts';

// Delivers the kind `outbound`: accounts' mail, composed for each recipient and sent to a server of its domain.

/** Finds the signing key for a message. Null: it is sent unsigned. */
type SignerOf = (account: string, outgoing: Outgoing) => Promise<ComposeJob['dkim']>;

/** The parts that only outbound mail needs. */
export interface OutboundParts {
  readonly sendingQuota: Pick<SendingQuota, 'mayLeave'>;
  readonly scheduling: Pick<Scheduling, 'claim' | 'release'>;
  readonly copies: Pick<Copies, 'claim' | 'holds' | 'record' | 'write'>;
  readonly sources: Sources;
  readonly mailCarrier: MailTransport;
  readonly signerOf: SignerOf;
  /** Whether the account may still write as the sender, which can change until mail is sent. Throws `StoreAway`. */
  readonly mayWriteFrom: OwnDomains['mayWriteFrom'];
  /** The number of an account; undefined if there is no such account. */
  numberOf(account: string): Promise<number | undefined>;
  /** Throws `StoreAway` if the token secret or the account's domains cannot be read. */
  composing(account: string, outgoing: Outgoing): Promise<Omit<ComposeSettings, 'trace'>>;
  /** Called after reports were written. */
  reported(): void;
}

interface OutboundRoadSettings extends Pick<Road, 'concurrency' | 'concurrencyPerEndpoint' | 'concurrencyAtStart'> {
  /** How long delivery is attempted. */
  readonly maxAgeHours: number;
}

export interface OutboundRoadDeps extends OutboundParts, Tools {
  readonly spool: Pick<Spool, 'message' | 'attempts'>;
  readonly composer: Composer;
  readonly senderReports: SenderReports;
  readonly time: RunningTime;
}

interface Loaded {
  readonly message: Message;
  readonly body: Bytes;
  readonly outgoing: Outgoing;
}

/** The reason of a reject is one of the words that clients know; the explanation is in `diag`. */
const rejected = (reason: 'invalid' | 'rule', diag: string): Happening => ({
  kind: 'reject',
  detail: { reason, diag },
});
const LOST = rejected('invalid', 'the message was lost on our disk');
const FOREIGN = 'its account may not use this sender address any more';
/** No claim to release. */
const NOBODY_ELSES = { kind: 'ours', first: false } as const;
/** The delay of mail if it is unknown which host may send it. Milliseconds. */
const UNSURE_MS = 2000;

export function createOutboundRoad(settings: OutboundRoadSettings, deps: OutboundRoadDeps): Road {
  const { spool, sendingQuota, scheduling, copies, clock, log, time } = deps;
  const limit = settings.maxAgeHours * 3_600_000;
  const count = createResultMeters(deps.metrics);

  async function prepare(waiting: Waiting): Promise<DeliveryOutcome | Shipment> {
    try {
      const found = await load(waiting);
      if (!found) return await end(waiting, undefined, 'dropped', LOST, null);
      const leave = await sendingQuota.mayLeave(
        waiting.delivery.account,
        found.outgoing,
        waiting.budgetFrom,
        clock.now(),
      );
      if (leave.kind === 'later' && !isOver(waiting)) return putOff(waiting, leave.at);
      const lease = await leaseOf(waiting, found);
      if (lease.kind !== 'ours') return stepBack(waiting, lease);
      // As late as possible, so that held-back mail can still be cancelled, but before any event is recorded.
      const claim = await claimOf(waiting);
      if (claim.kind !== 'ours') return giveWay(waiting, claim);
      if (!(await deps.mayWriteFrom(waiting.delivery.account, found.outgoing.sender)))
        return await end(waiting, found.message, 'dead', rejected('rule', FOREIGN), FOREIGN);
      if (leave.kind === 'never')
        return await end(waiting, found.message, 'dead', rejected('rule', leave.reason), leave.reason);
      if (leave.kind === 'now') return await compose(waiting, found, claim.first, lease.epoch);
      return await end(waiting, found.message, 'dead', toExpiry('it was held back'), 'held back until it expired');
    } catch (error) {
      // Store outages are logged once, not for every message.
      if (error instanceof StoreAway) return { kind: 'put off' };
      throw error;
    }
  }

  async function load({ delivery }: Waiting): Promise<Loaded | undefined> {
    const found = await spool.message(delivery.messageId, delivery.id);
    const outgoing = found?.message.envelope.outgoing;
    return found && outgoing && { ...found, outgoing };
  }

  /** Queries the store only for a message that can still be cancelled or moved: before its first attempt. */
  async function claimOf({ delivery, scheduled, attempts }: Waiting): Promise<Claim> {
    return scheduled && attempts === 0 ? await scheduling.claim(delivery.id) : NOBODY_ELSES;
  }

  /** Applies a cancellation or a move. A cancelled message gets no event. */
  function giveWay({ delivery, parked }: Waiting, claim: Exclude<Claim, { readonly kind: 'ours' }>): DeliveryOutcome {
    if (claim.kind === 'moved') return { kind: 'put off', at: claim.at, moved: true };
    return { kind: 'gone', settlement: settleUnattempted(delivery.id, 'dropped', parked, clock.now()) };
  }

  /** Mail that has a copy is sent or ended only by the host that the copy names. */
  async function leaseOf({ delivery, attempts }: Waiting, { message, body }: Loaded): Promise<CopyClaim> {
    const one = { id: delivery.id, replayed: delivery.replayed && attempts === 0 };
    try {
      const claim = await copies.claim(one, message.envelope);
      if (claim.kind !== 'uncopied') return claim;
      const { id, receivedAt, trace } = message;
      const envelope = { ...message.envelope, copiedIn: claim.epoch };
      await copies.write({ id, receivedAt, trace, envelope, bytes: await readAll(body) }, [delivery]);
      return await copies.claim(one, message.envelope);
    } catch (error) {
      if (error instanceof StoreAway) return { kind: 'unsure' };
      throw error;
    }
  }

  /** The outcome if another host has the mail, or it has ended, or that is unknown. */
  function stepBack(
    { delivery, parked }: Waiting,
    claim: Exclude<CopyClaim, { readonly kind: 'ours' }>,
  ): DeliveryOutcome {
    const now = clock.now();
    if (claim.kind === 'unsure' || claim.kind === 'uncopied') return { kind: 'put off', at: now + UNSURE_MS };
    if (claim.kind === 'elsewhere')
      // Not kept, because it would look like mail that was dropped by hand.
      return { kind: 'gone', settlement: { ...settleUnattempted(delivery.id, 'dropped', parked, now), forget: true } };
    const settlement = settleUnattempted(delivery.id, 'dropped', parked, now);
    return {
      kind: 'gone',
      settlement: { ...settlement, state: stateOf(claim.result), report: claim.result.report ?? undefined },
      afterwards: deps.reported,
    };
  }

  const isOver = ({ budgetFrom }: Waiting) => time.sure() && time.age(budgetFrom) >= limit;

  /** Puts a delivery off. Persisted, so that a restart keeps the time; no attempt is counted. */
  function putOff({ delivery }: Waiting, at: number): DeliveryOutcome {
    const settlement = { ...settleUnattempted(delivery.id, 'waiting', false, clock.now()), dueAt: at };
    return { kind: 'put off', at, settlement };
  }

  async function compose(
    waiting: Waiting,
    found: Loaded,
    isFirst: boolean,
    lease: number | null,
  ): Promise<DeliveryOutcome | Shipment> {
    const { delivery } = waiting;
    const { account, recipient } = delivery;
    const job = await toJob(waiting, found);
    if (!job) return await end(waiting, found.message, 'dropped', rejected('rule', 'its account was deleted'), null);
    const [reply, sourceAddresses] = await Promise.all([
      deps.composer.compose(job),
      deps.sources.choose(account, found.outgoing, deps.ids.jitter(), new Date(clock.now())),
    ]);
    if (reply.kind === 'refused') return await refuse(waiting, found.message, reply);
    const { composed } = reply;
    let isSent = false;
    return {
      deliveries: [waiting],
      async send(endpoint) {
        // It may have waited for its turn.
        if (!copies.holds(lease)) return sameFor([waiting], { kind: 'put off', at: clock.now() + UNSURE_MS });
        isSent = true;
        const attempt = await deps.mailCarrier.send({ composed, recipient, sourceAddresses });
        return sameFor([waiting], await settle(waiting, found, composed.links, attempt, endpoint));
      },
      async release() {
        // It can be cancelled again until its destination is back, unless the store is unavailable.
        if (isFirst && !isSent) await scheduling.release(delivery.id).catch(() => undefined);
      },
    };
  }

  /** Ends a message that can never be composed. After a fault of ours, which may be fixed, retries it like all mail. */
  async function refuse(
    waiting: Waiting,
    message: Message,
    { reason, final }: { readonly reason: string; readonly final: boolean },
  ): Promise<DeliveryOutcome> {
    const error = `cannot be composed: ${reason}`;
    if (final) return await end(waiting, message, 'dead', rejected('invalid', error), error);
    log.error('delivery.fault', { delivery: waiting.delivery.id, message: waiting.delivery.messageId, reason: error });
    const attempt: MailAttempt = { kind: 'unanswered', reason: error, permanent: false, durationMs: 0 };
    const settled = settleNow(waiting, attempt);
    const told = settled.outcome === 'failed' ? rejected('invalid', error) : undefined;
    return conclude(waiting, message, attempt, settled, told, '');
  }

  /** The same job for every attempt, so that the same message is sent. */
  async function toJob(
    { delivery, budgetFrom }: Waiting,
    { message, body, outgoing }: Loaded,
  ): Promise<ComposeJob | undefined> {
    const [accountNumber, settings, dkim] = await Promise.all([
      deps.numberOf(delivery.account),
      deps.composing(delivery.account, outgoing),
      deps.signerOf(delivery.account, outgoing),
    ]);
    if (accountNumber === undefined) return undefined;
    return {
      outgoing,
      body,
      recipient: delivery.recipient,
      id: sentId(delivery.id),
      accountNumber,
      at: budgetFrom,
      dkim,
      settings: { ...settings, trace: message.trace },
    };
  }

  async function settle(
    waiting: Waiting,
    { message }: Loaded,
    links: readonly string[],
    attempt: MailAttempt,
    endpoint: EndpointStatus,
  ): Promise<DeliveryOutcome> {
    // Attempts cut off at shutdown tell nothing about the destination.
    if (endpoint.abandoned() && attempt.kind === 'unanswered') return { kind: 'turned back' };
    const settled = settleNow(waiting, attempt);
    const happening = toHappening(attempt, settled);
    count(happening.kind);
    const tells = settled.outcome !== 'deferred' || (await isNews(waiting));
    const told = tells ? withLinks(happening, links) : undefined;
    return conclude(waiting, message, attempt, settled, told, diagOf(attempt, happening));
  }

  /** `told`: the event for the account, if any. `diag`: for the DSN, if the sender requested one. */
  async function conclude(
    waiting: Waiting,
    message: Message,
    attempt: MailAttempt,
    settled: Settled,
    told: Happening | undefined,
    diag: string,
  ): Promise<DeliveryOutcome> {
    const { outcome } = settled;
    const settlement = await withReport(waiting, message, settled.settlement, told);
    return {
      kind: 'settled',
      settled: { ...settled, settlement },
      result: summaryOf(attempt),
      async afterwards() {
        if (settlement.report) deps.reported();
        const fate = outcome === 'failed' ? 'failed' : 'relayed';
        if (outcome !== 'deferred') await deps.senderReports.tell(message, waiting.delivery, fate, diag);
      },
    };
  }

  function settleNow({ delivery: { id }, attempts, budgetFrom }: Waiting, attempt: MailAttempt): Settled {
    return settleMail({
      delivery: { id, attempts },
      attempt,
      now: clock.now(),
      jitter: deps.ids.jitter(),
      budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
    });
  }

  /** Whether a deferral is worth an event. If the history cannot be read, it is not. */
  async function isNews({ delivery, attempts, budgetFrom }: Waiting): Promise<boolean> {
    if (attempts === 0) return true;
    const before = await spool.attempts(delivery.id).catch(() => []);
    const age = time.age(budgetFrom);
    const since = clock.now() - (before.at(-1)?.at ?? clock.now());
    return tellsDeferral(attempts, Math.max(0, age - since), age);
  }

  /** Ends a delivery without an attempt. */
  async function end(
    waiting: Waiting,
    message: Message | undefined,
    state: 'dead' | 'dropped',
    happening: Happening,
    error: string | null,
  ): Promise<DeliveryOutcome> {
    const now = clock.now();
    count(happening.kind);
    const attempt = error === null ? null : { at: now, durationMs: 0, status: null, error, answer: '' };
    const ended = { ...settleUnattempted(waiting.delivery.id, state, false, now), attempt };
    const diag = happening.detail['diag'];
    return {
      kind: 'gone',
      settlement: await withReport(waiting, message, ended, happening),
      async afterwards() {
        deps.reported();
        if (message) await deps.senderReports.tell(message, waiting.delivery, 'failed', String(diag ?? ''));
        const { id, messageId, account } = waiting.delivery;
        log.warn('delivery.failed', {
          delivery: id,
          message: messageId,
          account,
          attempt: waiting.attempts,
          error: error ?? diag,
        });
      },
    };
  }

  /** Adds the report to the settlement. Records the result in the copy, before the queue. */
  async function withReport(
    { delivery, attempts }: Waiting,
    message: Message | undefined,
    settlement: Settlement,
    happening: Happening | undefined,
  ): Promise<Settlement> {
    const report = happening && toReport({ delivery, attempts, at: settlement.at, message }, happening);
    const hidden = settlement.state !== 'waiting' && message?.envelope.outgoing?.extras?.hideContent === true;
    const told = { ...settlement, report, ...(hidden && { forget: true }) };
    if (message) await copies.record(told, message.envelope);
    return told;
  }

  return frozen({
    concurrency: settings.concurrency,
    concurrencyPerEndpoint: settings.concurrencyPerEndpoint,
    concurrencyAtStart: settings.concurrencyAtStart,
    // Mail servers are slow on purpose: greylisting, tarpits, slow filters.
    heedsLatency: false,
    limit,
    timed: true,
    // Bounces are routine.
    isAlarming: () => false,
    async prepare(all) {
      const [waiting] = all;
      const prepared = await prepare(waiting);
      return 'send' in prepared ? { outcomes: new Map(), shipment: prepared } : notSent(all, prepared);
    },
    async expire(waiting) {
      const found = await load(waiting).catch((error: unknown) => {
        if (error instanceof StoreAway) return 'later' as const;
        throw error;
      });
      // It is damaged here, and the store may have a copy.
      if (found === 'later') return { kind: 'put off' };
      const lease = found && (await leaseOf(waiting, found));
      if (lease && lease.kind !== 'ours') return stepBack(waiting, lease);
      // The delivery has expired regardless of the store, so an unavailable store is not waited for.
      const claim = await claimOf(waiting).catch((error: unknown): Claim => {
        if (error instanceof StoreAway) return NOBODY_ELSES;
        throw error;
      });
      if (claim.kind !== 'ours') return giveWay(waiting, claim);
      return await end(waiting, found?.message, 'dead', found ? toExpiry('no server could be reached') : LOST, null);
    },
  });
}

/** Adds the tracked links to a send event. */
function withLinks(happening: Happening, links: readonly string[]): Happening {
  return happening.kind === 'send' && links.length > 0 ? { ...happening, links } : happening;
}

/** Counts results by kind of event. */
function createResultMeters(metrics: Metrics): (kind: Happening['kind']) => void {
  const results = new Map<string, Counter>(
    ['send', 'deferral', 'hard_bounce', 'soft_bounce', 'reject'].map((result) => [
      result,
      metrics.counter('postern_sending_results_total', { result }),
    ]),
  );
  return (kind) => results.get(kind)?.add();
}

/** The server's reply; for a refusal, as in the event. */
function diagOf(attempt: MailAttempt, { detail }: Happening): string {
  return String(detail['diag'] ?? (attempt.kind === 'answered' ? `smtp;${attempt.code} ${attempt.diag}` : ''));
}
