import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { sentId } from '../mail/return-address.ts';
import type { Body, Message, Settlement, Spool } from '../queue/delivery.ts';
import type { Meters } from '../queue/meters.ts';
import type { Waiting } from '../queue/schedule/lane.ts';
import { settleUnattempted } from '../queue/settle.ts';
import type { Notifying } from '../returns/reports.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Carried, Gate } from '../webhooks/carry.ts';
import type { Told } from '../webhooks/types.ts';
import { type Happening, toReport } from './reporter.ts';
import type { Claim, Scheduling } from './scheduling.ts';
import { type SettledMail, settleMail, tellsDeferral, toExpiry } from './settle-mail.ts';
import type { ComposeJob, Composer, ComposeSettings, Leaving, MailAttempt, MailCarrier, Sources } from './types.ts';

/** Who may sign a message. Null: it goes out unsigned. */
export type SignerOf = (account: string, outgoing: Outgoing) => Promise<ComposeJob['dkim']>;

/** The parts that only mail going out needs. */
export interface MailParts {
  readonly leaving: Leaving;
  readonly scheduling: Pick<Scheduling, 'claim' | 'release'>;
  readonly sources: Sources;
  readonly composer: Composer;
  readonly mailCarrier: MailCarrier;
  readonly signerOf: SignerOf;
  /** The number of an account; undefined when there is none of that id. */
  numberOf(account: string): Promise<number | undefined>;
  /** Throws StoreAway as long as the secret for tokens could not be read, or what belongs to the account. */
  composing(account: string, outgoing: Outgoing): Promise<Omit<ComposeSettings, 'trace'>>;
  /** There is something to be told: reports were written. */
  reported(): void;
}

export interface RoadDeps extends MailParts {
  readonly spool: Pick<Spool, 'message' | 'attempts'>;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly time: RunningTime;
  /** After how many milliseconds mail is given up. */
  readonly limit: number;
  readonly abandoned: () => boolean;
  readonly notifying: Notifying;
  /** Writes a settlement, however long the spool takes to be able to. */
  note(settlement: Settlement): Promise<void>;
  readonly meters?: Pick<Meters, 'sending'> | undefined;
}

/** The road of mail going out, from the spool to the servers of its recipient. */
export interface Road {
  attempt(waiting: Waiting, gate: Gate): Promise<Carried>;
  /** Its time is over while its destination is away. */
  expire(waiting: Waiting): Promise<Carried>;
}

interface Loaded {
  readonly message: Message;
  readonly body: Body;
  readonly outgoing: Outgoing;
}

/** The reason of a reject is one of the words that consumers know; the sentence goes beside it. */
const rejected = (reason: 'invalid' | 'rule', diag: string): Happening => ({
  kind: 'reject',
  detail: { reason, diag },
});
const LOST = rejected('invalid', 'the message was lost on our disk');
/** No claim to be given back. */
const NOBODY_ELSES = { kind: 'ours', first: false } as const;

