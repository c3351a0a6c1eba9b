import { NO_METRICS } from '../../src/base/metrics.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { Outbox } from '../../src/events/apply.ts';
import type { Lists } from '../../src/events/lists.ts';
import { createRecorder } from '../../src/events/record.ts';
import { type Draft, mailUrl, type Outgoing } from '../../src/mail/outgoing.ts';
import { createOwnDomains } from '../../src/sending/domains/own-domains.ts';
import { createScheduling } from '../../src/sending/scheduling.ts';
import { createReleasing, createSendingQuota } from '../../src/sending/sending-quota.ts';
import type { Signing } from '../../src/sending/signing.ts';
import { createSubmitting } from '../../src/sending/submit.ts';
import type { SentMessageRow } from '../../src/store/rows/messages.ts';
import type { Store } from '../../src/store/store.ts';
import type { ApiWorld } from './api.ts';
import { clockAt, createSureTime, type TestClock } from './clock.ts';
import { NO_COPIES } from './copies.ts';
import type { createTestLog } from './log.ts';
import type { TestSpool } from './shared-spool.ts';
import { put, settled } from './spool.ts';

/** The real parts behind the messages group, with message ids that can be foretold: `…0001` and so on. */
export function createTestMessages(deps: {
  store: Store;
  spool: TestSpool;
  lists: Lists;
  outbox: Outbox;
  clock: TestClock;
  log: ReturnType<typeof createTestLog>;
}) {
  let made = 0;
  const ids = { message: () => `01kcexamplesent0000000${String(++made).padStart(4, '0')}` };
  const sendingQuota = createSendingQuota(
    { quota: true },
    { ...deps, ids: { jitter: () => 0 }, time: createSureTime(deps.clock) },
  );
  const ownDomains = createOwnDomains(
    { fromOwnDomains: 'auto', returnDomain: 'bounces.mx.postern.test', signingDomain: '' },
    deps,
  );
  const submitting = createSubmitting(
    { hostname: 'mx.postern.test', returnDomain: 'bounces.mx.postern.test' },
    {
      ...deps,
      copies: NO_COPIES,
      recorder: createRecorder(deps),
      sendingQuota,
      ownDomains,
      signing: ALL_SIGNED,
      ids,
      metrics: NO_METRICS,
    },
  );
  return {
    submitting,
    scheduling: createScheduling({ ...deps, copies: NO_COPIES, time: createRunningTime(deps.clock) }),
    releasing: createReleasing({ ...deps, holding: { changed: () => {} } }),
  };
}

/** Every message is signed by the domain of its sender. */
export const ALL_SIGNED: Pick<Signing, 'outlookOf'> = {
  outlookOf: async (_account, { sender }) => ({ signedBy: sender.slice(sender.lastIndexOf('@') + 1), warning: null }),
};

/** What is asked of a message that asks for nothing. */
export const PLAIN_OUTGOING: Outgoing = {
  sender: 'news@example.com',
  fromName: null,
  subject: 'example subject',
  tags: [],
  template: null,
  subaccount: null,
  metadata: {},
  apiKey: null,
  trackOpens: false,
  trackClicks: 'none',
  globalVars: null,
  rcptVars: {},
  rcptMetadata: {},
  preserveRecipients: false,
  autoText: true,
  signingDomain: null,
  pool: null,
  form: 'draft',
};

/** A message in parts that waits on the queue since 09:30, with its row. Answers the id of its delivery. */
export async function putSubmitted(
  { store, spool }: Pick<ApiWorld, 'store' | 'spool'>,
  account: string,
  id: string,
  given: { readonly outgoing?: Partial<Outgoing>; readonly draft?: Partial<Draft>; readonly email?: string } = {},
): Promise<string> {
  const { email = 'reader@example.com' } = given;
  const { delivery } = await put(spool, clockAt(Date.UTC(2026, 0, 5, 9, 30)), {
    kind: 'outbound',
    account,
    url: mailUrl('example.com'),
    routeId: '',
    pattern: '',
    id: `01kcexamplesubmitted${id.slice(-6)}`,
    recipients: [email],
    outgoing: { ...PLAIN_OUTGOING, ...given.outgoing },
    body: { kind: 'memory', bytes: Buffer.from(JSON.stringify({ ...DRAFT, ...given.draft })) },
  });
  await store.messages.insert(messageRow(account, id, { state: 'queued', email, delivery: delivery.id }));
  return delivery.id;
}

const SENT = '5c1e0d0000000000000000000000000a';
const LATER = '5c1e0d0000000000000000000000000b';
const WAITING = '5c1e0d0000000000000000000000000c';
const DRAFT: Draft = {
  html: '<p>Hello *|NAME|*</p>',
  text: null,
  to: [{ email: 'reader@example.com', name: 'Reader', type: 'to' }],
  headers: [['Reply-To', 'replies@example.com']],
  attachments: [],
  images: [],
};

