import { hash } from 'node:crypto';
import { DAY_MS } from '../base/clock.ts';
import { mapConcurrently, runToEnd } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { MessageEvent, NewSentMessage, Recorder } from '../events/record.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import { bounceDetail, classifyReply } from '../mail/bounce.ts';
import { namesInSmtpReply } from '../mail/replies/sent-names.ts';
import type { Message, SendReport, Spool } from '../queue/delivery.ts';
import { isFinal, type MailAttempt, type Settled } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Copies } from './copies.ts';
import { makingSentMessage } from './submit.ts';
import type { SentDelivery } from './types.ts';

interface ReporterDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly copies: Pick<Copies, 'ended'>;
  readonly spool: Pick<Spool, 'reports' | 'reported'>;
  readonly recorder: Recorder;
}

/** Reports recorded before the spool forgets them, together. */
const BATCH = 50;
/** Lets many reports share one spool write, and incoming mail in between. */
const PACE_MS = 20;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 60_000;
/** A report that fails although the store is available is retried at this interval, without blocking others. */
const STUBBORN_MS = 300_000;

/**
 * Takes reports off the spool, oldest first, and records them; only then may the spool forget them. After an
 * interruption a report is recorded again, but counted once, because events have the ids of their reports. While the
 * store is unavailable, reports stay on the spool.
 */
export function createReporter({ spool, copies, recorder, clock, log }: ReporterDeps) {
  /** Reports that failed on their own account, and when they may be retried. */
  const stubborn = new Map<string, number>();
  let phase: 'new' | 'running' | 'stopped' = 'new';
  let wait = FIRST_WAIT_MS;
  let working: Promise<void> | undefined;
  let fresh = false;
  let cancel = (): void => {};
  /** The reason for waiting, if it waits. */
  let pausing: 'pace' | 'store' | 'stubborn' | undefined;

  function poke(): void {
    fresh = true;
    if (phase !== 'running' || working || pausing === 'pace' || pausing === 'store') return;
    pause('pace', PACE_MS);
  }

  function pause(reason: NonNullable<typeof pausing>, ms: number): void {
    cancel();
    pausing = reason;
    cancel = clock.after(ms, () => {
      pausing = undefined;
      working = work();
    });
  }

  async function work(): Promise<void> {
    fresh = false;
    const outcome = await tellSome().catch((error: unknown) => {
      if (!(error instanceof StoreAway) && phase === 'running') log.error('event.fault', { error });
      return 'failed' as const;
    });
    // Must be set synchronously with the check of `fresh` below; otherwise a poke in between would be lost.
    working = undefined;
    if (phase !== 'running') return;
    if (outcome === 'failed') {
      pause('store', wait);
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
      return;
    }
    wait = FIRST_WAIT_MS;
    if (outcome === 'more' || fresh) pause('pace', PACE_MS);
    else if (stubborn.size > 0) pause('stubborn', STUBBORN_MS);
  }

  async function tellSome(): Promise<'more' | 'done'> {
    const now = clock.monotonic();
    const found = await spool.reports(BATCH + stubborn.size);
    const ready = found.filter(({ id }) => (stubborn.get(id) ?? now) <= now).slice(0, BATCH);
    const turns = new Map<string, Promise<unknown>>();
    const told = await mapConcurrently(ready, (report) => {
      // Reports on one message are recorded in order.
      const about = readReport(report)?.event.message ?? report.id;
      const mine = Promise.resolve(turns.get(about)).then(() => tell(report));
      turns.set(about, mine);
      return mine;
    });
    const recorded = ready.filter((_, n) => told[n] === true);
    // Before the queue forgets the reports, because a remaining copy could be taken over.
    await mapConcurrently(recorded, async (report) => {
      const copy = readReport(report)?.copy;
      if (copy !== undefined) await copies.ended(copy);
    });
    const done = recorded.map(({ id }) => id);
    if (done.length > 0) await spool.reported(done);
    for (const id of done) stubborn.delete(id);
    if (told.includes(false)) throw new StoreAway('reports are waiting for the store');
    return ready.length === BATCH ? 'more' : 'done';
  }

  /** Whether it was recorded; false: the store is unavailable. */
  async function tell(report: SendReport): Promise<boolean | 'refused'> {
    try {
      await record(report);
      return true;
    } catch (error) {
      if (error instanceof StoreAway) return false;
      log.error('event.fault', { report: report.id, error });
      stubborn.set(report.id, clock.monotonic() + STUBBORN_MS);
      return 'refused';
    }
  }

  async function record(report: SendReport): Promise<void> {
    const told = readReport(report);
    if (!told) throw new Error('the report cannot be parsed');
    const { event, sent } = told;
    if ((await recorder.record(event)) !== 'unknown') return;
    // The store was unavailable when the message was submitted. A lost message has no row, and no data for one.
    if (sent) await recorder.begin(sent);
    if ((await recorder.record(event)) === 'unknown')
      log.warn('event.fault', { report: report.id, reason: 'its message has no row' });
  }

  return frozen({
    async start() {
      phase = 'running';
      pause('pace', 0);
    },
    async stop() {
      phase = 'stopped';
      cancel();
      await working;
    },
    /** New reports were written. */
    poke,
    /** Whether all reports have been recorded, except those being retried. */
    idle: () => !working && (pausing === undefined || pausing === 'stubborn') && !fresh,
  });
}

