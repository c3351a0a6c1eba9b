import { join } from 'node:path';
import { type ApiDeps, type ApiSettings, createApi } from '../../src/api/http/server.ts';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import type { Log } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { createPrometheus } from '../../src/base/prometheus.ts';
import { createRecentLog } from '../../src/base/recent-log.ts';
import { createInbound } from '../../src/composition/parts.ts';
import { loadSettings } from '../../src/config.ts';
import { type ConsoleSettings, createConsole } from '../../src/console/console.ts';
import { hostAnswers } from '../../src/console/host/index.ts';
import { createHostParts } from '../../src/console/host/parts.ts';
import type { DnsAnswer, DnsBudget, MxRecord, RecordType, Resolver } from '../../src/dns/types.ts';
import { createCounterRemoval } from '../../src/events/counter-removal.ts';
import { createLists } from '../../src/events/lists.ts';
import { createJournal } from '../../src/journal/journal.ts';
import { watchQueue } from '../../src/journal/queue-watch.ts';
import type { Verdicts } from '../../src/mail/addresses/envelope.ts';
import type { Scan } from '../../src/mail/scan.ts';
import { type HttpDetail, httpDetailText } from '../../src/queue/detail.ts';
import { createEndpointPauses } from '../../src/queue/endpoint-pauses.ts';
import type { AttemptResult } from '../../src/queue/settle.ts';
import { adviceOf, REFUSAL_REASONS } from '../../src/smtp/advice.ts';
import { openEmbedded } from '../../src/store/driver/embedded.ts';
import type { Database } from '../../src/store/driver/port.ts';
import { createKeyUses } from '../../src/store/key-uses.ts';
import { createKey } from '../../src/store/rows/accounts.ts';
import { urlHourId, urlId, urlKey } from '../../src/store/rows/counters.ts';
import { metadataFieldId } from '../../src/store/rows/messages.ts';
import type { UnsentEvent } from '../../src/store/rows/webhooks.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { LIMITED_KINDS, type LimitedKind, meteredDatabase } from '../../src/store/usage.ts';
import { createSampleMail } from '../../src/webhooks/render/renderer.ts';
import { afterFile } from './cleanup.ts';
import { clockAt, createTestClock } from './clock.ts';

import { putCounts } from './counts.ts';
import { seedExports } from './exports.ts';
import { createTestThreads } from './inspection.ts';
import { seedIps } from './ips.ts';
import { seedLists } from './lists.ts';
import { createTestLog } from './log.ts';
import { createTestPulling, createTestTrials, createTestViews, type Tried } from './message-views.ts';
import { createTestMessages } from './messages.ts';
import { exampleNameServers } from './name-servers.ts';
import { createIdleDispatcher } from './roads.ts';
import { NO_FLOOR } from './room.ts';
import { createTestSenders, seedSenderDomains, seedTrackingDomains, TEST_SPF } from './senders.ts';
import { borrowDatabase } from './shared-database.ts';
import { borrowSpool } from './shared-spool.ts';
import { attempt, put, settled } from './spool.ts';
import { tempDir } from './temp.ts';
import { seedTemplates } from './templates.ts';
import { createTestTracking, TOKEN_SECRET } from './tracking.ts';
import { PATIENCE } from './until.ts';
import { seedWebhooks } from './webhooks.ts';
import { type ZoneRecords, zoneResolver } from './zone.ts';

/** What the record of a route has that takes all mail of its mailboxes, and posts it. */
export const NO_RULES = { action: 'post', when: {}, tags: [], priority: 0, also: [] } as const;

export const HOUR_MS = 3_600_000;
/** The keys of the account that the examples belong to, and that of another. */
export const KEY = 'ExampleKey000000000001';
export const SPARE_KEY = 'SpareKey00000000000003';
export const OTHER_KEY = 'AnotherKey000000000002';
export const ACCOUNT = 'ExampleAccountId000001';
export const OTHER_ACCOUNT = 'AnotherAccountId000002';

