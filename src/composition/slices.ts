import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';
import { HOUR_MS } from '../base/clock.ts';
import type { Metrics } from '../base/metrics.ts';
import { moduleUrl } from '../base/module-url.ts';
import { isLoopback } from '../base/networks.ts';
import type { Exposition, Figures } from '../base/prometheus.ts';
import type { Tools } from '../base/tools.ts';
import { VERSION } from '../base/version.ts';
import type { PoolSettings } from '../base/worker-pool.ts';
import { consoleOrigin, hasOwnStore, type LoadedSettings } from '../config.ts';
import { PASSWORD_COST } from '../console/passwords.ts';
import { sameName, toQuestionName } from '../dns/types.ts';
import type { Settings } from '../settings.ts';
import { FEATURES } from './known-features.ts';
import type { RenderThreadData } from './render-thread.ts';

// Selects the settings of each part and maps them to its own names.

/** A named socket passed by systemd. */
interface HandedSocket {
  readonly name: string;
  readonly fd: number;
}

/** Dependencies that the composition does not create itself. */
export interface DaemonDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly sockets?: readonly HandedSocket[];
  /**
   * daemon: the serving process. visitor: a process that runs operations with the same parts but never starts them; the
   * daemon may be running.
   */
  readonly role: 'daemon' | 'visitor';
  /** Every setting with its value and origin, for people; secrets are hidden. */
  readonly shown: LoadedSettings['shown'];
  /** The features of rows that this version understands; a test omits some. */
  readonly features?: readonly string[];
  /** The metrics registry, its exposition and its values. */
  readonly metrics: Metrics & Exposition & Figures;
}

/** Whether all listeners are on loopback, as on a developer's machine. */
export function onLoopbackOnly(settings: Settings, deps: Pick<DaemonDeps, 'sockets'>): boolean {
  const hosts = [
    ...settings.smtp.listen,
    ...settings.submission.listen,
    ...settings.submission.tls_listen,
    ...settings.https.listen,
    ...settings.https.redirect_listen,
    settings.http.listen,
  ].map(({ host }) => host);
  return (deps.sockets ?? []).length === 0 && hosts.every(isLoopback);
}

/** Sockets of this name passed by systemd; they take precedence over the settings. */
function handedOver(name: string, { sockets = [] }: DaemonDeps): { readonly fd: number }[] {
  return sockets.filter((socket) => socket.name === name).map(({ fd }) => ({ fd }));
}

/** Where to listen: on sockets of this name passed by systemd, else as set. */
export function orHandedOver<T>(name: string, listen: readonly T[], deps: DaemonDeps) {
  const handed = handedOver(name, deps);
  return handed.length > 0 ? handed : listen;
}

const exportsDir = (settings: Settings) => join(resolve(settings.data_dir), 'exports');

function exportSettings(settings: Settings, holder: string) {
  const { hostname, public_url: publicUrl, exports } = settings;
  return {
    dir: exportsDir(settings),
    hostname,
    holder,
    publicUrl,
    keepDays: exports.keep_days,
    formulas: exports.formulas,
    metadataFields: exports.metadata_fields,
  };
}

export const spoolDir = (settings: Settings) => join(resolve(settings.data_dir), 'spool');

/** The row of this host, for the other hosts of the store. */
export function membershipSettings(settings: Settings, { features = FEATURES }: Pick<DaemonDeps, 'features'>) {
  const { hostname: name, http } = settings;
  return {
    name,
    url: http.peer_url,
    queueDir: spoolDir(settings),
    version: VERSION,
    features,
    alone: hasOwnStore(settings),
  };
}

/** The conditions under which this host takes over the mail of another. */
export function lostHostsSettings(settings: Settings) {
  return { afterMs: settings.hosts.adopt_after_s * 1000, alone: hasOwnStore(settings) };
}

/** Linked attachments are files in `links` of the data folder; the claims of accounts are in `link-claims`. */
export function linkSettings({ data_dir: dataDir, public_url: publicUrl, inbound }: Settings) {
  const dir = resolve(dataDir);
  return {
    dir: join(dir, 'links'),
    claimsDir: join(dir, 'link-claims'),
    publicUrl,
    keepMs: inbound.link_hours * HOUR_MS,
    mostBytes: inbound.link_bytes,
  };
}

