import { AGREE_MS, type Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { NoticeRow } from '../store/notices.ts';
import type { Store } from '../store/store.ts';
import { toPlainAddress } from './plain-address.ts';
import { type Quota, takePlaces } from './quotas.ts';
import type { Mailer, MailOutcome, NewNotice, Notices } from './types.ts';

export interface NoticeDeps {
  /** Whom our mail is from (`mail.from`), who hears what could not be delivered. */
  readonly from: string;
  readonly store: Pick<Store, 'notices' | 'quotas' | 'verifications'>;
  readonly mailer: Mailer;
  readonly clock: Clock;
  /** How long notices have been tried; without it, by the clock. */
  readonly time?: Pick<RunningTime, 'age' | 'sure'> | undefined;
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

  return Object.freeze({
    async enqueue({ account, to, subject, text }: NewNotice) {
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
      return { kind: 'deferred', reason: 'a fault of ours' };
    }
  }

  /** A clock that is wrong at the start must not use up a notice's time. */
  function triedFor({ createdAt }: NoticeRow): number {
    if (!deps.time) return clock.now() - createdAt.getTime();
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
 * Tells the sender of our own mail what was never delivered (RFC 5321 section 6.1). Its text stays away, for it may hold a link that
 * proves something. What cannot be told to the sender is in the log, and never bounces again.
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

/** What protects a person from mail that others ask for: each address by itself, and what one account asks for at one domain. */
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

/** Removes notices that ended before `before`, links that were over by then, and places of quotas that nobody takes any more. */
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
