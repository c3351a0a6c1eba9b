import MailComposer from 'nodemailer/lib/mail-composer';
import { type Clock, DAY_MS, HOUR_MS, MAX_CLOCK_SKEW_MS, MINUTE_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { domainOf, toAsciiDomain } from '../mail/addresses/address.ts';
import { createSteadiness } from '../queue/purge.ts';
import type { MailAttempt } from '../queue/settle.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { NoticeRow } from '../store/rows/notices.ts';
import type { Store } from '../store/store.ts';
import type { SignOwn } from './signing.ts';
import type { Mailer, MailOutcome, MailTransport, NoticeMail } from './types.ts';

interface NoticeDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  /** The sender of notices (`mail.from`), who also gets their bounces. */
  readonly from: string;
  readonly store: Pick<Store, 'notices' | 'quotas' | 'verifications'>;
  readonly mailer: Mailer;
  /** Measures how long notices have been tried. */
  readonly time: Pick<RunningTime, 'age' | 'sure'>;
}

/** Longer than the mailer's deadline, so that no other process sends the same notice. */
const CLAIM_MS = 5 * MINUTE_MS;
const BACKOFF_MS = [1, 5, 15, 30, 60, 120, 240].map((minutes) => minutes * MINUTE_MS);
/** Rows due far in the future that one run examines. */
const LOOK_AHEAD = 1000;
/** How long delivery of a notice is attempted. */
const TRIED_MS = DAY_MS;
const KEPT_MS = 30 * DAY_MS;
/** Notices sent concurrently. */
const AT_ONCE = 5;
const PURGED_AT_ONCE = 200;
const LONGEST_REASON = 300;

