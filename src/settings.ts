import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { isLoopbackName } from './base/networks.ts';
import { parseServer } from './dns/system.ts';
import { FORMAT_NAMES } from './inbound/formats.ts';
import { parseAddress, toAsciiDomain } from './mail/addresses/address.ts';
import { parseRelay } from './sending/transport/hops.ts';
import { scheduleFault } from './tasks/scheduler.ts';

// The valid values of each setting; config/default.yaml has its default and purpose.

// Every leaf also accepts a string, the form of an environment variable.
const text = z.string();
const count = (min: number, max = Number.MAX_SAFE_INTEGER) =>
  z.preprocess(
    (value) => (typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value),
    z
      .int(`must be a whole number from ${min} to ${max}`)
      .min(min, `must be at least ${min}`)
      .max(max, `must be at most ${max}`),
  );
const list = <T extends z.ZodType>(item: T) =>
  z.preprocess(
    (value) =>
      typeof value === 'string'
        ? value
            .split(',')
            .map((part) => part.trim())
            .filter((part) => part !== '')
        : value,
    z.array(item, 'must be a list'),
  );

const flag = z.preprocess(
  (value) => (value === 'true' ? true : value === 'false' ? false : value),
  z.boolean('must be true or false'),
);

const oneOf = <const T extends readonly string[]>(...values: T) =>
  z.enum(values, `must be one of ${values.join(', ')}`);

/** `port` is used in the example of the error message. */
const endpoint = (port: number) =>
  z.string().transform((value, context) => {
    const parts = /^(?:\[([0-9a-f:.]+)\]|([^[\]:]+)):(\d{1,5})$/i.exec(value);
    const host = parts?.[1] ?? parts?.[2];
    const given = Number(parts?.[3]);
    if (host !== undefined && ipaddr.isValid(host) && given <= 65535) return { host, port: given };
    context.addIssue({ code: 'custom', message: `must be address:port, such as 127.0.0.1:${port} or [::1]:${port}` });
    return z.NEVER;
  });
/** `host:port`, or the path of a unix socket. */
const readSocket = (value: string) => {
  if (value.startsWith('/')) return { path: value };
  const parts = /^(?:\[([0-9a-f:.]+)\]|([^[\]:\s]+)):(\d{1,5})$/i.exec(value);
  const name = parts?.[1] ?? parts?.[2];
  const port = Number(parts?.[3]);
  if (name === undefined || port < 1 || port > 65535) return undefined;
  return ipaddr.isValid(name) || toAsciiDomain(name) !== undefined ? { host: name, port } : undefined;
};
const socket = (port: number) =>
  z.string().transform((value, context) => {
    const read = value === '' ? null : readSocket(value);
    if (read !== undefined) return read;
    context.addIssue({
      code: 'custom',
      message: `must be host:port, such as 127.0.0.1:${port}, or the path of a unix socket`,
    });
    return z.NEVER;
  });
const milter = z.string().transform((value, context) => {
  const at = value.indexOf('=');
  const finds = value.slice(0, Math.max(at, 0));
  const address = readSocket(value.slice(at + 1));
  if (address && (finds === 'spam' || finds === 'virus')) return { finds, address } as const;
  context.addIssue({
    code: 'custom',
    message: 'must be spam= or virus=, and host:port or the path of a unix socket, such as spam=127.0.0.1:11332',
  });
  return z.NEVER;
});
const network = z
  .string()
  .refine(
    (value) => ipaddr.isValidCIDR(value) || ipaddr.isValid(value),
    'must be an address or a network, such as 10.0.0.0/8',
  );
const host = z
  .string()
  .refine((value) => toAsciiDomain(value) !== undefined, 'must be a host name, such as mx.example.com');
const url = z
  .string()
  .refine(
    (value) => value === '' || (/^https?:\/\/[^/]/.test(value) && URL.canParse(value)),
    'must be an http or https URL, such as https://mx.example.com',
  );

const isMailAddress = (value: string): boolean => {
  const address = parseAddress(value);
  return address !== undefined && !address.domain.startsWith('[');
};

const schedule = z.string().superRefine((value, context) => {
  const fault = scheduleFault(value);
  if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
});

const CONSOLE_URL = 'must be https://host, or http:// with a loopback address, without a path';

/** Whether a session at this URL is protected: by TLS, or because it is on loopback. */
export function isConsoleUrl(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname, pathname, search, hash, username } = new URL(value);
  const bare = pathname === '/' && search === '' && hash === '' && username === '';
  return bare && (protocol === 'https:' || (protocol === 'http:' && isLoopbackName(hostname)));
}

/** The form of `store.url`, or of the content of its file. */
export const MONGO_URL = 'mongodb://host/name or mongodb+srv://host/name';
export const isMongoUrl = (value: string): boolean => /^mongodb(\+srv)?:\/\/[^/]/.test(value);

