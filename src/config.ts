import { readFileSync } from 'node:fs';
import { hostname as machineName } from 'node:os';
import ipaddr from 'ipaddr.js';
import { parse } from 'yaml';
import { z } from 'zod';
import { parseAddress, toAsciiDomain } from './mail/address.ts';
import { parseRelay } from './outbound/relay.ts';

/**
 * The settings: config/default.yaml holds each with its default and a comment, this file says what each may be.
 * An operator's file wins over the defaults, the environment over both.
 */

// Every leaf also takes the form that an environment variable has: a string.
const text = z.string();
const count = (min: number, max = Number.MAX_SAFE_INTEGER) => z.preprocess(
  (value) => typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value,
  z.int(`must be a whole number from ${min} to ${max}`).min(min, `must be at least ${min}`).max(max, `must be at most ${max}`),
);
const list = <T extends z.ZodType>(item: T) => z.preprocess(
  (value) => typeof value === 'string' ? value.split(',').map((part) => part.trim()).filter((part) => part !== '') : value,
  z.array(item),
);

const flag = z.preprocess((value) => value === 'true' ? true : value === 'false' ? false : value, z.boolean('must be true or false'));

const endpoint = z.string().transform((value, context) => {
  const parts = /^(?:\[([0-9a-f:.]+)\]|([^[\]:]+)):(\d{1,5})$/i.exec(value);
  const host = parts?.[1] ?? parts?.[2];
  const port = Number(parts?.[3]);
  if (host !== undefined && ipaddr.isValid(host) && port <= 65535) return { host, port };
  context.addIssue({ code: 'custom', message: 'must be address:port, as 127.0.0.1:2525 or [::1]:2525' });
  return z.NEVER;
});
const network = z.string().refine((value) => ipaddr.isValidCIDR(value) || ipaddr.isValid(value), 'must be an address or a network, as 10.0.0.0/8');
const host = z.string().refine((value) => toAsciiDomain(value) !== undefined, 'must be a host name');
const url = z.string().refine((value) => value === '' || /^https?:\/\/[^/]/.test(value) && URL.canParse(value), 'must be an http or https URL');