/** A notice to be sent. Subject and text are ours: the subject must contain nothing that a user typed. */
export interface NewNotice {
  readonly account: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

/** Notices: stored first, then sent, and retried for a day. */
export type Notices = ReturnType<typeof createNotices>;

export function createNotices(deps: NoticeDeps) {
  const { store, mailer, clock, ids, log } = deps;
  let running: Promise<Tally> | undefined;
  let wanted = false;
  let stopped = false;

  /** Sends now, in the background; the task retries failed notices. */
  function sendSoon(): void {
    wanted = true;
    sendDue().catch((error: unknown) => {
      if (!(error instanceof StoreAway)) log.error('task.fault', { task: 'send-notices', error });
    });
  }

  function sendDue(): Promise<Tally> {
    return (running ??= sendAll().finally(() => {
      running = undefined;
      if (wanted && !stopped) sendSoon(); // one arrived after the last query
    }));
  }

  async function sendAll(): Promise<Tally> {
    const tally = { sent: 0, deferred: 0, failed: 0 };
    while (!stopped) {
      wanted = false;
      const due = await findDue(store, clock.now());
      if (due.length === 0) break;
      for (const kind of await Promise.all(due.map((row) => attempt(deps, row)))) if (kind) tally[kind]++;
    }
    return tally;
  }

  return frozen({
    /**
     * Stores and sends a notice. `queued`: it is durable and being sent. `limited`: this address or its domain received
     * too many already. `refused`: not an address that we write to (`isPlainMailbox`).
     */
    async enqueue({ account, to, subject, text }: NewNotice) {
      const address = toPlainAddress(to);
      if (address === undefined) return 'refused';
      if (!/^[ -~]{1,200}$/.test(subject)) throw new TypeError('the subject of a notice is one line of ASCII');
      const now = new Date(clock.now());
      if (!(await takeSlots(store, quotasFor(account, address.toLowerCase()), now))) return 'limited';
      await store.notices.insert(toRow(ids.message(), { account, to: address, subject, text }, now));
      sendSoon();
      return 'queued';
    },
    /** Sends due notices and returns the number of results of each kind. Concurrent calls share one run. */
    sendDue,
    /** Deletes notices that ended long ago, a bounded number per call. Returns how many rows were deleted. */
    purge: () => purge(deps, new Date(clock.now() - KEPT_MS)),
    async stop() {
      stopped = true;
      mailer.stop();
      await running?.catch(() => undefined); // the caller has had the error
    },
  });
}

/** Finds due notices, or else those that a clock that was ahead put off: none waits longer than its backoff. */
async function findDue({ notices }: NoticeDeps['store'], now: number): Promise<readonly NoticeRow[]> {
  const due = await notices.many(
    { state: 'waiting', dueAt: { range: { lte: new Date(now) } } },
    { sort: 'dueAt', limit: AT_ONCE },
  );
  if (due.length > 0) return due;
  const far = await notices.many(
    { state: 'waiting', dueAt: { range: { gt: new Date(now + CLAIM_MS + MAX_CLOCK_SKEW_MS) } } },
    { sort: 'dueAt', limit: LOOK_AHEAD },
  );
  return far.filter((row) => row.dueAt.getTime() > now + backoff(row.attempts) + MAX_CLOCK_SKEW_MS).slice(0, AT_ONCE);
}

/** The backoff after this number of attempts, in milliseconds. */
const backoff = (attempts: number) => (attempts === 0 ? 0 : (BACKOFF_MS[attempts - 1] ?? 4 * HOUR_MS));

/** Makes one attempt at a notice: claim, send, settle. Undefined if another process claimed it. */
async function attempt(deps: NoticeDeps, row: NoticeRow): Promise<MailOutcome['kind'] | undefined> {
  const { store, time, clock, log } = deps;
  const claimed = await store.notices.change(
    { id: row.id, state: 'waiting', dueAt: row.dueAt },
    { dueAt: new Date(clock.now() + CLAIM_MS), attempts: row.attempts + 1 },
  );
  if (!claimed) return undefined;
  const outcome = await send(deps, claimed);
  // A clock that is wrong at startup must not use up a notice's time.
  const triedFor = time.sure() ? time.age(claimed.createdAt.getTime()) : 0;
  const { kind, reason, ...patch } = settle(claimed, outcome, clock.now(), triedFor);
  // Before the result is stored: after an interruption the bounce is stored again, under the same id.
  if (kind === 'failed') await bounce(deps, claimed, reason ?? '');
  await store.notices.change({ id: row.id, state: 'waiting' }, patch);
  const { id: notice, account, to } = row;
  const fields = { notice, account, to, attempts: claimed.attempts, ...(reason !== undefined && { reason }) };
  if (kind === 'sent') log.info('notice.sent', fields);
  else log.warn(kind === 'failed' ? 'notice.failed' : 'notice.deferred', fields);
  return kind;
}

async function send({ mailer, log }: NoticeDeps, row: NoticeRow): Promise<MailOutcome> {
  const { id, to, subject, text, createdAt: at } = row;
  try {
    return await mailer.send({ id, to, subject, text, at });
  } catch (error) {
    log.error('task.fault', { task: 'send-notices', error });
    return { kind: 'deferred', reason: 'internal error' };
  }
}

/**
 * Sends the operator a bounce for an undeliverable notice (RFC 5321 section 6.1), without its text, which may contain a
 * secret link. A bounce never bounces; if it cannot be delivered, there is only the log.
 */
async function bounce(
  { store, clock, from }: NoticeDeps,
  { id, account, to, subject, attempts }: NoticeRow,
  reason: string,
): Promise<void> {
  const sender = toPlainAddress(from);
  if (sender === undefined || to.toLowerCase() === sender.toLowerCase()) return;
  const facts = `  to        ${to}\n  subject   ${subject}\n  attempts  ${attempts}\n  reason    ${reason}\n`;
  const text = `This mail was not delivered:\n\n${facts}\nNo further attempts will be made.\n`;
  const notice = { account, to: sender, subject: `Undelivered: ${subject}`.slice(0, 200), text };
  await store.notices.insert(toRow(`${id}-bounce`, notice, new Date(clock.now())));
}

function toRow(id: string, notice: NewNotice, now: Date): NoticeRow {
  return { id, ...notice, createdAt: now, state: 'waiting', attempts: 0, dueAt: now, lastError: null };
}

interface Tally {
  sent: number;
  deferred: number;
  failed: number;
}

/** Limits that protect people from mail that others request: per address, and per account and domain. */
function quotasFor(account: string, address: string): readonly Quota[] {
  const domain = domainOf(address);
  return [
    { name: `notice hour ${address}`, slots: 3, ms: HOUR_MS },
    { name: `notice day ${address}`, slots: 10, ms: DAY_MS },
    { name: `notice day ${account} ${domain}`, slots: 20, ms: DAY_MS },
  ];
}

/** The changes to a notice's row after an attempt. */
function settle(row: NoticeRow, outcome: MailOutcome, now: number, triedFor: number) {
  if (outcome.kind === 'sent')
    return { kind: outcome.kind, state: 'sent' as const, text: '', dueAt: new Date(now), lastError: null };
  const reason = outcome.reason.slice(0, LONGEST_REASON);
  const wait = backoff(row.attempts);
  if (outcome.kind === 'deferred' && triedFor + wait <= TRIED_MS)
    return { kind: outcome.kind, reason, dueAt: new Date(now + wait), lastError: reason };
  const failed = 'failed' as const;
  return { kind: failed, reason, state: failed, text: '', dueAt: new Date(now), lastError: reason };
}

/** Deletes notices that ended before `before`, links that had expired, and unused quota slots. Returns how many. */
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
  const slots = await store.quotas.many({ until: old }, { sort: 'until', limit: PURGED_AT_ONCE });
  for (const { id } of slots) await store.quotas.remove({ id, until: old });
  return ended.flat().length + links.length + slots.length;
}