/** All settings, by their names in files and in the environment. */
export const schema = z.strictObject({
  data_dir: text.min(1, 'must name a folder'),
  hostname: z.union([z.literal(''), host]),
  public_url: url,
  smtp: z.strictObject({
    listen: list(endpoint(2525)),
    max_message_bytes: count(1024, 1024 ** 3),
    max_recipients: count(100, 100_000),
    max_sessions: count(1, 1_000_000),
    max_sessions_per_address: count(1, 1_000_000),
    max_messages_per_session: count(1),
    session_timeout_s: count(1),
    command_timeout_s: count(1),
    idle_timeout_s: count(1),
    min_data_rate: count(0),
    slow_after_refusals: count(0),
    end_after_refusals: count(1),
    max_received: count(1, 1000),
    bare_newline: oneOf('reject', 'normalize'),
    postmaster: z.string().refine((value) => value === '' || isMailAddress(value), 'must be an email address'),
    max_backlog_per_account: count(1),
    threads: count(0, 64).nullable(),
    max_loop_lag_ms: count(10),
    proxy_protocol: list(network),
    tls: z.strictObject({ cert: text, key: text, min_version: oneOf('TLSv1.2', 'TLSv1.3') }),
  }),
  submission: z.strictObject({
    listen: list(endpoint(587)),
    tls_listen: list(endpoint(465)),
    require_tls: flag,
    max_recipients: count(100, 100_000),
    max_bytes_in_data: count(1024 ** 2),
    max_bad_keys_per_minute: count(1),
  }),
  http: z.strictObject({
    listen: endpoint(8080),
    trusted_proxies: list(network),
    max_body_bytes: count(1024, 1024 ** 3),
    min_body_rate: count(0),
    max_connections: count(1, 1_000_000),
    max_connections_per_address: count(1, 1_000_000),
    max_bad_keys_per_minute: count(1),
    peer_url: url,
  }),
  https: z.strictObject({ listen: list(endpoint(443)), redirect_listen: list(endpoint(80)) }),
  acme: z.strictObject({
    enabled: flag,
    directory: z
      .string()
      .refine((value) => URL.canParse(value) && value.startsWith('https://'), 'must be an https URL'),
    email: z.string().refine((value) => value === '' || isMailAddress(value), 'must be an email address'),
    eab_key_id: text,
    eab_hmac_key: z.string().regex(/^[\w-]*=*$/, 'must be base64url'),
    ca_file: text,
  }),
  console: z.strictObject({
    enabled: flag.nullable(),
    url: z.string().refine((value) => value === '' || isConsoleUrl(value), CONSOLE_URL),
    mail_origin: z.string().refine((value) => value === '' || isConsoleUrl(value), CONSOLE_URL),
    session_hours: count(1, 24 * 365),
    idle_minutes: count(1, 60 * 24 * 365),
    operator_reads_mail: flag,
  }),
  metrics: z.strictObject({ allow: list(network) }),
  accounts: z.strictObject({
    max_domains: count(1),
    max_routes: count(1),
    max_webhooks: count(1),
    max_templates: count(1),
    max_subaccounts: count(1),
    max_pools: count(1),
    max_list_entries: count(1),
    max_scheduled: count(1),
    max_bytes: count(1024 ** 2),
    max_calls_per_second: count(1),
  }),
  store: z.strictObject({
    url: z.string().refine((value) => value === '' || isMongoUrl(value), `must be ${MONGO_URL}`),
    url_file: text,
    timeout_ms: count(100),
    max_connections: count(1, 10_000),
    idle_seconds: count(1),
  }),
  spool: z.strictObject({ min_free_percent: count(0, 90), min_free_bytes: count(0) }),
  queue: z.strictObject({
    copies: oneOf('none', 'store'),
    without_copies: oneOf('accept', 'defer'),
    hold_ms: count(0, 10_000),
  }),
  hosts: z.strictObject({
    // Four leases (LEASE_MS in store/membership.ts).
    adopt_after_s: count(0, 86_400).refine((s) => s === 0 || s >= 60, 'must be 0 (never) or at least 60'),
  }),
  journal: z.strictObject({
    keep_days: count(1, 3650),
    keep_refusals_days: count(1, 3650),
    max_bytes: count(16 * 1024 * 1024),
    subjects: flag,
  }),
  inbound: z.strictObject({
    refresh_ms: count(100),
    mx_hosts: list(host),
    mta_sts: oneOf('none', 'testing', 'enforce'),
    ownership: oneOf('auto', 'first', 'txt'),
    default_format: oneOf(...FORMAT_NAMES),
    link_hours: count(1, 8760),
    link_bytes: count(1024 * 1024),
    loop_messages: count(0, 100_000),
    loop_minutes: count(1, 1440),
    loop_hold: flag,
    trusted_sealers: list(host.transform((value) => toAsciiDomain(value) ?? value)),
  }),
  parse: z.strictObject({ workers: count(0, 64), timeout_ms: count(100), memory_mb: count(64, 16_384) }),
  dns: z.strictObject({
    servers: list(
      z
        .string()
        .refine(
          (value) => parseServer(value) !== undefined,
          'must be an address, such as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53',
        ),
    ),
    timeout_ms: count(100),
    questions_per_message: count(10),
    budget_ms: count(100),
    authority_port: count(1, 65_535),
  }),
  scan: z.strictObject({
    rspamd: url,
    spamd: socket(783),
    clamd: socket(3310),
    milters: list(milter),
    when: oneOf('after', 'before'),
    timeout_ms: count(100, 300_000),
    max_bytes: count(1024, 1024 ** 3),
    wait_hours: count(0, 120),
    concurrency: count(1, 1000),
    spam_at: z
      .preprocess(
        (value) => (typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value),
        z.number('must be a number'),
      )
      .nullable(),
  }),
  webhooks: z.strictObject({
    allow_private: list(network).nullable(),
    timeout_ms: count(100),
    batch_events: count(1, 10_000),
    batch_bytes: count(1024, 64 * 1024 ** 2),
    batch_wait_ms: count(0, 3_600_000),
  }),
  delivery: z.strictObject({
    concurrency: count(1, 10_000),
    concurrency_per_endpoint: count(1, 10_000),
    concurrency_per_endpoint_start: count(1, 10_000),
    slow_above: count(0),
    slow_ms: count(0, 60_000),
    retry_hours: count(1),
    order_hold_minutes: count(1, 1440),
    keep_dead_days: count(0),
    keep_delivered_hours: count(0),
    keep_delivered_bytes: count(0),
  }),
  senders: z.strictObject({
    spf_include: z.union([z.literal(''), host]),
    dkim_selector: z
      .string()
      .regex(
        /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/,
        'must be one label of a host name, in lower case, such as postern',
      ),
  }),
  mail: z.strictObject({
    relay: z
      .string()
      .refine(
        (value) => value === '' || parseRelay(value) !== undefined,
        'must be smtp://[user:password@]host[:port] or smtps://…',
      ),
    from: z.string().refine((value) => value === '' || parseAddress(value) !== undefined, 'must be an email address'),
    mx_port: count(1, 65_535),
  }),
  outbound: z.strictObject({
    relay: z
      .string()
      .refine(
        (value) => value === '' || parseRelay(value) !== undefined,
        'must be smtp://[user:password@]host[:port] or smtps://…',
      ),
    mx_port: count(1, 65_535),
    return_domain: z.union([z.literal(''), host]),
    timeout_s: count(1, 3600),
    host_timeout_s: count(1, 3600),
    tls: oneOf('opportunistic', 'required', 'off'),
    mta_sts: flag,
    quota: flag,
    track_opens: flag,
    track_clicks: oneOf('none', 'html', 'text', 'all'),
    max_age_hours: count(1, 8760),
    concurrency: count(1, 10_000),
    concurrency_per_destination: count(1, 10_000),
    concurrency_to_relay: count(1, 10_000),
    signing_domain: z.union([z.literal(''), host]),
    from_own_domains: oneOf('auto', 'open', 'verified'),
    allow_private: list(network).nullable(),
  }),
  ips: z.strictObject({
    provisioning: oneOf('free', 'off'),
    min_reputation: count(0, 100),
    quarantine_days: count(0, 3650),
  }),
  events: z.strictObject({ keep_days: count(1, 36_500) }),
  exports: z.strictObject({
    keep_days: count(1, 3650),
    max_per_day: count(1, 100_000),
    formulas: oneOf('quote', 'escape'),
    metadata_fields: list(text.min(1, 'must name a field of the metadata')),
  }),
  tasks: z.strictObject({
    purge: schedule,
    keep_time: schedule,
    sweep_outbox: schedule,
    tend_batches: schedule,
    tend_scheduled: schedule,
    tend_copies: schedule,
    run_exports: schedule,
    expire_exports: schedule,
    expire_links: schedule,
    purge_rows: schedule,
    apply_events: schedule,
    count_usage: schedule,
    expire_rejects: schedule,
    provision_ips: schedule,
    finish_warmups: schedule,
    retest_reverse_dns: schedule,
    send_notices: schedule,
    retest_sender_domains: schedule,
    retest_tracking_domains: schedule,
    retest_inbound_domains: schedule,
  }),
  bootstrap: z.strictObject({
    api_key: z.string().regex(/^([\w-]{16,128})?$/, 'must be 16 to 128 letters, digits, - or _'),
  }),
  log: z.strictObject({
    level: oneOf('debug', 'info', 'warn', 'error', 'silent'),
    format: oneOf('auto', 'json', 'pretty'),
  }),
});

export type Settings = z.output<typeof schema>;