export function createRoad(deps: RoadDeps): Road {
  const { spool, leaving, scheduling, clock, log, time, limit } = deps;

  async function attempt(waiting: Waiting, gate: Gate): Promise<Carried> {
    try {
      const found = await load(waiting);
      if (!found) return await end(waiting, undefined, 'dropped', LOST, null);
      const leave = await leaving.mayLeave(waiting.delivery.account, found.outgoing, waiting.budgetFrom, clock.now());
      if (leave.kind === 'later' && !isOver(waiting)) return await putOff(waiting, leave.at);
      // As late as can be, so that what is held back can be cancelled; before anything is told of it.
      const claim = await claimOf(waiting);
      if (claim.kind !== 'ours') return await giveWay(waiting, claim);
      if (leave.kind === 'never')
        return await end(waiting, found.message, 'dead', rejected('rule', leave.reason), leave.reason);
      if (leave.kind === 'now') return await send(waiting, found, gate, claim.first);
      return await end(
        waiting,
        found.message,
        'dead',
        toExpiry('it was held back'),
        'held back until its time was over',
      );
    } catch (error) {
      // That the store is away is logged once, and not for every mail.
      if (error instanceof StoreAway) return { kind: 'put off' };
      throw error;
    }
  }

  async function load({ delivery }: Waiting): Promise<Loaded | undefined> {
    const found = await spool.message(delivery.messageId, delivery.id);
    const outgoing = found?.message.envelope.outgoing;
    return found && outgoing && { ...found, outgoing };
  }

  /** Whoever may still be cancelled or moved asks the store; once it was attempted it is too late for both. */
  async function claimOf({ delivery, scheduled, attempts }: Waiting): Promise<Claim> {
    return scheduled && attempts === 0 ? await scheduling.claim(delivery.id) : NOBODY_ELSES;
  }

  /** Does what somebody wished meanwhile. Nothing is told of a message that was cancelled. */
  async function giveWay(
    { delivery, parked }: Waiting,
    claim: Exclude<Claim, { readonly kind: 'ours' }>,
  ): Promise<Carried> {
    if (claim.kind === 'moved') return { kind: 'put off', at: claim.at, moved: true };
    await deps.note(settleUnattempted(delivery.id, 'dropped', parked, clock.now()));
    return { kind: 'gone' };
  }

  const isOver = ({ budgetFrom }: Waiting) => time.sure() && time.age(budgetFrom) >= limit;

  /** Written down, so that a restart keeps to it; no attempt is counted. */
  async function putOff({ delivery }: Waiting, at: number): Promise<Carried> {
    await deps.note({ ...settleUnattempted(delivery.id, 'waiting', false, clock.now()), dueAt: at });
    return { kind: 'put off', at };
  }

  async function send(waiting: Waiting, found: Loaded, gate: Gate, first: boolean): Promise<Carried> {
    const { delivery } = waiting;
    const { account, recipient } = delivery;
    const job = await toJob(waiting, found);
    if (!job) return await end(waiting, found.message, 'dropped', rejected('rule', 'its account is gone'), null);
    const [composed, sourceAddresses] = await Promise.all([
      deps.composer.compose(job),
      deps.sources.choose(account, found.outgoing, deps.ids.jitter(), new Date(clock.now())),
    ]);
    if (composed.kind === 'refused') return await refuse(waiting, found.message, composed);
    if (!(await gate.enter())) {
      // Until its destination is back it can be cancelled again. Where the store cannot be told, it cannot.
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
    );
  }

  /** What never can be composed is over; what only we cannot compose has the time of all mail, in which we may be mended. */
  async function refuse(
    waiting: Waiting,
    message: Message,
    { reason, final }: { readonly reason: string; readonly final: boolean },
  ): Promise<Carried> {
    const error = `cannot be composed: ${reason}`;
    if (final) return await end(waiting, message, 'dead', rejected('invalid', error), error);
    log.error('delivery.fault', { delivery: waiting.delivery.id, message: waiting.delivery.messageId, reason: error });
    const attempt: MailAttempt = { kind: 'unanswered', reason: error, permanent: false, durationMs: 0 };
    const settled = settleNow(waiting, attempt);
    await note(
      waiting,
      message,
      settled.settlement,
      settled.outcome === 'failed' ? rejected('invalid', error) : undefined,
    );
    if (settled.outcome === 'failed') await deps.notifying.tell(message, waiting.delivery, 'failed', '');
    return { kind: 'settled', settled, result: toTold(attempt) };
  }

  /** The same job at every attempt, so that the same mail goes out. */
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
  ): Promise<Carried> {
    // Those that are cut at the end of the process say nothing of their destination.
    if (deps.abandoned() && attempt.kind === 'unanswered') return { kind: 'turned back' };
    const settled = settleNow(waiting, attempt);
    const result = toTold(attempt);
    deps.meters?.sending(settled.happening.kind);
    gate.leave(result, settled);
    const tells = settled.outcome !== 'deferred' || (await isNews(waiting));
    await note(waiting, message, settled.settlement, tells ? withLinks(settled.happening, links) : undefined);
    const fate = settled.outcome === 'failed' ? 'failed' : 'relayed';
    if (settled.outcome !== 'deferred')
      await deps.notifying.tell(message, waiting.delivery, fate, diagOf(attempt, settled.happening));
    return { kind: 'settled', settled, result };
  }

  function settleNow({ delivery: { id }, attempts, budgetFrom }: Waiting, attempt: MailAttempt): SettledMail {
    return settleMail({
      delivery: { id, attempts },
      attempt,
      now: clock.now(),
      jitter: deps.ids.jitter(),
      budget: { age: time.age(budgetFrom), limit, mayEnd: time.sure() },
    });
  }

  /** Whether a deferral is worth telling. When the history cannot be read it is not. */
  async function isNews({ delivery, attempts, budgetFrom }: Waiting): Promise<boolean> {
    if (attempts === 0) return true;
    const before = await spool.attempts(delivery.id).catch(() => []);
    const age = time.age(budgetFrom);
    const since = clock.now() - (before.at(-1)?.at ?? clock.now());
    return tellsDeferral(attempts, Math.max(0, age - since), age);
  }

  /** Ends it without a server having been asked. */
  async function end(
    waiting: Waiting,
    message: Message | undefined,
    state: 'dead' | 'dropped',
    happening: Happening,
    error: string | null,
  ): Promise<Carried> {
    const now = clock.now();
    deps.meters?.sending(happening.kind);
    const attempt = error === null ? null : { at: now, durationMs: 0, status: null, error, answer: '' };
    await note(waiting, message, { ...settleUnattempted(waiting.delivery.id, state, false, now), attempt }, happening);
    if (message) await deps.notifying.tell(message, waiting.delivery, 'failed', String(happening.detail['diag'] ?? ''));
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
    message: Message | undefined,
    settlement: Settlement,
    happening: Happening | undefined,
  ): Promise<void> {
    const report = happening && toReport({ delivery, attempts, at: settlement.at, message }, happening);
    const hidden = settlement.state !== 'waiting' && message?.envelope.outgoing?.extras?.hideContent === true;
    await deps.note({ ...settlement, report, ...(hidden && { forget: true }) });
    if (report) deps.reported();
  }

  return frozen({
    attempt,
    async expire(waiting) {
      const found = await load(waiting);
      // Its time is over whatever the store would say; a store that is away need not be waited for.
      const claim = await claimOf(waiting).catch((error: unknown): Claim => {
        if (error instanceof StoreAway) return NOBODY_ELSES;
        throw error;
      });
      if (claim.kind !== 'ours') return await giveWay(waiting, claim);
      return await end(waiting, found?.message, 'dead', found ? toExpiry('no server could be reached') : LOST, null);
    },
  });
}

/** What is sent is told with its tracked links. */
function withLinks(happening: Happening, links: readonly string[]): Happening {
  return happening.kind === 'send' && links.length > 0 ? { ...happening, links } : happening;
}

function toTold(attempt: MailAttempt): Told {
  if (attempt.kind === 'unanswered')
    return { kind: 'unanswered', error: attempt.reason, durationMs: attempt.durationMs };
  return { kind: 'answered', status: attempt.code, durationMs: attempt.durationMs };
}

/** What the server said: of a refusal as the event has it. */
function diagOf(attempt: MailAttempt, { detail }: Happening): string {
  return String(detail['diag'] ?? (attempt.kind === 'answered' ? `smtp;${attempt.code} ${attempt.diag}` : ''));
}
