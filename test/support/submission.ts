import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import type { RecipientOutcome, Submission, SubmitOutcome } from '../../src/sending/types.ts';
import { WRONG_KEY_MS } from '../../src/smtp/submission/login.ts';
import { createSubmission, type SubmissionSettings } from '../../src/smtp/submission/submission.ts';
import { StoreAway } from '../../src/store/driver/port.ts';
import { createKeyUses } from '../../src/store/key-uses.ts';
import { createKey, keyHash } from '../../src/store/rows/accounts.ts';

import type { Store } from '../../src/store/store.ts';
import { limitsOf } from './api.ts';
import { createTestClock, type TestClock } from './clock.ts';
import { createTestLog } from './log.ts';
import { NO_NOTES } from './notes.ts';
import { type Client, createClient, LISTENER_SETTINGS } from './smtp.ts';
import { openTestStore } from './store.ts';

const pem = (name: string) => readFileSync(join(import.meta.dirname, '../fixtures/tls', `${name}.pem`), 'utf8');

/** Self-signed, for tests alone. */
export const CERTIFICATE = { cert: pem('first.cert'), key: pem('first.key'), minVersion: 'TLSv1.2' } as const;
export const SUBMISSION_KEY = 'a-key-of-the-account-22';
export const ACCOUNT = 'account-of-the-tests';

const SETTINGS: SubmissionSettings = {
  ...LISTENER_SETTINGS,
  tlsListen: [],
  requireTls: true,
  loopbackOnly: false,
  tracking: { opens: false, clicks: 'none' },
  maxBytesInData: 10_000_000,
  maxBadKeysPerMinute: 20,
  maxAccountBytes: 1e12,
  maxSessions: 1000,
  maxSessionsPerAddress: 1000,
};

/** What stands behind AUTH PLAIN. */
export const plain = (key: string, user = 'anybody', authorization = ''): string =>
  base64(`${authorization}\0${user}\0${key}`);
export const base64 = (text: string): string => Buffer.from(text).toString('base64');

const NOTHING = { ...limitsOf(0), bytes: 0 };

/** A clock that lets the answer to a wrong key wait no time, and counts how often it would have. */
function createHastyClock(clock: TestClock): { readonly clock: Clock; waits(): number } {
  let waits = 0;
  const after: Clock['after'] = (ms, fn) => {
    if (ms !== WRONG_KEY_MS) return clock.after(ms, fn);
    waits++;
    const timer = setImmediate(fn);
    return () => clearImmediate(timer);
  };
  return { clock: { ...clock, after }, waits: () => waits };
}

/** A store whose keys can be away. */
async function openKeyedStore(clock: Clock) {
  const store = await openTestStore();
  await store.accounts.insert({ id: ACCOUNT, name: 'main', number: 1, createdAt: new Date(clock.now()) });
  await createKey(store, ACCOUNT, 'first', { clock, ids: createIds(clock) }, SUBMISSION_KEY);
  const state = { away: false };
  const keys: Store['keys'] = {
    ...store.keys,
    one: async (filter) => {
      if (state.away) throw new StoreAway('away');
      return store.keys.one(filter);
    },
  };
  return { store, state, part: { keys, accounts: store.accounts, templates: store.templates } };
}

/** A submission listener with a real store, and a double of what takes responsibility for the mail. */
export async function startSubmission(settings: Partial<SubmissionSettings> = {}) {
  const testClock = createTestClock();
  const { clock, waits } = createHastyClock(testClock);
  const log = createTestLog();
  const { store, state, part } = await openKeyedStore(clock);
  const below = {
    submitted: [] as Submission[],
    room: true,
    /** Bytes that the account has in the store. */
    bytes: 0,
    backlog: 0,
    answer: async ({ recipients }: Submission): Promise<SubmitOutcome> => ({
      outcome: 'accepted',
      recipients: recipients.map(toSubmitted),
      signing: { signedBy: null, warning: null },
    }),
  };
  const submitting = {
    async submit(submission: Submission): Promise<SubmitOutcome> {
      const outcome = await below.answer(submission);
      if (outcome.outcome === 'accepted') below.submitted.push({ ...submission, bytes: Buffer.from(submission.bytes) });
      return outcome;
    },
  };
  const spool = { hasRoom: () => below.room, backlog: () => below.backlog };
  const keyUses = createKeyUses({ store, clock: testClock, log });
  const listener = createSubmission(
    { ...SETTINGS, ...settings },
    {
      store: part,
      keyUses,
      spool,
      meter: { of: async () => ({ ...NOTHING, bytes: below.bytes }) },
      submitting,
      clock,
      ids: createIds(clock),
      log,
      notes: NO_NOTES,
      metrics: NO_METRICS,
    },
  );
  await listener.start().catch(async (error: unknown) => {
    await store.close();
    throw error;
  });
  const [first, second] = listener.addresses().map(({ port }) => port);
  const clients: Client[] = [];
  const keep = (client: Client) => {
    clients.push(client);
    return client;
  };
  return {
    listener,
    below,
    log,
    store,
    keyUses,
    clock: testClock,
    waits,
    port: first ?? 0,
    tlsPort: second ?? 0,
    storeState: state,
    revoke: () => store.keys.change({ id: keyHash(SUBMISSION_KEY) }, { revokedAt: new Date(clock.now()) }),
    /** A connection that was not greeted yet. */
    raw: () => keep(createClient(connect({ host: '127.0.0.1', port: first ?? 0, allowHalfOpen: true }))),
    /** A connection that was greeted and, by default, has sent EHLO. */
    async client(helo = 'EHLO client.test'): Promise<Client> {
      const client = this.raw();
      await client.reply();
      if (helo !== '') await client.say(helo);
      return client;
    },
    /** The same over STARTTLS. */
    async secured(helo = 'EHLO client.test'): Promise<Client> {
      const client = await this.client();
      await client.say('STARTTLS');
      await client.secure();
      if (helo !== '') await client.say(helo);
      return client;
    },
    /** The same where TLS comes first. */
    async implicit(helo = 'EHLO client.test'): Promise<Client> {
      const client = keep(
        createClient(connectTls({ host: '127.0.0.1', port: second ?? first ?? 0, rejectUnauthorized: false })),
      );
      await client.reply();
      if (helo !== '') await client.say(helo);
      return client;
    },
    /** Over STARTTLS and logged in. */
    async loggedIn(): Promise<Client> {
      const client = await this.secured();
      const reply = await client.say(`AUTH PLAIN ${plain(SUBMISSION_KEY)}`);
      if (!reply.startsWith('235')) throw new Error(`AUTH was answered: ${reply}`);
      return client;
    },
    async stop() {
      for (const client of clients) client.destroy();
      await listener.stop(0);
      await store.close();
    },
  };
}

export type StartedSubmission = Awaited<ReturnType<typeof startSubmission>>;

function toSubmitted(email: string, index: number): RecipientOutcome {
  return {
    id: String(index + 1).padStart(32, '0'),
    email,
    status: 'queued',
    rejectReason: null,
    queuedReason: 'sending-backlog',
  };
}
