import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import { atOnce, toEnd } from '../base/turns.ts';
import type { MessageEvent, NewSentMessage, Recorder } from '../events/record.ts';
import { classifyReply } from '../mail/bounce.ts';
import { sentId } from '../mail/return-address.ts';
import type { Message, Report, Spool } from '../queue/delivery.ts';
import { isFinal, type MailAttempt, type Settled } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import { makingSentMessage } from './submit.ts';
import type { SentDelivery } from './types.ts';

interface ReporterDeps {
  readonly spool: Pick<Spool, 'reports' | 'reported'>;
  readonly recorder: Recorder;
  readonly clock: Clock;
  readonly log: Log;
}

/** Tells the store what became of mail that went out. */
export interface Reporter extends Service {
  /** There are new reports. */
  poke(): void;
  /** Everything has been told. */
  idle(): boolean;
}

/** Reports that are told before the spool forgets them, together. */
const BATCH = 50;
/** So many can share one write of the spool, and mail coming in has its turn. */
const PACE_MS = 20;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 60_000;
/** A report that the store cannot take, although it is there, is told again now and then, and holds up no other. */
const STUBBORN_MS = 300_000;

/**
 * Takes reports off the spool, oldest first, and records them; only then the spool may forget them. What was cut off in
 * between is told twice and recorded once, for events have the ids of their reports. While the store is away it waits:
 * reports stay.
 */
export function createReporter({ spool, recorder, clock, log }: ReporterDeps): Reporter {
  /** Those that failed for a reason of their own, and when they may be told again. */
  const stubborn = new Map<string, number>();
  let phase: 'new' | 'running' | 'stopped' = 'new';
  let wait = FIRST_WAIT_MS;
  let working: Promise<void> | undefined;
  let fresh = false;
  let cancel = (): void => {};
  /** What it waits for before it goes on, if anything. */
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
    // In the same step as the look at `fresh` below: whoever pokes in between would be heard by nobody.
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
    const told = await atOnce(ready, (report) => {
      // Those of one message in their order.
      const about = readReport(report)?.event.message ?? report.id;
      const mine = Promise.resolve(turns.get(about)).then(() => tell(report));
      turns.set(about, mine);
      return mine;
    });
    const done = ready.filter((_, n) => told[n] === true).map(({ id }) => id);
    if (done.length > 0) await spool.reported(done);
    for (const id of done) stubborn.delete(id);
    if (told.includes(false)) throw new StoreAway('reports are told later');
    return ready.length === BATCH ? 'more' : 'done';
  }

  /** Whether it has been told; false: the store is away. */
  async function tell(report: Report): Promise<boolean | 'refused'> {
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

  async function record(report: Report): Promise<void> {
    const told = readReport(report);
    if (!told) throw new Error('a report cannot be read');
    const { event, sent } = told;
    if ((await recorder.record(event)) !== 'unknown') return;
    // The store was away when the message came. A lost message has no row, and nothing to make one of.
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
    poke,
    idle: () => !working && (pausing === undefined || pausing === 'stubborn') && !fresh,
  });
}

/** What happened to mail going out, as the events of messages have it. */
export interface Happening {
  readonly kind: MessageEvent['kind'];
  readonly detail: NonNullable<MessageEvent['detail']>;
  readonly links?: readonly string[];
}

/** A report as the store gets it. */
interface OutcomeReport {
  readonly event: MessageEvent;
  /**
   * The row of its message, in case it could not be written when the message came. Null when the message itself was
   * lost.
   */
  readonly sent: NewSentMessage | null;
}

interface Body {
  readonly event: Omit<MessageEvent, 'at' | 'id'> & { readonly at: number };
  readonly sent: (Omit<NewSentMessage, 'createdAt'> & { readonly createdAt: number }) | null;
}

interface ReportFacts {
  readonly delivery: SentDelivery;
  /** Attempts made before. */
  readonly attempts: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** On the spool; undefined when it was lost. */
  readonly message: Message | undefined;
}

/**
 * The report of an attempt. Its id, which is also the event's, is made of the delivery and the attempt: an attempt that
 * a crash made twice is one event.
 */
export function toReport({ delivery, attempts, at, message }: ReportFacts, { kind, detail, links }: Happening): Report {
  const { id, account } = delivery;
  const outgoing = message?.envelope.outgoing;
  const sent = message && outgoing ? toEnd(makingSentMessage(outgoing, delivery, message.receivedAt)) : null;
  const body: Body = {
    event: { account, message: sentId(id), kind, at, detail, ...(links && { links }) },
    sent: sent && { ...sent, createdAt: sent.createdAt.getTime() },
  };
  return { id: hash('sha256', `${kind}\0${id}\0${attempts}`, 'hex').slice(0, 32), body: JSON.stringify(body) };
}

/** Undefined: the text is no report, because the disk damaged it or a later version wrote it. */
export function readReport({ id, body }: Report): OutcomeReport | undefined {
  try {
    // Written by `toReport` and kept by the spool, which is trusted.
    const { event, sent }: Body = JSON.parse(body);
    return {
      event: { ...event, id, at: new Date(event.at) },
      sent: sent && { ...sent, createdAt: new Date(sent.createdAt) },
    };
  } catch {
    return undefined;
  }
}

const DAY = 24 * 3_600_000;

/** What is to be told of an attempt: every deferral here, however often. */
export function toHappening(attempt: MailAttempt, { outcome }: Pick<Settled, 'outcome'>): Happening {
  if (outcome === 'failed') return isFinal(attempt) ? toBounce(attempt) : toExpiry(wordsOf(attempt));
  const places = attempt.kind === 'answered' ? { source_ip: attempt.source, destination_ip: attempt.address } : {};
  return { kind: outcome === 'delivered' ? 'send' : 'deferral', detail: { diag: wordsOf(attempt), ...places } };
}

/** What is told of mail whose time was over before anybody took it. */
export function toExpiry(last: string): Happening {
  const diag = `4.4.7 delivery time expired${last === '' ? '' : `; the last answer was: ${last}`}`;
  const { kind, description, bgtools_code: code } = classifyReply(451, '4.4.7');
  return { kind, detail: { diag: `smtp;451 ${diag}`, description, code } };
}

/**
 * Of the deferrals of a message the first is told, and then one a day: readers want to know that it hangs, not each
 * time. `before` is the age of the message at its previous attempt, `age` its age now.
 */
export function tellsDeferral(attempts: number, before: number, age: number): boolean {
  return attempts === 0 || Math.floor(age / DAY) > Math.floor(before / DAY);
}

function toBounce(attempt: MailAttempt): Happening {
  if (attempt.kind === 'answered') {
    const { kind, description, bgtools_code: code } = classifyReply(attempt.code, attempt.diag);
    return { kind, detail: { diag: `smtp;${wordsOf(attempt)}`, description, code } };
  }
  // RFC 3463: 5.1.2, bad destination system address.
  const diag = `5.1.2 ${attempt.reason}`;
  const { kind, description, bgtools_code: code } = classifyReply(550, '5.1.2');
  return { kind, detail: { diag: `smtp;550 ${diag}`, description, code } };
}

/** RFC 3463: 4.4.1, no answer from host. */
function wordsOf(attempt: MailAttempt): string {
  return attempt.kind === 'answered' ? `${attempt.code} ${attempt.diag}` : `451 4.4.1 ${attempt.reason}`;
}
