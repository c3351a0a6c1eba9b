import { mkdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { createApi } from './api/server.ts';
import type { Clock } from './base/clock.ts';
import type { Ids } from './base/ids.ts';
import type { Log } from './base/log.ts';
import type { Settings } from './config.ts';
import { createPoster } from './delivery/post/attempt.ts';
import { createDispatcher } from './delivery/dispatcher.ts';
import { createGuard } from './delivery/post/guard.ts';
import { createRenderer } from './delivery/render/renderer.ts';
import { createSample } from './delivery/render/sample.ts';
import { createUrlCheck } from './delivery/post/webhook-exists.ts';
import { createResolver } from './dns/resolver.ts';
import { createBatching } from './events/batching.ts';
import { createLists } from './events/lists.ts';
import { createOutbox } from './events/outbox.ts';
import { createSweep } from './events/sweep.ts';
import { createTallies } from './events/tallies.ts';
import { createNumbers } from './events/numbers.ts';
import { createRecorder } from './events/record.ts';
import { createAcceptance } from './inbound/accept.ts';
import { createRouting } from './inbound/routing.ts';
import { createSigningKeys } from './inbound/signing.ts';
import { createDomainKeys, newKeyPair } from './outbound/domain-keys.ts';
import { createDomainTests } from './outbound/domain-tests.ts';
import { createMailer } from './outbound/mailer.ts';
import { createNotices } from './outbound/notices.ts';
import { createSenderDomains } from './outbound/sender-domains.ts';
import { createListener } from './smtp/listener.ts';
import type { Resolver } from './dns/types.ts';
import type { Routing, SigningKeys } from './inbound/types.ts';
import { openSpool } from './spool/spool.ts';
import type { Spool } from './spool/types.ts';
import { StoreAway, type Database } from './store/collection.ts';
import { bootstrap } from './store/credentials.ts';
import { openEmbedded } from './store/embedded.ts';
import { openMongo } from './store/mongo.ts';
import { openStore, type Store } from './store/store.ts';
import { createTasks } from './tasks/index.ts';
import { createLeases } from './tasks/lease.ts';
import { createScheduler } from './tasks/scheduler.ts';

export const VERSION = '0.1.0';

/** A socket that was opened before us (systemd), by its name. */
export interface HandedSocket { readonly name: string; readonly fd: number }

export interface DaemonDeps {
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly sockets?: readonly HandedSocket[];
}

/** The key of the first account, at the one start that made it. */
export interface FirstKey { readonly account: string; readonly key: string }

export interface Daemon {
  /** Resolves when mail and API calls are taken. */
  start(): Promise<{ readonly smtp: readonly Place[]; readonly http: Place; readonly firstKey: FirstKey | undefined }>;
  /** Takes over what can change while running: certificates. Throws when they are unusable; the old ones stay. */
  reload(settings: Settings): Promise<void>;
  /** Proof of life: the loop turns, the spool syncs, the listener listens. Throws what is wrong. */
  check(): Promise<void>;
  /** Stops taking mail, finishes what is in DATA and in flight, closes everything. */
  stop(): Promise<void>;
}

interface Place { readonly host: string; readonly port: number }

/** The store's database: MongoDB when a URL is set, else a file under data_dir. */
export function openDatabase(settings: Settings, log: Log): Promise<Database> {
  const { url, url_file: file, timeout_ms: timeoutMs } = settings.store;
  const address = file === '' ? url : readFileSync(file, 'utf8').trim();
  if (address !== '') return openMongo({ url: address, timeoutMs }, { log });
  return openEmbedded({ file: join(resolve(settings.data_dir), 'store.db'), timeoutMs }, { log });
}

/** Every listener is on loopback: a machine of a developer, not of the internet. */
function onLoopbackOnly(settings: Settings, deps: DaemonDeps): boolean {
  const hosts = [...settings.smtp.listen, settings.http.listen].map(({ host }) => host);
  return (deps.sockets ?? []).length === 0 && hosts.every((host) => host === '::1' || host.startsWith('127.'));
}

/** Builds every part and says in which order they start and stop. Nothing runs before `start`. */
export async function openDaemon(settings: Settings, deps: DaemonDeps): Promise<Daemon> {
  const { log, clock, ids } = deps;
  const storage = await openStorage(settings, deps);
  const { spool, store } = storage;
  const loopbackOnly = onLoopbackOnly(settings, deps);
  const inbound = createInbound(settings, deps, storage);
  const delivery = createDelivery(settings, deps, { spool, loopbackOnly, ...inbound });
  const listener = createListener(listenerSettings(settings, deps), { ...inbound, spool, clock, log });
  const health = createHealth({ listener, spool, store, routing: inbound.routing });
  // Somebody who asks to check a domain has just changed it: no cached answer will do.
  const fresh = createResolver(dnsSettings(settings), { clock, log, ids, cacheEntries: 0 });
  const outbound = createOutbound(settings, deps, { store, loopbackOnly, fresh, cached: inbound.resolver });
  const events = createEvents(settings, deps, storage);
  // What this life of this process holds in the store: leases of tasks, claims of jobs.
  const holder = `${settings.hostname} ${ids.key()}`;
  const api = createApi(apiSettings(settings, deps), { ...storage, ...inbound, ...delivery, ...outbound, ...deps, ...events, poke: (task) => scheduler.poke(task), resolver: fresh, health });
  const scheduler = createScheduler(createTasks({ purge: purgeSettings(settings), batches: { retryHours: settings.delivery.retry_hours }, inbound: { mxHosts: [settings.hostname, ...settings.inbound.mx_hosts] }, ips: { hostname: settings.hostname, quarantineDays: settings.ips.quarantine_days }, exports: exportSettings(settings, holder), rows: { keepDays: settings.events.keep_days } }, { ...events, ids, log, resolver: fresh, spool, store, clock, ...outbound, cached: inbound.resolver }), { leases: createLeases({ holder }, { store, clock }), clock, log });

  return Object.freeze({
    async start() {
      await inbound.routing.start();
      const firstKey = await bootstrapWhenThere(store, settings.bootstrap.api_key, { clock, ids });
      await delivery.dispatcher.start();
      await events.batching.start();
      await events.tallies.start();
      await api.start();
      await listener.start();
      await scheduler.start();
      if (loopbackOnly && settings.webhooks.allow_private === null) {
        log.info('daemon.note', { note: 'every listener is on loopback, so webhooks may post to loopback too (webhooks.allow_private)' });
      }
      return { smtp: listener.addresses().map(({ address, port }) => ({ host: address, port })), http: api.address(), firstKey };
    },
    reload: (next: Settings) => listener.reload(listenerSettings(next, deps).tls),
    check: health.check,
    async stop() {
      await listener.stop();
      await Promise.all([api.stop(), scheduler.stop(), delivery.dispatcher.stop(), events.batching.stop(), outbound.notices.stop()]);
      await Promise.all([delivery.renderer.stop(), delivery.poster.stop(), inbound.routing.stop(), inbound.resolver.stop(), fresh.stop()]);
      await events.tallies.stop();
      await Promise.all([spool.close(), store.close()]);
    },
  });
}

async function openStorage(settings: Settings, { log, clock }: DaemonDeps) {
  const dir = spoolDir(settings);
  mkdirSync(dir, { recursive: true, mode: 0o750 });
  const spool = await openSpool({
    dir,
    minFreePercent: settings.spool.min_free_percent,
    minFreeBytes: settings.spool.min_free_bytes,
    maxMessageBytes: settings.smtp.max_message_bytes,
  }, { clock, log });
  return { spool, store: await openStore(await openDatabase(settings, log)) };
}

/** How events come into the numbers, the lists and onto webhooks. */
function createEvents({ webhooks }: Settings, { log, clock, ids }: DaemonDeps, { store, spool }: { spool: Spool; store: Store }) {
  const outbox = createOutbox({ store, spool, clock });
  const limits = { events: webhooks.batch_events, bytes: webhooks.batch_bytes };
  const batching = createBatching({ limits, waitMs: webhooks.batch_wait_ms }, { spool, clock, ids, log });
  const tallies = createTallies({ spool, store, clock, log });
  const sweep = createSweep({ store, outbox, clock });
  const lists = createLists({ store, outbox, clock, ids, log });
  return { outbox, batching, tallies, sweep, lists, numbers: createNumbers({ store, clock }), recorder: createRecorder({ store, lists, outbox, clock, log }) };
}

function createInbound(settings: Settings, { log, clock, ids }: DaemonDeps, { spool, store }: { spool: Spool; store: Store }) {
  return {
    resolver: createResolver(dnsSettings(settings), { clock, log, ids }),
    routing: createRouting({ refreshMs: settings.inbound.refresh_ms }, { store, clock, log }),
    signingKeys: createSigningKeys({ store, clock, ids }),
    acceptance: createAcceptance({ hostname: settings.hostname }, { spool, clock, ids }),
  };
}

/** Mail of our own going out, and the domains that mail is sent from. */
function createOutbound(settings: Settings, { log, clock, ids }: DaemonDeps, { store, fresh, cached, loopbackOnly }: { store: Store; fresh: Resolver; cached: Resolver; loopbackOnly: boolean }) {
  const { hostname, public_url: publicUrl, mail: { relay, from, mx_port: mxPort }, senders } = settings;
  const mailer = createMailer({ hostname, relay, from, mxPort, allowPrivate: settings.webhooks.allow_private, loopbackOnly }, { resolver: cached, clock, ids });
  const notices = createNotices({ store, mailer, clock, ids, log });
  const keys = createDomainKeys({ store, clock, newKeyPair });
  const sender = { hostname, publicUrl, spfInclude: senders.spf_include, dkimSelector: senders.dkim_selector };
  const tests = (resolver: Resolver) => createDomainTests(sender, { store, resolver, keys, clock });
  return { notices, domainTests: tests(cached), senderDomains: createSenderDomains(sender, { store, tests: tests(fresh), keys, notices, clock, ids }) };
}

interface DeliveryParts {
  readonly spool: Spool;
  readonly resolver: Resolver;
  readonly signingKeys: SigningKeys;
  readonly loopbackOnly: boolean;
}

function createDelivery(settings: Settings, deps: DaemonDeps, { spool, resolver, signingKeys, loopbackOnly }: DeliveryParts) {
  const { log, clock, ids } = deps;
  const { hostname } = settings;
  const guard = createGuard({ allowPrivate: settings.webhooks.allow_private, loopbackOnly }, { resolver });
  const poster = createPoster({
    timeoutMs: settings.webhooks.timeout_ms,
    userAgent: `Postern/${VERSION}`,
    connections: settings.delivery.concurrency_per_endpoint,
  }, { guard, clock });
  const renderer = createRenderer({
    workers: settings.parse.workers || Math.max(1, Math.floor(availableParallelism() / 2)),
    timeoutMs: settings.parse.timeout_ms,
    memoryMb: settings.parse.memory_mb,
    tmpDir: join(spoolDir(settings), 'tmp'),
    dns: dnsSettings(settings),
    hostname,
  }, { clock, log });
  const dispatcher = createDispatcher({
    concurrency: settings.delivery.concurrency,
    concurrencyPerEndpoint: settings.delivery.concurrency_per_endpoint,
    retryHours: settings.delivery.retry_hours,
  }, { spool, renderer, poster, signingKeys, clock, ids, log });
  return { poster, renderer, dispatcher, urlExists: createUrlCheck({ poster }), sample: createSample({ renderer, clock, hostname }) };
}

interface HealthParts {
  readonly listener: { healthy(): boolean };
  readonly spool: Spool;
  readonly store: Store;
  readonly routing: Routing;
}

function createHealth({ listener, spool, store, routing }: HealthParts) {
  return {
    /** May mail come? The store is shown but does not count: once the routes were read, mail is taken without it. */
    async ready() {
      const away = await store.ping().then(() => undefined, () => 'away');
      const checks = {
        smtp: listener.healthy() ? 'ok' : 'does not listen',
        spool: spool.hasRoom() ? 'ok' : 'takes no mail: the disk is nearly full, or a sync failed (see the log)',
        routes: routing.ready() ? 'ok' : 'not read yet: the store is away',
      };
      return { ok: Object.values(checks).every((words) => words === 'ok'), checks: { ...checks, store: away ?? 'ok' } };
    },
    async check() {
      await new Promise<void>((turned) => setImmediate(turned));
      if (!listener.healthy()) throw new Error('the SMTP listener does not listen');
      await spool.check();
    },
  };
}

/** The first account needs the store; a start without it goes on, and `postern account create` does it later. */
async function bootstrapWhenThere(store: Store, key: string, parts: { clock: Clock; ids: Ids }): Promise<FirstKey | undefined> {
  try {
    return await bootstrap(store, key, parts);
  } catch (error) {
    if (error instanceof StoreAway) return undefined;
    throw error;
  }
}

const exportsDir = (settings: Settings) => join(resolve(settings.data_dir), 'exports');

function exportSettings(settings: Settings, holder: string) {
  const { hostname, public_url: publicUrl, exports } = settings;
  return { dir: exportsDir(settings), hostname, holder, publicUrl, keepDays: exports.keep_days, metadataFields: exports.metadata_fields };
}

const spoolDir = (settings: Settings) => join(resolve(settings.data_dir), 'spool');

function dnsSettings({ dns }: Settings) {
  return { servers: dns.servers, timeoutMs: dns.timeout_ms, questionsPerMessage: dns.questions_per_message, budgetMs: dns.budget_ms };
}

function purgeSettings({ delivery }: Settings) {
  return { keepDeadDays: delivery.keep_dead_days, keepDeliveredHours: delivery.keep_delivered_hours, keepDeliveredBytes: delivery.keep_delivered_bytes };
}

function apiSettings(settings: Settings, deps: DaemonDeps) {
  const { http, smtp, inbound, ips, exports, hostname, public_url: publicUrl } = settings;
  return {
    listen: handedOver('http', deps)[0] ?? http.listen,
    publicUrl,
    trustedProxies: http.trusted_proxies,
    maxBodyBytes: http.max_body_bytes,
    maxMessageBytes: smtp.max_message_bytes,
    maxBadKeysPerMinute: http.max_bad_keys_per_minute,
    hostname,
    exportsDir: exportsDir(settings),
    exports: { perDay: exports.max_per_day },
    mxHosts: inbound.mx_hosts,
    ips: { provisioning: ips.provisioning, minReputation: ips.min_reputation },
    version: VERSION,
  };
}

/** Sockets of that name that systemd opened for us; they win over the settings. */
function handedOver(name: string, { sockets = [] }: DaemonDeps): { readonly fd: number }[] {
  return sockets.filter((socket) => socket.name === name).map(({ fd }) => ({ fd }));
}

function listenerSettings(settings: Settings, deps: DaemonDeps) {
  const { smtp } = settings;
  const handed = handedOver('smtp', deps);
  return {
    hostname: settings.hostname,
    listen: handed.length > 0 ? handed : smtp.listen,
    maxMessageBytes: smtp.max_message_bytes,
    maxRecipients: smtp.max_recipients,
    maxSessions: smtp.max_sessions,
    maxSessionsPerAddress: smtp.max_sessions_per_address,
    maxMessagesPerSession: smtp.max_messages_per_session,
    sessionTimeoutMs: smtp.session_timeout_s * 1000,
    commandTimeoutMs: smtp.command_timeout_s * 1000,
    idleTimeoutMs: smtp.idle_timeout_s * 1000,
    minDataRate: smtp.min_data_rate,
    slowAfterRefusals: smtp.slow_after_refusals,
    endAfterRefusals: smtp.end_after_refusals,
    maxReceived: smtp.max_received,
    maxBacklogPerAccount: smtp.max_backlog_per_account,
    maxLoopLagMs: smtp.max_loop_lag_ms,
    proxyProtocol: smtp.proxy_protocol,
    tls: readTls(smtp.tls),
  };
}

function readTls({ cert, key, min_version: minVersion }: Settings['smtp']['tls']) {
  if (cert === '') return undefined;
  return { cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8'), minVersion };
}