/** The names that this service has certificates for. */
export function certificateNameSettings(settings: Settings) {
  const { hostname, public_url: publicUrl, console: own, inbound } = settings;
  return { own: [hostname, publicUrl, own.url, own.mail_origin], policies: inbound.mta_sts !== 'none' };
}

/** The certificates of these names. */
export function certificatesSettings(settings: Settings) {
  const { acme, data_dir: dir, smtp } = settings;
  return {
    authority: acme.directory,
    copyFile: hasOwnStore(settings) ? undefined : join(resolve(dir), 'certificates.json'),
    minVersion: smtp.tls.min_version,
  };
}

/** Whether links to this service are answered by its own HTTPS listener, with certificates from ACME. */
export function certifiesLinks({ acme, https, public_url: publicUrl }: Settings, deps: DaemonDeps): boolean {
  return acme.enabled && publicUrl.startsWith('https:') && orHandedOver('https', https.listen, deps).length > 0;
}

/** The certificate authority. */
export function acmeSettings({ acme }: Settings) {
  const { directory, email, eab_key_id: keyId, eab_hmac_key: hmacKey } = acme;
  return { directory, email, eab: { keyId, hmacKey } };
}

/** The MTA-STS policy of inbound domains. */
export function transportPolicySettings({ hostname, inbound }: Settings) {
  const mxHosts = [...new Set([hostname, ...inbound.mx_hosts].flatMap((name) => toQuestionName(name) ?? []))];
  return { mode: inbound.mta_sts, mxHosts };
}

/** The settings for who may use as From the shared domains that authenticate mail of all accounts. */
export function ownDomainsSettings({ outbound }: Settings) {
  return {
    fromOwnDomains: outbound.from_own_domains,
    returnDomain: outbound.return_domain,
    signingDomain: outbound.signing_domain,
  };
}

/** The operator's own names. */
export function ownNames({ hostname, inbound, outbound, public_url: publicUrl, console: shown, senders }: Settings) {
  return {
    hostname,
    mxHosts: inbound.mx_hosts,
    returnDomain: outbound.return_domain,
    publicUrl,
    consoleUrls: [shown.url, shown.mail_origin],
    spfInclude: senders.spf_include,
  };
}

/** The history of this host. */
export function journalSettings(settings: Settings) {
  const { data_dir: dir, journal } = settings;
  return {
    file: join(resolve(dir), 'journal.db'),
    keepDays: journal.keep_days,
    keepRefusalsDays: journal.keep_refusals_days,
    maxBytes: journal.max_bytes,
    subjects: journal.subjects,
    room: roomSettings(settings),
  };
}

/** The minimum free space for mail. */
export function roomSettings({ spool, smtp }: Settings) {
  return {
    minFreePercent: spool.min_free_percent,
    minFreeBytes: spool.min_free_bytes,
    maxMessageBytes: smtp.max_message_bytes,
  };
}

/** Data of accounts must leave more space free than mail, so that mail is still accepted. */
const GROWTH_TIMES = 1.5;

/** The minimum free space for rows of the embedded store, exports and linked attachments. */
export function growthSettings(settings: Settings) {
  return { ...roomSettings(settings), times: GROWTH_TIMES };
}

export function dnsSettings({ dns }: Settings) {
  return {
    servers: dns.servers,
    timeoutMs: dns.timeout_ms,
    questionsPerMessage: dns.questions_per_message,
    budgetMs: dns.budget_ms,
  };
}

/** The settings for queries to the name servers of domains, which are chosen by their owners. */
export function nameServerSettings({ dns, outbound }: Settings, loopbackOnly: boolean) {
  return { port: dns.authority_port, allowPrivate: outbound.allow_private, loopbackOnly };
}

export function posterSettings({ webhooks, delivery }: Settings) {
  // Not the concurrency per endpoint: many endpoints may have the same origin.
  return { timeoutMs: webhooks.timeout_ms, userAgent: `Postern/${VERSION}`, connections: delivery.concurrency };
}

const TRIAL_TIMEOUT_MS = 30_000;

/** A person waits for a trial, so it has a short deadline and no kept connections. */
export function trialSettings(settings: Settings) {
  return { ...posterSettings(settings), timeoutMs: TRIAL_TIMEOUT_MS, connections: 0 };
}