export interface ApiAnswer {
  readonly status: number;
  readonly body: any;
  readonly headers: Headers;
}
export type ApiWorld = Awaited<ReturnType<typeof startApi>>;

const ZONE: ZoneRecords = {
  'example.com': { TXT: [TEST_SPF], MX: [{ exchange: 'mail.example.com', priority: 10 }] },
  'example.net': { TXT: [TEST_SPF], A: ['192.0.2.80'] },
  'out.example.com': { A: ['192.0.2.1'] },
  'inbound.example.com': { MX: [{ exchange: 'mx.postern.test', priority: 10 }] },
  'elsewhere.example.com': { MX: [{ exchange: 'mx.example.net', priority: 10 }] },
};

/** Accounts that may have and do whatever they like. */
export const NO_LIMITS = { rows: limitsOf(1e9), bytes: 1e12, callsPerSecond: 1e9 };

/** The number of rows of every kind. */
export function limitsOf(rows: number): Record<LimitedKind, number> {
  const limits: Partial<Record<LimitedKind, number>> = {};
  for (const kind of LIMITED_KINDS) limits[kind] = rows;
  return limits as Record<LimitedKind, number>; // every kind was named
}

/** The settings of inbound mail. Both accounts are there from the beginning; most tests are about a host with one. */
const INBOUND = {
  POSTERN_HOSTNAME: 'mx.postern.test',
  POSTERN_PUBLIC_URL: 'https://app.postern.test',
  POSTERN_OUTBOUND__RETURN_DOMAIN: 'bounces.mx.postern.test',
  POSTERN_SENDERS__SPF_INCLUDE: 'spf.mx.postern.test',
  POSTERN_INBOUND__OWNERSHIP: 'first',
  POSTERN_INBOUND__REFRESH_MS: String(HOUR_MS * 1000),
  POSTERN_INBOUND__LOOP_MESSAGES: '0',
};

/**
 * The API over HTTP with two accounts and the real store, routing, acceptance and queue; DNS and the endpoints are doubles.
 */
