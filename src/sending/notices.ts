import MailComposer from 'nodemailer/lib/mail-composer';
import { AGREE_MS, type Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { toAsciiDomain } from '../mail/address.ts';
import { createSteadiness } from '../queue/purge.ts';
import type { MailAttempt } from '../queue/settle.ts';
import type { NoticeRow } from '../store/rows/notices.ts';
import type { Store } from '../store/store.ts';
import type { Mail, MailCarrier, Mailer, MailOutcome, Notices } from './types.ts';

interface NoticeDeps {
  /** Whom our mail is from (`mail.from`), who hears what could not be delivered. */
  readonly from: string;
  readonly store: Pick<Store, 'notices' | 'quotas' | 'verifications'>;
  readonly mailer: Mailer;
  readonly clock: Clock;
  /** How long notices have been tried. */
  readonly time: Pick<RunningTime, 'age' | 'sure'>;
  readonly ids: Ids;
  readonly log: Log;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** Longer than the mailer's deadline, so that nobody else sends what one process is sending. */
const CLAIM_MS = 5 * MINUTE_MS;
const BACKOFF_MS = [1, 5, 15, 30, 60, 120, 240].map((minutes) => minutes * MINUTE_MS);
/** Rows whose time is far ahead that are looked at in one run. */
const LOOK_AHEAD = 1000;
/** How long a notice is tried. */
const TRIED_MS = DAY_MS;
const KEPT_MS = 30 * DAY_MS;
/** Notices on their way at one time. */
const AT_ONCE = 5;
const PURGED_AT_ONCE = 200;
const LONGEST_REASON = 300;

/** The part that sends notices. */
export function createNotices(deps: NoticeDeps): Notices {
  const { store, mailer, clock, ids, log } = deps;
  const attempt = createAttempt(deps);
  let running: Promise<Tally> | undefined;
  let wanted = false;
  let stopped = false;

  /** Sends now, without anybody waiting for it; the task comes again for what goes wrong here. */
  function sendSoon(): void {
    wanted = true;
    sendDue().catch((error: unknown) => log.error('task.fault', { task: 'send-notices', error }));
  }

  function sendDue(): Promise<Tally> {
    return (running ??= sendAll().finally(() => {
      running = undefined;
      if (wanted && !stopped) sendSoon(); // one that came in after the last look
    }));
  }

  async function sendAll(): Promise<Tally> {
    const tally = { sent: 0, deferred: 0, failed: 0 };
    while (!stopped) {
      wanted = false;
      const due = await findDue(store, clock.now());
      if (due.length === 0) break;
      for (const kind of await Promise.all(due.map(attempt))) if (kind) tally[kind]++;
    }
    return tally;
  }

  return frozen({
    async enqueue({ account, to, subject, text }) {
      const address = toPlainAddress(to);
      if (address === undefined) return 'refused';
      if (!/^[ -~]{1,200}$/.test(subject)) throw new TypeError('the subject of a notice is one line of ASCII');
      const now = new Date(clock.now());
      if (!(await takePlaces(store, quotasFor(account, address.toLowerCase()), now))) return 'limited';
      await store.notices.insert({
        id: ids.message(),
        account,
        to: address,
        subject,
        text,
        createdAt: now,
        state: 'waiting',
        attempts: 0,
        dueAt: now,
        lastError: null,
      });
      sendSoon();
      return 'queued';
    },
    sendDue,
    purge: () => purge(deps, new Date(clock.now() - KEPT_MS)),
    async stop() {
      stopped = true;
      mailer.stop();
      await running?.catch(() => undefined); // whoever asked has heard of it
    },
  });
}

/** What is due by the clock, or else what a clock that was ahead put off: nothing waits longer than it was told to. */
async function findDue({ notices }: NoticeDeps['store'], now: number): Promise<readonly NoticeRow[]> {
  const due = await notices.many(
    { state: 'waiting', dueAt: { range: { lte: new Date(now) } } },
    { sort: 'dueAt', limit: AT_ONCE },
  );
  if (due.length > 0) return due;
  const far = await notices.many(
    { state: 'waiting', dueAt: { range: { gt: new Date(now + CLAIM_MS + AGREE_MS) } } },
    { sort: 'dueAt', limit: LOOK_AHEAD },
  );
  return far.filter((row) => row.dueAt.getTime() > now + backoff(row.attempts) + AGREE_MS).slice(0, AT_ONCE);
}

/** How long a notice waits after so many attempts, in milliseconds. */
const backoff = (attempts: number) => (attempts === 0 ? 0 : (BACKOFF_MS[attempts - 1] ?? 4 * HOUR_MS));

/** One attempt at one notice: claimed, handed to the mailer, settled. */
function createAttempt(deps: NoticeDeps): (row: NoticeRow) => Promise<MailOutcome['kind'] | undefined> {
  const { store, mailer, clock, log } = deps;

  async function send({ id, to, subject, text, createdAt }: NoticeRow): Promise<MailOutcome> {
    try {
      return await mailer.send({ id, to, subject, text, at: createdAt });
    } catch (error) {
      log.error('task.fault', { task: 'send-notices', error });
      return { kind: 'deferred', reason: 'internal error' };
    }
  }

  /** A clock that is wrong at the start must not use up a notice's time. */
  function triedFor({ createdAt }: NoticeRow): number {
    return deps.time.sure() ? deps.time.age(createdAt.getTime()) : 0;
  }

  return async (row) => {
    const claimed = await store.notices.change(
      { id: row.id, state: 'waiting', dueAt: row.dueAt },
      { dueAt: new Date(clock.now() + CLAIM_MS), attempts: row.attempts + 1 },
    );
    if (!claimed) return undefined; // another process has it
    const { kind, reason, ...patch } = settle(claimed, await send(claimed), clock.now(), triedFor(claimed));
    // Before the end is noted: cut off in between, it is tried to be told again, under the same id.
    if (kind === 'failed') await bounce(deps, claimed, reason ?? '');
    await store.notices.change({ id: row.id, state: 'waiting' }, patch);
    const fields = {
      notice: row.id,
      account: row.account,
      to: row.to,
      attempts: claimed.attempts,
      ...(reason !== undefined && { reason }),
    };
    if (kind === 'sent') log.info('notice.sent', fields);
    else log.warn(kind === 'failed' ? 'notice.failed' : 'notice.deferred', fields);
    return kind;
  };
}

/**
 * Tells the sender of our own mail what was never delivered (RFC 5321 section 6.1). Its text stays away, for it may
 * hold a link that proves something. What cannot be told to the sender is in the log, and never bounces again.
 */
async function bounce(
  { store, clock, from }: NoticeDeps,
  { id, account, to, subject, attempts }: NoticeRow,
  reason: string,
): Promise<void> {
  const sender = toPlainAddress(from);
  if (sender === undefined || to.toLowerCase() === sender.toLowerCase()) return;
  const now = new Date(clock.now());
  const text = `This mail was not delivered:\n\n  to        ${to}\n  subject   ${subject}\n  attempts  ${attempts}\n  reason    ${reason}\n\nIt is not tried again.\n`;
  const row = {
    account,
    to: sender,
    subject: `Undelivered: ${subject}`.slice(0, 200),
    text,
    createdAt: now,
    state: 'waiting' as const,
    attempts: 0,
    dueAt: now,
    lastError: null,
  };
  await store.notices.insert({ id: `${id}-bounce`, ...row });
}

interface Tally {
  sent: number;
  deferred: number;
  failed: number;
}

/**
 * What protects a person from mail that others ask for: each address by itself, and what one account asks for at one
 * domain.
 */
function quotasFor(account: string, address: string): readonly Quota[] {
  const domain = address.slice(address.lastIndexOf('@') + 1);
  return [
    { name: `notice hour ${address}`, places: 3, ms: HOUR_MS },
    { name: `notice day ${address}`, places: 10, ms: DAY_MS },
    { name: `notice day ${account} ${domain}`, places: 20, ms: DAY_MS },
  ];
}

/** What comes next for a notice, by what became of its attempt. */
function settle(row: NoticeRow, outcome: MailOutcome, now: number, triedFor: number) {
  if (outcome.kind === 'sent')
    return { kind: outcome.kind, state: 'sent' as const, text: '', dueAt: new Date(now), lastError: null };
  const reason = outcome.reason.slice(0, LONGEST_REASON);
  const wait = backoff(row.attempts);
  if (outcome.kind === 'deferred' && triedFor + wait <= TRIED_MS)
    return { kind: outcome.kind, reason, dueAt: new Date(now + wait), lastError: reason };
  return {
    kind: 'failed' as const,
    reason,
    state: 'failed' as const,
    text: '',
    dueAt: new Date(now),
    lastError: reason,
  };
}

/**
 * Removes notices that ended before `before`, links that were over by then, and places of quotas that nobody takes any
 * more.
 */
async function purge({ store }: NoticeDeps, before: Date): Promise<number> {
  const old = { range: { lt: before } };
  const ended = await Promise.all(
    (['sent', 'failed'] as const).map((state) =>
      store.notices.many({ state, dueAt: old }, { sort: 'dueAt', limit: PURGED_AT_ONCE }),
    ),
  );
  for (const { id } of ended.flat()) await store.notices.remove({ id });
  const links = await store.verifications.many({ expiresAt: old }, { sort: 'expiresAt', limit: PURGED_AT_ONCE });
  for (const { id } of links) await store.verifications.remove({ id });
  const places = await store.quotas.many({ until: old }, { sort: 'until', limit: PURGED_AT_ONCE });
  for (const { id } of places) await store.quotas.remove({ id, until: old });
  return ended.flat().length + links.length + places.length;
}

interface MailerSettings {
  /** What Message-IDs end in. */
  readonly hostname: string;
  /** The sender, in the header and in the envelope. */
  readonly from: string;
}

/** Writes mail of our own and has it carried. */
export function createMailer(
  { hostname, from }: MailerSettings,
  { carrier }: { readonly carrier: MailCarrier },
): Mailer {
  const compose = (mail: Mail): Promise<Buffer> =>
    new MailComposer({
      from,
      to: mail.to,
      subject: mail.subject,
      text: mail.text,
      date: mail.at,
      messageId: `<${mail.id}@${hostname}>`,
      // RFC 3834 section 5: no vacation notices, please.
      headers: { 'Auto-Submitted': 'auto-generated' },
      disableFileAccess: true,
      disableUrlAccess: true,
    })
      .compile()
      .build();

  return frozen({
    async send(mail) {
      return toOutcome(
        await carrier.carry({
          composed: { bytes: await compose(mail), mailFrom: from, links: [] },
          recipient: mail.to,
          sourceAddresses: [],
        }),
      );
    },
    stop() {
      void carrier.stop();
    },
  });
}

/**
 * A refusal of the message by a 5xx is final, and so is a domain that takes no mail; everything else may be better
 * later.
 */
function toOutcome(attempt: MailAttempt): MailOutcome {
  if (attempt.kind === 'unanswered') return { kind: attempt.permanent ? 'failed' : 'deferred', reason: attempt.reason };
  const { code, diag, host, address } = attempt;
  if (code < 300) return { kind: 'sent' };
  return { kind: code >= 500 ? 'failed' : 'deferred', reason: `${host} (${address}): ${code} ${diag}` };
}

/** At most `places` in any `ms` milliseconds of what `name` names. */
interface Quota {
  readonly name: string;
  readonly places: number;
  readonly ms: number;
}

interface QuotaPlace {
  readonly id: string;
  readonly until: Date;
}

/**
 * Takes a place of every quota, or of none. A place is a row that is held until a time; a step of the store hands it to
 * one asker only, so any number of processes that ask at once get no more than there are.
 */
async function takePlaces(store: Pick<Store, 'quotas'>, quotas: readonly Quota[], now: Date): Promise<boolean> {
  const taken: QuotaPlace[] = [];
  for (const quota of quotas) {
    const place = await takePlace(store, quota, now);
    if (!place) {
      for (const { id, until } of taken) await store.quotas.change({ id, until }, { until: now });
      return false;
    }
    taken.push(place);
  }
  return true;
}

async function takePlace(
  { quotas }: Pick<Store, 'quotas'>,
  { name, places, ms }: Quota,
  now: Date,
): Promise<QuotaPlace | undefined> {
  const until = new Date(now.getTime() + ms);
  for (let number = 0; number < places; number++) {
    const id = `${name} ${number}`;
    if ((await quotas.insert({ id, until })) === 'inserted') return { id, until };
    if (await quotas.change({ id, until: { range: { lte: now } } }, { until })) return { id, until };
    // Nobody honest takes a place for longer: the clock was ahead then.
    if (await quotas.change({ id, until: { range: { gt: new Date(until.getTime() + AGREE_MS) } } }, { until }))
      return { id, until };
  }
  return undefined;
}

// Much less than RFC 5321 allows, on purpose: what cannot be quoted, escaped or routed on (`!`, `%`, `|`, `/`) cannot
// be misread by any server on the way, nor end up in a header as anything but an address.
const MAILBOX = /^[A-Za-z0-9_+=~&-]+(?:\.[A-Za-z0-9_+=~&-]+)*$/;
const LONGEST_MAILBOX = 64; // RFC 5321 section 4.5.3.1.1

/** Whether we write to a mailbox of this name: letters, digits, `_ + = ~ & -`, and dots between them. */
export function isPlainMailbox(text: string): boolean {
  return text.length <= LONGEST_MAILBOX && MAILBOX.test(text);
}

/** An address that we write to, with its domain as lower-case A-labels; undefined for one that we do not. */
export function toPlainAddress(text: string): string | undefined {
  const at = text.lastIndexOf('@');
  const domain = toAsciiDomain(text.slice(at + 1));
  if (at < 1 || domain === undefined || !domain.includes('.') || !isPlainMailbox(text.slice(0, at))) return undefined;
  return `${text.slice(0, at)}@${domain}`;
}

/** Sends the mail of our own that is due again, and forgets what is over. New mail does not wait for this. */
export function sendNoticesTask(deps: {
  readonly notices: Pick<Notices, 'sendDue' | 'purge'>;
  readonly clock: Clock;
  readonly time: Pick<RunningTime, 'believed'>;
}): Task {
  const isSteady = createSteadiness(deps.clock, deps.time);
  return {
    perHost: true, // each notice is claimed
    async run() {
      const { sent, deferred, failed } = await deps.notices.sendDue();
      const forgotten = isSteady() ? await deps.notices.purge() : 0;
      return sent + deferred + failed + forgotten > 0 ? { sent, deferred, failed, forgotten } : undefined;
    },
  };
}