export function renderPoolSettings(settings: Settings): PoolSettings<RenderThreadData> {
  const { parse, hostname, inbound } = settings;
  return {
    script: moduleUrl('./render-thread.ts', import.meta.url),
    data: {
      dns: dnsSettings(settings),
      hostname,
      mxHosts: inbound.mx_hosts,
      trustedSealers: inbound.trusted_sealers,
    },
    threads: parse.workers || Math.max(1, Math.floor(availableParallelism() / 2)),
    timeoutMs: parse.timeout_ms,
    memoryMb: parse.memory_mb,
  };
}

/** The limits of scans, and which mail is scanned. */
export function scanningSettings({ scan }: Settings) {
  return {
    timeoutMs: scan.timeout_ms,
    maxBytes: scan.max_bytes,
    waitMs: scan.wait_hours * HOUR_MS,
    concurrency: scan.concurrency,
  };
}

/** The scanners. */
export function scannerSettings({ scan, hostname }: Settings) {
  const { rspamd, spamd, clamd, milters, spam_at: spamAt, concurrency } = scan;
  return { rspamd, spamd, clamd, milters, spamAt, concurrency, hostname };
}

/** Forms of large messages use the folder for arriving messages, and at most half of the space that is kept free. */
export function rendererSettings(settings: Settings) {
  const { spool, smtp } = settings;
  const mostFormBytes = Math.max(spool.min_free_bytes / 2, 8 * smtp.max_message_bytes);
  return { tmpDir: join(spoolDir(settings), 'tmp'), mostFormBytes };
}

/** Initial concurrency for a mail server without history. */
const SMTP_START = 2;
/** Returned mail is processed here, or sent to one server of the operator. */
const RETURNS = { concurrency: 64, concurrencyPerEndpoint: 8 };

/** The concurrency and retry period of each road. */
export function roadSettings({ delivery, webhooks, outbound, smtp }: Settings) {
  return {
    webhooks: {
      concurrency: delivery.concurrency,
      concurrencyPerEndpoint: delivery.concurrency_per_endpoint,
      concurrencyAtStart: delivery.concurrency_per_endpoint_start,
      retryHours: delivery.retry_hours,
      orderHoldMs: delivery.order_hold_minutes * 60_000,
      batchBytes: webhooks.batch_bytes,
    },
    returns: {
      ...RETURNS,
      concurrencyAtStart: SMTP_START,
      retryHours: delivery.retry_hours,
      postmaster: smtp.postmaster,
    },
    outbound: {
      concurrency: outbound.concurrency,
      concurrencyAtStart: SMTP_START,
      concurrencyPerEndpoint:
        outbound.relay === '' ? outbound.concurrency_per_destination : outbound.concurrency_to_relay,
      maxAgeHours: outbound.max_age_hours,
    },
  };
}

/** The settings for copies of inbound mail. */
export function copyingSettings(settings: Settings) {
  const { copies: mode, without_copies: withoutCopies, hold_ms: holdMs } = settings.queue;
  return { mode, withoutCopies, holdMs, alone: hasOwnStore(settings) };
}

/** The limits that detect loops of automated answers. */
export function brakeSettings({ inbound }: Settings) {
  return { messages: inbound.loop_messages, windowMs: inbound.loop_minutes * 60_000 };
}

/** When to slow down the acceptance of mail, and by how much. */
export function pacingSettings({ delivery }: Settings) {
  return { above: delivery.slow_above, longestMs: delivery.slow_ms };
}

export function sendingSettings({ hostname, senders, outbound }: Settings) {
  return { hostname, ownDomain: outbound.signing_domain, dkimSelector: senders.dkim_selector };
}

/** The signing of our own mail. */
export function ownSignatureSettings({ mail, senders, outbound }: Settings) {
  return { from: mail.from, signingDomain: outbound.signing_domain, dkimSelector: senders.dkim_selector };
}

/** `holder`: the name of this run of this process in the store. */
export function taskSettings(settings: Settings, holder: string) {
  const { hostname, delivery, inbound, ips, events } = settings;
  return {
    purge: {
      keepDeadDays: delivery.keep_dead_days,
      keepDeliveredHours: delivery.keep_delivered_hours,
      keepDeliveredBytes: delivery.keep_delivered_bytes,
    },
    batches: { retryHours: delivery.retry_hours },
    inbound: { mxHosts: [hostname, ...inbound.mx_hosts] },
    ips: { hostname, quarantineDays: ips.quarantine_days },
    exports: exportSettings(settings, holder),
    links: linkSettings(settings),
    rows: { keepDays: events.keep_days },
  };
}