interface MailerSettings {
  /** The domain of Message-IDs. */
  readonly hostname: string;
  /** The sender, in header and envelope. */
  readonly from: string;
}

/** Composes notices and sends them. */
export function createMailer(
  { hostname, from }: MailerSettings,
  { carrier, signOwn }: { readonly carrier: MailTransport; readonly signOwn: SignOwn },
): Mailer {
  const compose = (mail: NoticeMail): Promise<Buffer> =>
    new MailComposer({
      from,
      to: mail.to,
      subject: mail.subject,
      text: mail.text,
      date: mail.at,
      messageId: `<${mail.id}@${hostname}>`,
      // RFC 3834 section 5: suppresses vacation replies; the other field does at Exchange.
      headers: { 'Auto-Submitted': 'auto-generated', 'X-Auto-Response-Suppress': 'OOF, AutoReply' },
      disableFileAccess: true,
      disableUrlAccess: true,
    })
      .compile()
      .build();

  return frozen({
    async send(mail) {
      return toOutcome(
        await carrier.send({
          composed: { bytes: await signOwn(await compose(mail)), mailFrom: from, links: [] },
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

/** A 5xx reply and a domain that accepts no mail are permanent; everything else is retried. */
function toOutcome(attempt: MailAttempt): MailOutcome {
  if (attempt.kind === 'unanswered') return { kind: attempt.permanent ? 'failed' : 'deferred', reason: attempt.reason };
  const { code, diag, host, address } = attempt;
  if (code < 300) return { kind: 'sent' };
  return { kind: code >= 500 ? 'failed' : 'deferred', reason: `${host} (${address}): ${code} ${diag}` };
}

/** At most `slots` in any `ms` milliseconds, counted by `name`. */
interface Quota {
  readonly name: string;
  readonly slots: number;
  readonly ms: number;
}

interface QuotaSlot {
  readonly id: string;
  readonly until: Date;
}

/**
 * Takes a slot of every quota, or of none. A slot is a row held until a time; a conditional write gives it to one
 * caller only, so concurrent processes never exceed the quota.
 */
async function takeSlots(store: Pick<Store, 'quotas'>, quotas: readonly Quota[], now: Date): Promise<boolean> {
  const taken: QuotaSlot[] = [];
  for (const quota of quotas) {
    const slot = await takeSlot(store, quota, now);
    if (!slot) {
      for (const { id, until } of taken) await store.quotas.change({ id, until }, { until: now });
      return false;
    }
    taken.push(slot);
  }
  return true;
}

async function takeSlot(
  { quotas }: Pick<Store, 'quotas'>,
  { name, slots, ms }: Quota,
  now: Date,
): Promise<QuotaSlot | undefined> {
  const until = new Date(now.getTime() + ms);
  for (let number = 0; number < slots; number++) {
    const id = `${name} ${number}`;
    if ((await quotas.insert({ id, until })) === 'inserted') return { id, until };
    if (await quotas.change({ id, until: { range: { lte: now } } }, { until })) return { id, until };
    // No valid slot is held this long: the clock was ahead when it was taken.
    if (await quotas.change({ id, until: { range: { gt: new Date(until.getTime() + MAX_CLOCK_SKEW_MS) } } }, { until }))
      return { id, until };
  }
  return undefined;
}

// Deliberately much less than RFC 5321 allows: without characters that could be quoted, escaped or routed on (`!`, `%`,
// `|`, `/`), no server can misread an address and no header can contain anything else.
const MAILBOX = /^[A-Za-z0-9_+=~&-]+(?:\.[A-Za-z0-9_+=~&-]+)*$/;
const LONGEST_MAILBOX = 64; // RFC 5321 section 4.5.3.1.1

/** Whether we send to this local part: letters, digits, `_ + = ~ & -`, and dots between them. */
export function isPlainMailbox(text: string): boolean {
  return text.length <= LONGEST_MAILBOX && MAILBOX.test(text);
}

/** Normalizes an address that we send to, its domain to lower-case A-labels; undefined for others. */
export function toPlainAddress(text: string): string | undefined {
  const at = text.lastIndexOf('@');
  const domain = toAsciiDomain(text.slice(at + 1));
  if (at < 1 || domain === undefined || !domain.includes('.') || !isPlainMailbox(text.slice(0, at))) return undefined;
  return `${text.slice(0, at)}@${domain}`;
}

/** Retries notices that are due, and purges old ones. New notices are sent without it. */
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