export async function startApi(
  options: {
    /** Settings of inbound mail, as environment variables. */
    env?: Readonly<Record<string, string>>;
    settings?: Partial<ApiSettings>;
    deps?: Partial<ApiDeps>;
    /** How the console is set, if there is one. */
    console?: ConsoleSettings | undefined;
    zone?: ZoneRecords;
    store?: (real: Store) => Store;
    database?: (log: Log) => Promise<Database>;
    /** Whether the database gets the rows of the examples; true unless it has them already. */
    seeding?: boolean;
    /** Whether there is a history; a thread takes a moment to start. */
    journal?: boolean;
  } = {},
) {
  const clock = createTestClock();
  const log = createTestLog();
  const ids = {
    ...createIds(clock),
    key: newKeys(),
    signingKey: signingKeys(),
    message: messageIds(options.seeding === false ? 'other' : 'batch'),
  };
  const embedded = async () => borrowDatabase(log, await seededFile());
  const { database, meter } = await meteredDatabase(await (options.database?.(log) ?? embedded()), { clock, log });
  const real = await openStore(database);
  const store = options.store?.(real) ?? real;
  const journal = createJournal(
    {
      file: join(await tempDir(), 'journal.db'),
      keepDays: 30,
      keepRefusalsDays: 7,
      maxBytes: 1e9,
      subjects: true,
      room: NO_FLOOR,
    },
    { clock, deadlines: systemClock, log, metrics: NO_METRICS },
  );
  if (options.journal) await journal.start();
  const watched = watchQueue(await borrowSpool({ clock, log }), { journal, clock, log });
  const spool = { ...watched.spool, events: { ...watched.spool.events } };
  const missingUrls = new Set<string>();
  const poked: string[] = [];
  /** Trial posts, and how they are answered. */
  const tried: Tried[] = [];
  const outside: { answer: (post: Tried) => AttemptResult | Promise<AttemptResult> } = {
    answer: () => ({
      kind: 'answered',
      status: 200,
      retryAfter: null,
      answer: 'OK',
      durationMs: 38,
      detail: () => httpDetailText(TRIED),
    }),
  };
  /** Accounts whose webhooks changed. */
  const forgotten: string[] = [];
  const exportsDir = join(await tempDir(), 'exports');
  const ips: { provisioning: 'free' | 'off'; minReputation: number } = { provisioning: 'free', minReputation: 40 };
  const published: { account: string; event: UnsentEvent }[] = [];
  const outbox = {
    publish: async (account: string, events: readonly UnsentEvent[]) => {
      published.push(...events.map((event) => ({ account, event })));
    },
  };
  const lists = createLists({ store, outbox, clock, ids, log });
  const resolver =
    options.deps?.resolver ?? (options.zone ? zoneResolver(options.zone) : mailEverywhere(zoneResolver(ZONE)));
  const senders = createTestSenders({ store, resolver, clock, ids, log });
  const messages = createTestMessages({ store, spool, lists, outbox, clock, log });
  const keyUses = createKeyUses({ store, clock, log });
  const feedback = createTestTracking({ store, lists, outbox, clock, log });
  const { settings } = loadSettings(undefined, { ...INBOUND, ...options.env });
  const tokenSecret = { read: async () => TOKEN_SECRET };
  const inbound = createInbound(
    settings,
    { clock, ids, log, metrics: createPrometheus({ clock }, { ofProcess: false }), role: 'daemon', shown: [] },
    {
      store,
      spool,
      tokenSecret,
      fresh: resolver,
      threads: createTestThreads(),
      notes: journal,
      accepting: spool,
    } as any,
  );
  const { names, routing, ownership } = inbound;
  if (options.database && options.seeding !== false) await seed(real, clock, ids);
  await routing.start();
  const dispatcher = createIdleDispatcher({ spool, clock, ids, log });
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  const shared = {
    store,
    tokenSecret,
    spool,
    history: journal.history,
    notes: journal,
    refusals: { reasons: REFUSAL_REASONS, adviceOf },
    dispatcher,
    pauses: createEndpointPauses({ alone: true }, { store, dispatcher, clock, log }),
    poke: (task: string) => {
      poked.push(task);
    },
    health: { ready: async () => ({ ok: true, checks: { spool: 'ok' } }) },
    metrics,
    ids,
    clock,
    log,
    ...options.deps,
  };
  const forOperators = {
    ...shared,
    metrics,
    member: { id: () => 'host-1', incarnation: 'process-1' },
    host: {
      series: { read: () => Promise.reject(new Error('there are no series here')) },
      tasks: () => [],
      settings: () => [],
      log: createRecentLog(clock),
      signInUrl: (token: string) => `http://127.0.0.1/console/enter/${token}`,
      listeners: () => [],
      examine: async function* () {},
    },
  };
  const ofHost = options.console ?? { hostname: 'mx.postern.test', version: '0.0.0', idleMs: 0 };
  const hostParts = createHostParts(ofHost, forOperators);
  const attached =
    options.console &&
    createConsole(options.console, {
      ...forOperators,
      hostParts,
      feed: journal.feed,
      smtpAddresses: () => [{ address: '127.0.0.1', port: 2525 }],
    });
  const api = createApi(
    {
      listen: { host: '127.0.0.1', port: 0 },
      secureListen: [],
      redirectListen: [],
      alone: false,
      keepsHeaders: true,
      publicUrl: '',
      trustedProxies: [],
      metricsAllow: [],
      maxBodyBytes: 1_048_576,
      maxMessageBytes: 2_000_000,
      minBodyRate: 0,
      maxConnections: 10_000,
      maxConnectionsPerAddress: 10_000,
      limits: NO_LIMITS,
      maxBadKeysPerMinute: 20,
      hostname: 'mx.postern.test',
      mxHosts: [],
      defaultFormat: 'mandrill',
      exportsDir,
      exports: { perDay: 10_000 },
      ips,
      tracking: { opens: false, clicks: 'none' },
      version: '0.0.0',
      ...options.settings,
    },
    {
      ...shared,
      attached,
      keyUses,
      meter,
      ...messages,
      routing,
      ownership,
      names,
      acceptance: inbound.acceptance,
      scanning: undefined,
      signingKeys: inbound.signingKeys,
      ...(await createTestPulling({ spool, dispatcher, signingKeys: inbound.signingKeys, clock, log })),
      lists,
      outbox: {
        forget: (account) => {
          forgotten.push(account);
        },
      },
      counterRemoval: createCounterRemoval({ store, clock }),
      resolver,
      nameServers: exampleNameServers,
      senderDomains: senders.senderDomains,
      trackingDomains: senders.trackingDomains,
      urlFault: async (url) => (missingUrls.has(url) ? 'nothing is there' : undefined),
      sample: async ({ address, style }) => ({
        type: style.format === 'mandrill' ? 'application/x-www-form-urlencoded' : style.format,
        payload: [{ event: 'inbound', ts: Math.floor(clock.now() / 1000), msg: { email: address } }],
      }),
      sampleMail: createSampleMail({ clock, hostname: 'mx.postern.test' }),
      views: await createTestViews(log),
      trials: await createTestTrials(clock, (post) => {
        tried.push(post);
        return outside.answer(post);
      }),
      tracking: feedback.tracking,
      linkedFiles: { open: async () => ({ kind: 'unknown' }) },
      instance: 'test',
      certificates: { contextFor: () => undefined, isOurs: () => false, answerTo: async () => undefined },
      policyAt: () => undefined,
      member: forOperators.member,
      hostAnswers: hostAnswers(hostParts),
      ...options.deps,
    },
  );
  await api.start();
  const base = `http://127.0.0.1:${api.address().port}`;
  const port = api.address().port;

  /** Calls an operation with a body as it is. */
  async function send(
    path: string,
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = {},
  ): Promise<ApiAnswer> {
    const response = await fetch(`${base}/api/1.0${path}`, { method: 'POST', body, headers });
    return { status: response.status, body: await response.json(), headers: response.headers };
  }
  return {
    senders,
    feedback,
    meter,
    poked,
    tried,
    dispatcher,
    outside,
    forgotten,
    exportsDir,
    ownership,
    names,
    ips,
    api,
    base,
    port,
    clock,
    log,
    lists,
    published,
    store: real,
    spool,
    routing,
    missingUrls,
    journal,
    send,
    /** Calls an operation with the example's key, or another in `params.key`. */
    call: (path: string, params: object = {}) => send(`${path}.json`, JSON.stringify({ key: KEY, ...params })),
    async stop() {
      await api.stop();
      await feedback.queue.stop();
      await routing.stop();
      await senders.notices.stop();
      await keyUses.stop();
      await watched.stop();
      await journal.stop();
      await real.close();
      await spool.close();
    },
  };
}

