import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { sentId } from '../mail/return-address.ts';
import type { Body, Message, Settlement, Spool } from '../queue/delivery.ts';
import type { Carried, Engine, Gate, Road, SenderReports } from '../queue/road.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { type MailAttempt, type Settled, settleMail, settleUnattempted, summaryOf } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { OwnDomains } from './domains/own-domains.ts';
import { type Happening, tellsDeferral, toExpiry, toHappening, toReport } from './reporter.ts';
import type { Claim, Scheduling } from './scheduling.ts';
import type { ComposeJob, Composer, ComposeSettings, Leaving, MailCarrier, Sources } from './types.ts';

// The road of the kind `outbound`: accounts' mail, composed for each recipient and delivered to a server of theirs.

/** Finds the signing key for a message. Null: it is sent unsigned. */
type SignerOf = (account: string, outgoing: Outgoing) => Promise<ComposeJob['dkim']>;

/** The parts that only outbound mail needs. */
export interface OutboundParts {
  readonly leaving: Leaving;
  readonly scheduling: Pick<Scheduling, 'claim' | 'release'>;
  readonly sources: Sources;
  readonly mailCarrier: MailCarrier;
  readonly signerOf: SignerOf;
  /** Whether the account may still write as the sender: much can change until a scheduled message leaves. Throws `StoreAway`. */
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

export interface OutboundRoadDeps extends OutboundParts {
  readonly spool: Pick<Spool, 'message' | 'attempts'>;
  readonly composer: Composer;
  readonly senderReports: SenderReports;
  readonly time: RunningTime;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly metrics: Metrics;
}

interface Loaded {
  readonly message: Message;
  readonly body: Body;
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

/** Creates the road of outbound mail. */
export function createOutboundRoad(settings: OutboundRoadSettings, deps: OutboundRoadDeps): Road {
  const { spool, leaving, scheduling, clock, log, time } = deps;
  const limit = settings.maxAgeHours * 3_600_000;
  const count = createResultMeters(deps.metrics);

  async function attempt(waiting: Waiting, gate: Gate, engine: Engine): Promise<Carried> {
    try {
      const found = await load(waiting);
      if (!found) return await end(waiting, engine, undefined, 'dropped', LOST, null);
      const leave = await leaving.mayLeave(waiting.delivery.account, found.outgoing, waiting.budgetFrom, clock.now());
      if (leave.kind === 'later' && !isOver(waiting)) return await putOff(waiting, leave.at, engine);
      // As late as possible, so that held-back mail can still be cancelled, but before any event is recorded.
      const claim = await claimOf(waiting);
      if (claim.kind !== 'ours') return await giveWay(waiting, claim, engine);
      if (!(await deps.mayWriteFrom(waiting.delivery.account, found.outgoing.sender)))
        return await end(waiting, engine, found.message, 'dead', rejected('rule', FOREIGN), FOREIGN);
      if (leave.kind === 'never')
        return await end(waiting, engine, found.message, 'dead', rejected('rule', leave.reason), leave.reason);
      if (leave.kind === 'now') return await send(waiting, found, gate, engine, claim.first);
      return await end(
        waiting,
        engine,
        found.message,
        'dead',
        toExpiry('it was held back'),
        'held back until it expired',
      );
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

  /**
   * Only a message that can still be cancelled or moved asks the store; after its first attempt it is too late for
   * both.
   */
  async function claimOf({ delivery, scheduled, attempts }: Waiting): Promise<Claim> {
    return scheduled && attempts === 0 ? await scheduling.claim(delivery.id) : NOBODY_ELSES;
  }

  /** Applies the cancellation or the move. A cancelled message gets no event. */
  async function giveWay(
    { delivery, parked }: Waiting,
    claim: Exclude<Claim, { readonly kind: 'ours' }>,
    engine: Engine,
  ): Promise<Carried> {
    if (claim.kind === 'moved') return { kind: 'put off', at: claim.at, moved: true };
    await engine.settle(delivery, settleUnattempted(delivery.id, 'dropped', parked, clock.now()));
    return { kind: 'gone' };
  }

  const isOver = ({ budgetFrom }: Waiting) => time.sure() && time.age(budgetFrom) >= limit;

  /** Persisted, so that a restart keeps the time; no attempt is counted. */
  async function putOff({ delivery }: Waiting, at: number, engine: Engine): Promise<Carried> {
    await engine.settle(delivery, { ...settleUnattempted(delivery.id, 'waiting', false, clock.now()), dueAt: at });
    return { kind: 'put off', at };
  }

  async function send(waiting: Waiting, found: Loaded, gate: Gate, engine: Engine, first: boolean): Promise<Carried> {
    const { delivery } = waiting;
    const { account, recipient } = delivery;
    const job = await toJob(waiting, found);
    if (!job)
      return await end(waiting, engine, found.message, 'dropped', rejected('rule', 'its account was deleted'), null);
    const [composed, sourceAddresses] = await Promise.all([
      deps.composer.compose(job),
      deps.sources.choose(account, found.outgoing, deps.ids.jitter(), new Date(clock.now())),
    ]);
    if (composed.kind === 'refused') return await refuse(waiting, found.message, composed, engine);
    if (!(await gate.enter())) {
      // It can be cancelled again until its destination is back; if the store is unavailable, it cannot.
      if (first) await scheduling.release(delivery.id).catch(() => undefined);
      return { kind: 'turned back' };
    }
    const { links } = composed.composed;
    return await settle(
      waiting,
      found,
      links,
      await deps.mailCarrier.carry({ composed: composed.composed, recipient, sourceAddresses }),
      gate,
      engine,
    );
  }

  /**
   * If a message can never be composed, it ends now; if the fault is ours, it is retried as long as all mail, since it
   * may be fixed.
   */
  async function refuse(
    waiting: Waiting,
    message: Message,
    { reason, final }: { readonly reason: string; readonly final: boolean },
    engine: Engine,
  ): Promise<Carried> {
    const error = `cannot be composed: ${reason}`;
    if (final) return await end(waiting, engine, message, 'dead', rejected('invalid', error), error);
    log.error('delivery.fault', { delivery: waiting.delivery.id, message: waiting.delivery.messageId, reason: error });
    const attempt: MailAttempt = { kind: 'unanswered', reason: error, permanent: false, durationMs: 0 };
    const settled = settleNow(waiting, attempt);
    const happening = settled.outcome === 'failed' ? rejected('invalid', error) : undefined;
    await note(waiting, engine, message, settled.settlement, happening);
    if (settled.outcome === 'failed') await deps.senderReports.tell(message, waiting.delivery, 'failed', '');
    return { kind: 'settled', settled, result: summaryOf(attempt) };
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
    gate: Gate,
    engine: Engine,
  ): Promise<Carried> {
    // Attempts cut off at shutdown tell nothing about the destination.
    if (engine.abandoned() && attempt.kind === 'unanswered') return { kind: 'turned back' };
    const settled = settleNow(waiting, attempt);
    const happening = toHappening(attempt, settled);
    const result = summaryOf(attempt);
    count(happening.kind);
    gate.leave(result, settled);
    const tells = settled.outcome !== 'deferred' || (await isNews(waiting));
    await note(waiting, engine, message, settled.settlement, tells ? withLinks(happening, links) : undefined);
    const fate = settled.outcome === 'failed' ? 'failed' : 'relayed';
    if (settled.outcome !== 'deferred')
      await deps.senderReports.tell(message, waiting.delivery, fate, diagOf(attempt, happening));
    return { kind: 'settled', settled, result };
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
    engine: Engine,
    message: Message | undefined,
    state: 'dead' | 'dropped',
    happening: Happening,
    error: string | null,
  ): Promise<Carried> {
    const now = clock.now();
    count(happening.kind);
    const attempt = error === null ? null : { at: now, durationMs: 0, status: null, error, answer: '' };
    const settlement = { ...settleUnattempted(waiting.delivery.id, state, false, now), attempt };
    await note(waiting, engine, message, settlement, happening);
    if (message)
      await deps.senderReports.tell(message, waiting.delivery, 'failed', String(happening.detail['diag'] ?? ''));
    const { id, messageId, account } = waiting.delivery;
    log.warn('delivery.failed', {
      delivery: id,
      message: messageId,
      account,
      attempt: waiting.attempts,
      error: error ?? happening.detail['diag'],
    });
    return { kind: 'gone' };
  }

  async function note(
    { delivery, attempts }: Waiting,
    engine: Engine,
    message: Message | undefined,
    settlement: Settlement,
    happening: Happening | undefined,
  ): Promise<void> {
    const report = happening && toReport({ delivery, attempts, at: settlement.at, message }, happening);
    const hidden = settlement.state !== 'waiting' && message?.envelope.outgoing?.extras?.hideContent === true;
    await engine.settle(delivery, { ...settlement, report, ...(hidden && { forget: true }) });
    if (report) deps.reported();
  }

  return frozen({
    concurrency: settings.concurrency,
    concurrencyPerEndpoint: settings.concurrencyPerEndpoint,
    concurrencyAtStart: settings.concurrencyAtStart,
    // Mail servers are slow on purpose: greylisting, tarpits, slow filters.
    heedsLatency: false,
    limit,
    timed: true,
    // Bounces need nobody's attention.
    isAlarming: () => false,
    attempt,
    async expire(waiting, engine): Promise<Carried> {
      const found = await load(waiting);
      // The delivery has expired whatever the store says, so an unavailable store is not waited for.
      const claim = await claimOf(waiting).catch((error: unknown): Claim => {
        if (error instanceof StoreAway) return NOBODY_ELSES;
        throw error;
      });
      if (claim.kind !== 'ours') return await giveWay(waiting, claim, engine);
      return await end(
        waiting,
        engine,
        found?.message,
        'dead',
        found ? toExpiry('no server could be reached') : LOST,
        null,
      );
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

/** The server's reply; of a refusal as in the event. */
function diagOf(attempt: MailAttempt, { detail }: Happening): string {
  return String(detail['diag'] ?? (attempt.kind === 'answered' ? `smtp;${attempt.code} ${attempt.diag}` : ''));
}