const schema = z.strictObject({
  data_dir: text.min(1, 'must name a folder'),
  hostname: z.union([z.literal(''), host]),
  public_url: url,
  smtp: z.strictObject({
    listen: list(endpoint),
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
    max_backlog_per_account: count(1),
    max_loop_lag_ms: count(10),
    proxy_protocol: list(network),
    tls: z.strictObject({ cert: text, key: text, min_version: z.enum(['TLSv1.2', 'TLSv1.3']) }),
  }),
  submission: z.strictObject({
    listen: list(endpoint),
    tls_listen: list(endpoint),
    require_tls: flag,
    max_recipients: count(100, 100_000),
    max_bytes_in_data: count(1024 ** 2),
    max_bad_keys_per_minute: count(1),
  }),
  http: z.strictObject({
    listen: endpoint,
    trusted_proxies: list(network),
    max_body_bytes: count(1024, 1024 ** 3),
    max_bad_keys_per_minute: count(1),
  }),
  metrics: z.strictObject({ allow: list(network) }),
  store: z.strictObject({
    url: z.string().refine((value) => value === '' || /^mongodb(\+srv)?:\/\//.test(value), 'must begin with mongodb:// or mongodb+srv://'),
    url_file: text,
    timeout_ms: count(100),
  }),
  spool: z.strictObject({ min_free_percent: count(0, 90), min_free_bytes: count(0) }),
  inbound: z.strictObject({ refresh_ms: count(100), mx_hosts: list(host) }),
  parse: z.strictObject({ workers: count(0, 64), timeout_ms: count(100), memory_mb: count(64, 16_384) }),
  dns: z.strictObject({
    servers: list(endpoint.transform(({ host, port }) => host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`)),
    timeout_ms: count(100),
    questions_per_message: count(10),
    budget_ms: count(100),
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
    retry_hours: count(1),
    keep_dead_days: count(0),
    keep_delivered_hours: count(0),
    keep_delivered_bytes: count(0),
  }),
  senders: z.strictObject({ spf_include: z.union([z.literal(''), host]), dkim_selector: z.string().regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, 'must be one label of a host name, in lower case') }),
  mail: z.strictObject({
    relay: z.string().refine((value) => value === '' || parseRelay(value) !== undefined, 'must be smtp://[user:password@]host[:port] or smtps://…'),
    from: z.string().refine((value) => value === '' || parseAddress(value) !== undefined, 'must be an email address'),
    mx_port: count(1, 65_535),
  }),
  outbound: z.strictObject({
    relay: z.string().refine((value) => value === '' || parseRelay(value) !== undefined, 'must be smtp://[user:password@]host[:port] or smtps://…'),
    mx_port: count(1, 65_535),
    return_domain: z.union([z.literal(''), host]),
    timeout_s: count(1, 3600),
    host_timeout_s: count(1, 3600),
    tls: z.enum(['opportunistic', 'required', 'off']),
    mta_sts: flag,
    quota: flag,
    track_opens: flag,
    track_clicks: z.enum(['none', 'html', 'text', 'all']),
    max_age_hours: count(1, 8760),
    concurrency: count(1, 10_000),
    concurrency_per_destination: count(1, 10_000),
    concurrency_to_relay: count(1, 10_000),
    signing_domain: z.union([z.literal(''), host]),
  }),
  ips: z.strictObject({ provisioning: z.enum(['free', 'off']), min_reputation: count(0, 100), quarantine_days: count(0, 3650) }),
  events: z.strictObject({ keep_days: count(1, 36_500) }),
  exports: z.strictObject({ keep_days: count(1, 3650), max_per_day: count(1, 100_000), metadata_fields: list(text.min(1, 'must name a field of the metadata')) }),
  bootstrap: z.strictObject({ api_key: z.string().regex(/^([\w-]{16,128})?$/, 'must be 16 to 128 letters, digits, - or _') }),
  log: z.strictObject({ level: z.enum(['debug', 'info', 'warn', 'error', 'silent']) }),
});

export type Settings = z.output<typeof schema>;

/** One thing wrong with the settings, with its place: `smtp.listen: must be …`. */
export interface Fault { readonly path: string; readonly text: string }

/** The settings cannot be used; every fault is named. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly Fault[];
  constructor(faults: readonly Fault[]) {
    super(faults.map(({ path, text }) => `${path}: ${text}`).join('\n'));
    this.faults = faults;
  }
}

export interface Loaded {
  readonly settings: Settings;
  /** Every setting as text, and where its value came from: default, a file's name, or an environment variable's. */
  readonly shown: readonly { readonly path: string; readonly value: unknown; readonly origin: string }[];
}

/** A setting before it is checked, with where it came from. */
interface Leaf { value: unknown; origin: string }
type Tree = { readonly [name: string]: unknown };

export const DEFAULTS_FILE = new URL('../config/default.yaml', import.meta.url).pathname;

/** Reads and checks all settings. Throws `ConfigError`. */
export function loadSettings(file: string | undefined, env: Readonly<Record<string, string | undefined>>): Loaded {
  const leaves = new Map<string, Leaf>();
  const faults: Fault[] = [];
  collect(readYaml(DEFAULTS_FILE), 'default', leaves);
  const known = new Set(leaves.keys());
  if (file !== undefined) collect(readYaml(file), file, leaves);
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith('POSTERN_') || name === 'POSTERN_CONFIG' || value === undefined) continue;
    const path = name.slice('POSTERN_'.length).toLowerCase().split('__').join('.');
    if (known.has(path)) leaves.set(path, { value, origin: name });
    else faults.push({ path: name, text: `is no setting${nearest(path, known)}` });
  }
  return check(leaves, known, faults);
}

function check(leaves: ReadonlyMap<string, Leaf>, known: ReadonlySet<string>, faults: Fault[]): Loaded {
  for (const [path, { origin }] of leaves) {
    if (!known.has(path)) faults.push({ path, text: `is no setting${nearest(path, known)} (in ${origin})` });
  }
  const read = schema.safeParse(grow([...leaves].filter(([path]) => known.has(path))));
  for (const issue of read.error?.issues ?? []) {
    const path = issue.path.join('.');
    faults.push({ path, text: `${issue.message}${originOf(path, leaves)}` });
  }
  if (read.data && read.data.smtp.tls.cert !== '' !== (read.data.smtp.tls.key !== '')) {
    faults.push({ path: 'smtp.tls', text: 'needs both cert and key, or neither' });
  }
  if (read.data && read.data.submission.tls_listen.length > 0 && read.data.smtp.tls.cert === '') {
    faults.push({ path: 'submission.tls_listen', text: 'needs smtp.tls.cert and smtp.tls.key' });
  }
  if (faults.length > 0 || !read.data) throw new ConfigError(faults);
  const shown = [...leaves].map(([path, leaf]) => ({ path, ...leaf, value: isSecret(path) && leaf.value ? '(set)' : leaf.value }));
  return { settings: complete(read.data), shown };
}

/** Fills what is empty by its nature: our name and our address. */
function complete(settings: Settings): Settings {
  const { host, port } = settings.http.listen;
  const name = settings.hostname || toAsciiDomain(machineName()) || 'localhost';
  const shownHost = host.includes(':') ? `[${host}]` : host;
  const publicUrl = (settings.public_url || `http://${shownHost}:${port}`).replace(/\/+$/, '');
  const senders = { ...settings.senders, spf_include: settings.senders.spf_include || `spf.${name}` };
  const mail = { ...settings.mail, from: settings.mail.from || `postmaster@${name}` };
  const outbound = { ...settings.outbound, return_domain: toAsciiDomain(settings.outbound.return_domain) ?? `bounces.${name}`, signing_domain: toAsciiDomain(settings.outbound.signing_domain) ?? '' };
  return { ...settings, hostname: name, public_url: publicUrl, senders, mail, outbound };
}

function isSecret(path: string): boolean {
  return path === 'bootstrap.api_key' || path === 'store.url' || path === 'mail.relay' || path === 'outbound.relay';
}

function originOf(path: string, leaves: ReadonlyMap<string, Leaf>): string {
  const origin = leaves.get(path)?.origin ?? leaves.get(path.replace(/\.\d+$/, ''))?.origin;
  return origin === undefined || origin === 'default' ? '' : ` (in ${origin})`;
}

function nearest(path: string, known: ReadonlySet<string>): string {
  const inside = [...known].find((name) => name.startsWith(`${path}.`));
  if (inside !== undefined) return ` but a section of them, as ${inside}`;
  const last = path.split('.').at(-1) ?? '';
  const close = [...known].find((name) => name.split('.').at(-1) === last || name.replaceAll(/[._]/g, '') === path.replaceAll(/[._]/g, ''));
  return close === undefined ? '' : `; did you mean ${close}?`;
}

function readYaml(file: string): unknown {
  try {
    return parse(readFileSync(file, 'utf8')) ?? {};
  } catch (error) {
    throw new ConfigError([{ path: file, text: error instanceof Error ? error.message.split('\n')[0] ?? '' : 'cannot be read' }]);
  }
}

/** Flattens a tree to dotted paths. Lists are leaves. A section that is empty (null) has none. */
function collect(tree: unknown, origin: string, into: Map<string, Leaf>, prefix = ''): void {
  if (!isTree(tree)) {
    if (prefix === '') throw new ConfigError([{ path: origin, text: 'must hold settings as name: value' }]);
    const section = [...into.keys()].some((path) => path.startsWith(`${prefix}.`));
    if (!(section && tree === null)) into.set(prefix, { value: tree, origin });
    return;
  }
  for (const [name, value] of Object.entries(tree)) collect(value, origin, into, prefix === '' ? name : `${prefix}.${name}`);
}

function grow(leaves: readonly (readonly [string, Leaf])[]): Tree {
  const root: Record<string, unknown> = Object.create(null);
  for (const [path, { value }] of leaves) {
    const names = path.split('.');
    const last = names.pop() ?? '';
    let at = root;
    for (const name of names) at = child(at, name);
    at[last] = value;
  }
  return root;
}

function child(at: Record<string, unknown>, name: string): Record<string, unknown> {
  const next = at[name];
  if (isRecord(next)) return next;
  const made: Record<string, unknown> = Object.create(null);
  at[name] = made;
  return made;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const isTree = (value: unknown): value is Tree => isRecord(value);