/** An event of an outbound message, as it is recorded. */
export interface Happening {
  readonly kind: MessageEvent['kind'];
  readonly detail: NonNullable<MessageEvent['detail']>;
  readonly links?: readonly string[];
  /** Ids that a relay assigned. */
  readonly names?: readonly string[];
}

interface OutcomeReport {
  readonly event: MessageEvent;
  /** The message's row, in case it could not be written at submission. Null if the message itself was lost. */
  readonly sent: NewSentMessage | null;
  /** The delivery, if it has a copy. */
  readonly copy: string | undefined;
}

interface Body {
  readonly event: Omit<MessageEvent, 'at' | 'id'> & { readonly at: number };
  readonly sent: (Omit<NewSentMessage, 'createdAt'> & { readonly createdAt: number }) | null;
  readonly copy?: string;
}

interface ReportFacts {
  readonly delivery: SentDelivery;
  /** Previous attempts. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** On the spool; undefined if it was lost. */
  readonly message: Message | undefined;
}

/**
 * Makes the report of an attempt. Its id, also the event's, is derived from the kind, the delivery and the attempt, so
 * that an attempt repeated after a crash is one event.
 */
export function toReport(
  { delivery, attempts, at, message }: ReportFacts,
  { kind, detail, links, names }: Happening,
): SendReport {
  const { id, account } = delivery;
  const outgoing = message?.envelope.outgoing;
  const sent = message && outgoing ? runToEnd(makingSentMessage(outgoing, delivery, message.receivedAt)) : null;
  const body: Body = {
    event: { account, message: sentId(id), kind, at, detail, ...(links && { links }), ...(names && { names }) },
    sent: sent && { ...sent, createdAt: sent.createdAt.getTime() },
    ...(message?.envelope.copiedIn !== undefined && { copy: id }),
  };
  return { id: hash('sha256', `${kind}\0${id}\0${attempts}`, 'hex').slice(0, 32), body: JSON.stringify(body) };
}

/** Parses a report. Undefined if the disk damaged it or a later version wrote it. */
export function readReport({ id, body }: SendReport): OutcomeReport | undefined {
  try {
    // Written by `toReport` and kept by the spool, which is trusted.
    const { event, sent, copy }: Body = JSON.parse(body);
    return {
      event: { ...event, id, at: new Date(event.at) },
      sent: sent && { ...sent, createdAt: new Date(sent.createdAt) },
      copy,
    };
  } catch {
    return undefined;
  }
}

/** The event of an attempt; every deferral gives one here. */
export function toHappening(attempt: MailAttempt, { outcome }: Pick<Settled, 'outcome'>): Happening {
  if (outcome === 'failed') return isFinal(attempt) ? toBounce(attempt) : toExpiry(wordsOf(attempt));
  const detail = { diag: wordsOf(attempt), ...connectionOf(attempt) };
  if (outcome !== 'delivered') return { kind: 'deferral', detail };
  const names = attempt.kind === 'answered' && attempt.relayed ? namesInSmtpReply(attempt.diag) : [];
  return { kind: 'send', detail, ...(names.length > 0 && { names }) };
}

/** The addresses of the connection that brought a reply; empty for our own. */
function connectionOf(attempt: MailAttempt): Happening['detail'] {
  if (attempt.kind !== 'answered' || attempt.host === '') return {};
  return { source_ip: attempt.source, destination_ip: attempt.address, destination: attempt.host };
}

/** The bounce event of mail that expired undelivered. */
export function toExpiry(last: string): Happening {
  const diag = `4.4.7 delivery time expired${last === '' ? '' : `; the last answer was: ${last}`}`;
  const bounce = classifyReply(451, '4.4.7');
  return { kind: bounce.kind, detail: { diag: `smtp;451 ${diag}`, ...bounceDetail(bounce) } };
}

/**
 * Whether a deferral is recorded: the first one, then one a day. `before` is the age of the message at its previous
 * attempt, `age` its age now; milliseconds.
 */
export function tellsDeferral(attempts: number, before: number, age: number): boolean {
  return attempts === 0 || Math.floor(age / DAY_MS) > Math.floor(before / DAY_MS);
}

function toBounce(attempt: MailAttempt): Happening {
  if (attempt.kind === 'answered') {
    const bounce = classifyReply(attempt.code, attempt.diag);
    return {
      kind: bounce.kind,
      detail: { diag: `smtp;${wordsOf(attempt)}`, ...bounceDetail(bounce), ...connectionOf(attempt) },
    };
  }
  // RFC 3463: 5.1.2, bad destination system address.
  const diag = `5.1.2 ${attempt.reason}`;
  const bounce = classifyReply(550, '5.1.2');
  return { kind: bounce.kind, detail: { diag: `smtp;550 ${diag}`, ...bounceDetail(bounce) } };
}

/** RFC 3463: 4.4.1, no answer from host. */
function wordsOf(attempt: MailAttempt): string {
  return attempt.kind === 'answered' ? `${attempt.code} ${attempt.diag}` : `451 4.4.1 ${attempt.reason}`;
}