/**
 * Names of which the zone says nothing take mail elsewhere: tests of the contract ask for domains that they make up.
 */
export function mailEverywhere(zone: Resolver): Resolver {
  function resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  async function resolve(
    name: string,
    type: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    if (type !== 'MX') return zone.resolve(name, type, budget);
    const found = await zone.resolve(name, type, budget);
    return found.kind === 'nxdomain'
      ? { kind: 'records', records: [{ exchange: 'mail.example.net', priority: 10 }], ttl: 300 }
      : found;
  }
  return { ...zone, resolve };
}

const openFile = (file: string, log: Log) =>
  openEmbedded({ file, timeoutMs: 5000 * PATIENCE, room: NO_FLOOR }, { log, clock: systemClock });

let seeded: Promise<string> | undefined;
afterFile(async () => {
  seeded = undefined;
});

/** The file of a store that holds what the examples start from; it is made once, and every world has a copy. */
function seededFile(): Promise<string> {
  return (seeded ??= (async () => {
    const file = join(await tempDir(), 'store.db');
    const clock = createTestClock();
    const store = await openStore(await openFile(file, createTestLog()));
    await seed(store, clock, { ...createIds(clock), signingKey: signingKeys() });
    await store.close();
    return file;
  })());
}

/** How a trial went, as the example shows it. */
const TRIED: HttpDetail = {
  address: '192.0.2.20:443',
  tls: 'TLSv1.3',
  ms: { dns: 0.8, connect: 1.5, tls: 4.2, firstByte: 5.1 },
  request: [
    ['host', 'staging.example.com'],
    ['X-Postern-Trial', '1'],
  ],
  response: [['server', 'nginx']],
};

