import { postern as command } from '../command.ts';
import { startDaemon, type TestDaemon } from '../daemon.ts';
import { rejectRow } from '../lists.ts';
import { type HostPort, message, sendMail } from '../mail.ts';
import { type Receiver, startReceiver } from '../receiver.ts';
import { openTestStore } from '../store.ts';
import { until } from '../until.ts';
import type { FastClock } from './fast-clock.ts';

export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** The whole daemon in this process, by a clock of ours, with two endpoints. */
export interface TimedWorld {
  readonly clock: FastClock;
  readonly dir: string;
  readonly smtp: HostPort;
  readonly good: Receiver;
  readonly bad: Receiver;
  api(path: string, params?: object): Promise<any>;
  /** Sends a message that goes to one of them; fails unless it is taken. */
  send(to: 'good' | 'bad', subject: string): Promise<void>;
  /** What is in the queue in a state. */
  queue(state: string): Promise<readonly unknown[]>;
  /** Puts an address on the rejection list, for a time. */
  reject(email: string, ms: number): Promise<void>;
  /** Whether it carries the mark of an entry that is over. */
  expired(email: string): Promise<boolean>;
  /** Has an archive made. */
  archive(): Promise<void>;
  /** The status that its link answers. */
  fetchArchive(): Promise<number>;
  /** Stops the daemon, and starts it again on the same folder by another clock. */
  restart(next: FastClock): Promise<void>;
  /** Of the daemon that runs now. */
  readonly log: TestDaemon['log'];
  close(): Promise<void>;
}

/** Limits of things that take a moment of the machine's time, which is long by a fast clock. */
const PATIENT = String(DAY);
const ENV = {
  POSTERN_WEBHOOKS__TIMEOUT_MS: PATIENT,
  POSTERN_PARSE__TIMEOUT_MS: PATIENT,
  POSTERN_INBOUND__REFRESH_MS: PATIENT,
  POSTERN_PARSE__WORKERS: '1',
  POSTERN_DELIVERY__RETRY_HOURS: '1',
  POSTERN_DELIVERY__KEEP_DEAD_DAYS: '2',
  POSTERN_DELIVERY__KEEP_DELIVERED_HOURS: '48',
  POSTERN_EXPORTS__KEEP_DAYS: '2',
  POSTERN_EVENTS__KEEP_DAYS: '2',
  POSTERN_PUBLIC_URL: 'https://mail.example.com',
  POSTERN_SMTP__MAX_LOOP_LAG_MS: PATIENT,
};

/** `start`: starts the daemon; a control has one of its own. */
export async function openTimedWorld(
  clock: FastClock,
  env: Readonly<Record<string, string>> = {},
  start = startDaemon,
): Promise<TimedWorld> {
  const [good, bad] = [await startReceiver(), await startReceiver()];
  let postern = await start({ ...ENV, ...env }, { clock });
  let present = clock;
  const { dir } = postern;
  const api: TimedWorld['api'] = (path, params) => postern.api(path, params);
  // The file may be used by another process; here another handle plays what the command line does.
  const store = await openTestStore(undefined, dir);
  const [account] = await store.accounts.many({});
  await api('/inbound/add-domain', { domain: 'in.test' });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'good', url: good.url });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'bad', url: bad.url });
  let link = '';
  return {
    get clock() {
      return present;
    },
    get log() {
      return postern.log;
    },
    get smtp() {
      return postern.smtp;
    },
    dir,
    good,
    bad,
    api,
    async send(to, subject) {
      const reply = await sendMail(postern.smtp, { from: 'ada@example.org', to: `${to}@in.test` }, message(subject));
      if (!reply.startsWith('250')) throw new Error(reply);
    },
    async queue(state) {
      const { code, out, err } = await command(['queue', 'list', '--state', state, '--limit', '1000000', '--jsonl'], {
        POSTERN_DATA_DIR: dir,
      });
      if (code !== 0) throw new Error(err);
      return out
        .split('\n')
        .filter((line) => line !== '')
        .map((line): unknown => JSON.parse(line));
    },
    async reject(email, ms) {
      await store.rejects.insert(
        rejectRow(account?.id ?? '', email, {
          reason: 'soft-bounce',
          createdAt: new Date(present.now()),
          lastEventAt: new Date(present.now()),
          expiresAt: new Date(present.now() + ms),
          termMs: ms,
        }),
      );
    },
    expired: async (email) =>
      (await store.rejects.many({ account: account?.id ?? '', expired: true })).some((row) => row.email === email),
    async archive() {
      const { id } = await api('/exports/rejects');
      const job = await until('the archive', async () => {
        const found = await api('/exports/info', { id });
        return found.state === 'complete' && found;
      });
      link = String(job.result_url).replace('https://mail.example.com', '');
    },
    fetchArchive: async () => (await fetch(`${postern.base}${link}`)).status,
    async restart(next) {
      present.speed(1);
      await postern.stop();
      present.stop();
      present = next;
      postern = await start({ ...ENV, ...env }, { clock: next, dir });
    },
    async close() {
      present.speed(1);
      await store.close();
      await postern.stop();
      await Promise.all([good.stop(), bad.stop()]);
      present.stop();
    },
  };
}