/** A row of a message that was handed over at 09:30. */
export function messageRow(account: string, id: string, fields: Partial<SentMessageRow> = {}): SentMessageRow {
  return {
    id,
    account,
    createdAt: new Date('2026-01-05T09:30:00Z'),
    sender: 'news@example.com',
    email: 'reader@example.com',
    subject: 'example subject',
    tags: [],
    template: null,
    subaccount: null,
    metadata: {},
    apiKey: null,
    state: 'sent',
    opens: 0,
    clicks: 0,
    openDetail: [],
    clickDetail: [],
    diag: null,
    bounceDescription: null,
    delivery: null,
    version: 1,
    ...fields,
  };
}

/** The message of the examples that was sent, and the one that waits for its time. */
export async function putMessages({ store, spool }: ApiWorld, account: string): Promise<void> {
  const outgoing = { ...PLAIN_OUTGOING, fromName: 'Example Name', globalVars: [{ name: 'name', content: 'you' }] };
  const handedOver = clockAt(Date.UTC(2026, 0, 5, 9, 30));
  const common = {
    kind: 'outbound',
    account,
    url: mailUrl('example.com'),
    routeId: '',
    pattern: '',
    outgoing,
  } as const;
  const body = () => ({ kind: 'memory' as const, bytes: Buffer.from(JSON.stringify(DRAFT)) });
  const sent = await put(spool, handedOver, {
    ...common,
    id: '01kcexamplesent00000009001',
    recipients: ['reader@example.com'],
    body: body(),
  });
  await spool.settle(settled(handedOver, sent.delivery));
  const later = await put(spool, handedOver, {
    ...common,
    id: '01kcexamplesent00000009002',
    recipients: ['later@example.com'],
    body: body(),
    notBefore: Date.UTC(2026, 0, 6, 9),
  });
  await store.messages.insert(
    messageRow(account, SENT, {
      tags: ['password-resets'],
      metadata: { website: 'www.example.com' },
      delivery: sent.delivery.id,
      opens: 1,
      clicks: 1,
      openDetail: [{ ts: 1_767_605_500 }],
      clickDetail: [{ ts: 1_767_605_510, url: 'https://www.example.com/' }],
    }),
  );
  await store.messages.insert(
    messageRow(account, LATER, {
      email: 'later@example.com',
      state: 'queued',
      subject: 'later',
      delivery: later.delivery.id,
      tags: ['later'],
    }),
  );
  await store.scheduled.insert({
    id: LATER,
    account,
    createdAt: new Date('2026-01-05T11:00:00Z'),
    sendAt: new Date('2026-01-06T09:00:00Z'),
    sender: 'news@example.com',
    email: 'later@example.com',
    subject: 'example subject',
    delivery: later.delivery.id,
    state: null,
  });
  const seen = { ip: '192.0.2.44', user_agent: 'Example Mail/1.0' };
  const click = { ip: '192.0.2.44', user_agent: 'Example Browser/1.0', url: 'https://www.example.com/' };
  const taken = {
    diag: '250 2.0.0 Ok: queued',
    source_ip: '192.0.2.1',
    destination_ip: '198.51.100.7',
    destination: 'mx.example.com',
  };
  const reply = {
    inbound: '01kcexamplemessage00000000',
    from: 'reader@example.com',
    recipient: 'support@inbound.example.com',
    subject: 'Re: example subject',
  };
  for (const [kind, second, detail] of [
    ['send', 2, taken],
    ['open', 100, seen],
    ['click', 110, click],
    ['reply', 7200, reply],
  ] as const) {
    const at = new Date(Date.UTC(2026, 0, 5, 9, 30, second));
    await store.messageEvents.insert({
      id: `${SENT}-${kind}`,
      account,
      message: SENT,
      kind,
      at,
      appliedAt: at,
      detail,
      unsent: null,
      unsentSince: null,
    });
  }
}

/** The message of the examples that waits for its next attempt. */
export async function putWaiting({ store, spool }: ApiWorld, account: string): Promise<void> {
  const { delivery } = await put(spool, clockAt(Date.UTC(2026, 0, 5, 9, 30)), {
    kind: 'outbound',
    account,
    url: mailUrl('example.com'),
    routeId: '',
    pattern: '',
    outgoing: PLAIN_OUTGOING,
    id: '01kcexamplesent00000009003',
    recipients: ['grey@example.com'],
    body: { kind: 'memory', bytes: Buffer.from(JSON.stringify(DRAFT)) },
  });
  await store.messages.insert(
    messageRow(account, WAITING, { email: 'grey@example.com', state: 'deferred', delivery: delivery.id }),
  );
}