function signingKeys(): () => string {
  let count = 0;
  return () => `ExampleSigningKey${String(++count).padStart(15, '0')}`;
}

function newKeys(): () => string {
  let count = 0;
  return () => `ExampleNewKey${String(++count).padStart(9, '0')}`;
}

/** Ids of queued mail, and of pending reports: no two hosts make the same. */
function messageIds(host: string): () => string {
  let count = 0;
  return () => `01kcexample${host}${String(++count).padStart(10, '0')}`;
}

/** What the examples of the reference start from. */
async function seed(
  store: Store,
  clock: ReturnType<typeof createTestClock>,
  ids: ReturnType<typeof createIds>,
): Promise<void> {
  await store.accounts.insert({ id: ACCOUNT, name: 'main', number: 1, createdAt: new Date('2026-01-01T00:00:00Z') });
  await store.accounts.insert({
    id: OTHER_ACCOUNT,
    name: 'other',
    number: 2,
    createdAt: new Date('2026-01-02T00:00:00Z'),
  });
  await createKey(store, ACCOUNT, 'example', { clock: clockAt(Date.UTC(2026, 0, 1)), ids }, KEY);
  await createKey(store, ACCOUNT, 'spare', { clock, ids }, SPARE_KEY);
  await createKey(store, OTHER_ACCOUNT, 'example', { clock, ids }, OTHER_KEY);
  await seedIps(store, ACCOUNT);
  await seedExports(store, ACCOUNT);
  await seedLists(store, ACCOUNT);
  await seedTemplates(store, ACCOUNT);
  await seedWebhooks(store, ACCOUNT);
  await seedSenderDomains(store, ACCOUNT);
  await seedTrackingDomains(store, ACCOUNT);
  await seedLinks(store, ACCOUNT);
  const createdAt = new Date('2026-01-05T11:00:00Z');
  await store.inboundDomains.insert({
    id: 'inbound.example.com',
    account: ACCOUNT,
    domain: 'inbound.example.com',
    createdAt,
    validMx: false,
    testedAt: null,
  });
  const number = (await store.revisions.add(`routes:${ACCOUNT}`, { count: 1 }, { count: 0 })).count;
  await store.inboundRoutes.insert({
    id: `1.${number}`,
    account: ACCOUNT,
    domain: 'inbound.example.com',
    pattern: 'mailbox-*',
    url: 'https://app.example.com/hooks/mail',
    createdAt,
  });
  const counts = { sent: 40, opens: 12, uniqueOpens: 10, clicks: 3, uniqueClicks: 3 };
  const hour = new Date('2026-01-05T09:00:00Z');
  for (const [kind, key] of [
    ['account', ACCOUNT],
    ['sender', 'news@example.com'],
    ['tag', 'example-tag'],
  ] as const)
    await putCounts(store, ACCOUNT, kind, key, counts, hour);
}

/** The link, its hour and the metadata field of the examples. */
async function seedLinks(store: Store, account: string): Promise<void> {
  const url = 'https://www.example.com/offers';
  const key = urlKey(url);
  const hour = new Date('2026-01-05T09:00:00Z');
  const counts = { sent: 40, clicks: 3, uniqueClicks: 2 };
  await store.urls.insert({ id: urlId(account, key), account, url, lastHour: hour, ...counts });
  await store.urlHours.insert({ id: urlHourId(account, key, hour), account, key, start: hour, ...counts });
  const viewTemplate = '<a href="https://example.com/groups/{{value}}">{{value}}</a>';
  await store.metadataFields.insert({
    id: metadataFieldId(account, 'group_id'),
    account,
    name: 'group_id',
    viewTemplate,
    createdAt: hour,
  });
}