type Dashed<S extends string> = S extends `${infer A}_${infer B}` ? `${A}-${Dashed<B>}` : S;

/** The schedule of each task, by its name in tasks/index.ts, which is that of its setting with dashes. */
export function taskSchedules(settings: Settings): Record<Dashed<keyof Settings['tasks']>, string>;
export function taskSchedules({ tasks }: Settings): Record<string, string> {
  return Object.fromEntries(Object.entries(tasks).map(([name, schedule]) => [name.replaceAll('_', '-'), schedule]));
}

export function apiSettings(settings: Settings, deps: DaemonDeps) {
  const { http, smtp, inbound, outbound, ips, exports, hostname, public_url: publicUrl } = settings;
  return {
    listen: handedOver('http', deps)[0] ?? http.listen,
    secureListen: orHandedOver('https', settings.https.listen, deps),
    redirectListen: orHandedOver('redirect', settings.https.redirect_listen, deps),
    alone: hasOwnStore(settings),
    keepsHeaders: settings.journal.subjects,
    publicUrl,
    trustedProxies: http.trusted_proxies,
    metricsAllow: settings.metrics.allow,
    limits: accountLimits(settings),
    maxBodyBytes: http.max_body_bytes,
    minBodyRate: http.min_body_rate,
    maxConnections: http.max_connections,
    maxConnectionsPerAddress: http.max_connections_per_address,
    maxMessageBytes: smtp.max_message_bytes,
    maxBadKeysPerMinute: http.max_bad_keys_per_minute,
    hostname,
    exportsDir: exportsDir(settings),
    exports: { perDay: exports.max_per_day },
    // Hosts that share their settings all list each other, and themselves.
    mxHosts: inbound.mx_hosts.filter((name) => !sameName(name, hostname)),
    defaultFormat: inbound.default_format,
    ips: { provisioning: ips.provisioning, minReputation: ips.min_reputation },
    tracking: { opens: outbound.track_opens, clicks: outbound.track_clicks },
    version: VERSION,
  };
}

/** The console; undefined if it is off. */
export function consoleSettings(settings: Settings, deps: Pick<DaemonDeps, 'sockets'>) {
  const { console: own, journal, delivery } = settings;
  if (!(own.enabled ?? onLoopbackOnly(settings, deps))) return undefined;
  return {
    url: consoleOrigin(settings) ?? '',
    mailOrigin: own.mail_origin === '' ? '' : new URL(own.mail_origin).origin,
    ...hostSettings(settings),
    sessionMs: own.session_hours * 3_600_000,
    operatorReadsMail: own.operator_reads_mail,
    keeps: {
      history: journal.keep_days,
      refusals: journal.keep_refusals_days,
      givenUp: delivery.keep_dead_days,
    },
    passwordCost: PASSWORD_COST,
  };
}

/** The settings of this host for operators. */
export function hostSettings({ hostname, console: own }: Settings) {
  return { hostname, version: VERSION, idleMs: own.idle_minutes * 60_000 };
}

/** The sign-in link with this token; on loopback if the console has no other address. */
export function signInUrl(settings: Settings, token: string): string {
  const origin = consoleOrigin(settings) ?? `http://127.0.0.1:${settings.http.listen.port}`;
  return `${origin}/console/enter/${token}`;
}

/** The limits of an account. */
export function accountLimits({ accounts }: Settings) {
  const rows = {
    inbound_domains: accounts.max_domains,
    sender_domains: accounts.max_domains,
    tracking_domains: accounts.max_domains,
    inbound_routes: accounts.max_routes,
    webhooks: accounts.max_webhooks,
    templates: accounts.max_templates,
    subaccounts: accounts.max_subaccounts,
    pools: accounts.max_pools,
    rejects: accounts.max_list_entries,
    whitelists: accounts.max_list_entries,
    scheduled: accounts.max_scheduled,
  };
  return { rows, bytes: accounts.max_bytes, callsPerSecond: accounts.max_calls_per_second };
}