const DEAD_MESSAGE = [
  'From: Ann Example <ann@example.com>',
  'To: <mailbox-123@inbound.example.com>',
  'Subject: =?utf-8?Q?Caf=C3=A9?=',
  'MIME-Version: 1.0',
  'Content-Type: multipart/mixed; boundary="b"',
  '',
  '--b',
  '',
  'Hello',
  '--b',
  'Content-Type: text/csv; name="numbers.csv"',
  'Content-Disposition: attachment; filename="numbers.csv"',
  'Content-Transfer-Encoding: base64',
  '',
  'MSwyCg==',
  '--b--',
  '',
].join('\r\n');

const DEAD_VERDICTS: Verdicts = {
  spf: { result: 'pass', detail: 'sender SPF authorized' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'pass', policy: 'none', aligned: true },
  arc: { result: 'none' },
};

const DEAD_SCAN: Scan = {
  spam: 'ham',
  virus: 'clean',
  name: null,
  score: -0.4,
  rules: [{ name: 'MIME_GOOD', score: -0.4, description: 'Known content-type' }],
  by: ['rspamd', 'clamd'],
  reason: null,
};

/** How the one attempt at a message went. */
const detailOf = (delivery: string) =>
  JSON.stringify({
    address: '192.0.2.10:443',
    tls: 'TLSv1.3',
    ms: { dns: 0.8, connect: 1.5, tls: 4.2, firstByte: 5.1 },
    request: [
      ['host', 'app.example.com'],
      ['webhook-id', delivery],
      ['webhook-signature', 'v1,K5oZfzN9…'],
    ],
    response: [['server', 'nginx']],
  } satisfies HttpDetail);

/** An answer to the message with this `_id`, which was accepted at 11:30. */
export async function putAnswer({ spool }: Pick<ApiWorld, 'spool'>, id: string): Promise<void> {
  const answer = [
    'From: Reader <reader@example.com>',
    'To: mailbox-123@inbound.example.com',
    'Subject: Re: example subject',
    `In-Reply-To: <${id}@mx.postern.test>`,
    '',
    'Thanks',
  ].join('\r\n');
  await put(spool, clockAt(Date.UTC(2026, 0, 5, 11, 30)), {
    id: '01kcexampleanswer000000000',
    account: ACCOUNT,
    url: 'https://app.example.com/hooks/mail',
    pattern: 'mailbox-*',
    recipients: ['mailbox-123@inbound.example.com'],
    body: { kind: 'memory', bytes: Buffer.from(answer) },
  });
}

/** A delivery that was given up, as the examples show it; answers its id. */
export async function putDeadDelivery(
  { spool }: Pick<ApiWorld, 'spool'>,
  account = ACCOUNT,
  id = '01kcexamplemessage00000000',
): Promise<string> {
  const { delivery } = await put(spool, clockAt(Date.UTC(2026, 0, 5, 11, 30)), {
    id,
    account,
    url: 'https://app.example.com/hooks/mail',
    pattern: 'mailbox-*',
    recipients: ['mailbox-123@inbound.example.com'],
    body: { kind: 'memory', bytes: Buffer.from(DEAD_MESSAGE) },
  });
  const failed = {
    ...attempt(clockAt(Date.UTC(2026, 0, 5, 11, 30, 1)), 500),
    answer: 'Internal Server Error',
    detail: detailOf(delivery.id),
  };
  await spool.settle(
    settled(clockAt(Date.UTC(2026, 0, 5, 11, 45)), delivery, { state: 'dead', attempt: failed }),
    DEAD_VERDICTS,
  );
  await spool.keepScan(id, DEAD_SCAN);
  return delivery.id;
}
