import { readFileSync } from 'node:fs';
import { hostname as machineName } from 'node:os';
import { parse } from 'yaml';
import { isObject } from './base/json.ts';
import { withPort } from './base/networks.ts';
import { parseAddress, toAsciiDomain } from './mail/addresses/address.ts';
import { isConsoleUrl, type Settings, schema } from './settings.ts';

/**
 * Loads the settings: config/default.yaml has each with its default and a comment, settings.ts defines valid values.
 * The operator's file overrides the defaults, and the environment overrides both.
 */

/** One fault in the settings, with its path: `smtp.listen: must be …`. */
interface Fault {
  readonly path: string;
  readonly text: string;
}

/** The settings are invalid; `faults` has every mistake. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly Fault[];
  constructor(faults: readonly Fault[]) {
    super(faults.map(({ path, text }) => `${path}: ${text}`).join('\n'));
    this.faults = faults;
  }
}

export interface LoadedSettings {
  readonly settings: Settings;
  /** Every setting with its value and origin: default, the name of a file, or that of an environment variable. */
  readonly shown: readonly { readonly path: string; readonly value: unknown; readonly origin: string }[];
}

/** An unchecked setting, with its origin. */
interface Leaf {
  value: unknown;
  origin: string;
}
type Tree = { readonly [name: string]: unknown };

/** Environment variables that are not settings: the settings file, and the API key of `postern listen`. */
const NO_SETTINGS: ReadonlySet<string> = new Set(['POSTERN_CONFIG', 'POSTERN_KEY']);

export const DEFAULTS_FILE = new URL('../config/default.yaml', import.meta.url).pathname;

/** Reads and checks all settings. Throws `ConfigError`. */
export function loadSettings(
  file: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): LoadedSettings {
  const leaves = new Map<string, Leaf>();
  const faults: Fault[] = [];
  collect(readYaml(DEFAULTS_FILE), 'default', leaves);
  const known = new Set(leaves.keys());
  if (file !== undefined) collect(readYaml(file), file, leaves);
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith('POSTERN_') || NO_SETTINGS.has(name) || value === undefined) continue;
    const path = name.slice('POSTERN_'.length).toLowerCase().split('__').join('.');
    if (known.has(path)) leaves.set(path, { value, origin: name });
    else faults.push({ path: name, text: unknown(path, known) });
  }
  return check(leaves, known, faults);
}

function check(leaves: ReadonlyMap<string, Leaf>, known: ReadonlySet<string>, faults: Fault[]): LoadedSettings {
  for (const [path, { origin }] of leaves) {
    if (!known.has(path)) faults.push({ path, text: `${unknown(path, known)} (in ${origin})` });
  }
  // Settings are read once: compiling their schema would take longer than it saves.
  const read = schema.safeParse(grow([...leaves].filter(([path]) => known.has(path))), { jitless: true });
  for (const issue of read.error?.issues ?? []) {
    const path = issue.path.join('.');
    faults.push({ path, text: `${issue.message}${originOf(path, leaves)}` });
  }
  if (read.data && (read.data.smtp.tls.cert !== '') !== (read.data.smtp.tls.key !== '')) {
    faults.push({ path: 'smtp.tls', text: 'needs both cert and key, or neither' });
  }
  if (read.data && !read.data.acme.enabled && read.data.smtp.tls.cert === '') {
    const text = 'needs a certificate: set acme.enabled, or smtp.tls.cert and smtp.tls.key';
    if (read.data.submission.tls_listen.length > 0) faults.push({ path: 'submission.tls_listen', text });
    if (read.data.https.listen.length > 0) faults.push({ path: 'https.listen', text });
  }
  if (read.data && (read.data.acme.eab_key_id !== '') !== (read.data.acme.eab_hmac_key !== '')) {
    faults.push({ path: 'acme', text: 'needs both eab_key_id and eab_hmac_key, or neither' });
  }
  // A file on the disk of the queue would be lost with it.
  if (read.data?.queue.copies === 'store' && hasOwnStore(read.data)) {
    faults.push({
      path: 'queue.copies',
      text: 'store needs a database that hosts share: set store.url or store.url_file',
    });
  }
  const settings = read.data && complete(read.data);
  const originFault = settings && mailOriginFault(settings);
  if (originFault !== undefined) faults.push({ path: 'console.mail_origin', text: originFault });
  if (settings && mailNames(settings).includes(parseAddress(settings.smtp.postmaster)?.domain ?? '')) {
    faults.push({
      path: 'smtp.postmaster',
      text: 'must be a mailbox on another server; this one would forward the mail to itself',
    });
  }
  if (faults.length > 0 || !settings) throw new ConfigError(faults);
  const shown = [...leaves].map(([path, leaf]) => ({
    path,
    ...leaf,
    value: isSecret(path) && leaf.value ? '(set)' : leaf.value,
  }));
  return { settings, shown };
}

/** Fills in the defaults that depend on other settings or on the machine. */
function complete(settings: Settings): Settings {
  const { host, port } = settings.http.listen;
  const name = settings.hostname || toAsciiDomain(machineName()) || 'localhost';
  const publicUrl = (settings.public_url || `http://${withPort(host, port)}`).replace(/\/+$/, '');
  const senders = { ...settings.senders, spf_include: settings.senders.spf_include || `spf.${name}` };
  const mail = { ...settings.mail, from: settings.mail.from || `postmaster@${name}` };
  const outbound = {
    ...settings.outbound,
    return_domain: toAsciiDomain(settings.outbound.return_domain) ?? `bounces.${name}`,
    signing_domain: toAsciiDomain(settings.outbound.signing_domain) ?? '',
  };
  return { ...settings, hostname: name, public_url: publicUrl, senders, mail, outbound };
}

/** Whether the store is a file of this host, and not a database that other hosts share. */
export const hasOwnStore = ({ store }: Pick<Settings, 'store'>): boolean => store.url === '' && store.url_file === '';

/** The origin of the console as browsers see it; undefined: only loopback reaches it. */
export function consoleOrigin({ console: own, public_url: publicUrl }: Settings): string | undefined {
  const url = own.url === '' ? publicUrl : own.url;
  return isConsoleUrl(url) ? new URL(url).origin : undefined;
}

/** Why `console.mail_origin` is unsuitable: its host must have no cookies and serve nothing else. */
function mailOriginFault(settings: Settings): string | undefined {
  const { mail_origin: given, url } = settings.console;
  if (given === '') return undefined;
  const { hostname, protocol } = new URL(given);
  const origin = consoleOrigin(settings);
  // Cookies belong to a host name, regardless of the port.
  if (origin !== undefined && new URL(origin).hostname === hostname)
    return `must have another host name than the console (${url === '' ? 'public_url' : 'console.url'}: ${origin})`;
  if (new URL(settings.public_url).hostname === hostname)
    return `must have another host name than public_url (${settings.public_url}): nothing but mail is answered there`;
  if (origin?.startsWith('https:') && protocol !== 'https:')
    return `must be https, as the console (${origin}) is: browsers show nothing of http:// in it`;
  return undefined;
}

/** Returns the names for whose postmaster this host accepts mail, as A-labels. */
export function mailNames({ hostname, inbound, outbound }: Settings): readonly string[] {
  return [hostname, ...inbound.mx_hosts, outbound.return_domain].flatMap((name) => toAsciiDomain(name) ?? []);
}

const SECRETS: ReadonlySet<string> = new Set([
  'bootstrap.api_key',
  'store.url',
  'mail.relay',
  'outbound.relay',
  'acme.eab_hmac_key',
]);

function isSecret(path: string): boolean {
  return SECRETS.has(path);
}

function originOf(path: string, leaves: ReadonlyMap<string, Leaf>): string {
  const origin = leaves.get(path)?.origin ?? leaves.get(path.replace(/\.\d+$/, ''))?.origin;
  return origin === undefined || origin === 'default' ? '' : ` (in ${origin})`;
}

function unknown(path: string, known: ReadonlySet<string>): string {
  const inside = [...known].find((name) => name.startsWith(`${path}.`));
  if (inside !== undefined) return `is a section, not a setting; its settings have names such as ${inside}`;
  const last = path.split('.').at(-1) ?? '';
  const close = [...known].find(
    (name) => name.split('.').at(-1) === last || name.replaceAll(/[._]/g, '') === path.replaceAll(/[._]/g, ''),
  );
  return close === undefined ? 'unknown setting' : `unknown setting; did you mean ${close}?`;
}

function readYaml(file: string): unknown {
  try {
    return parse(readFileSync(file, 'utf8')) ?? {};
  } catch (error) {
    throw new ConfigError([{ path: file, text: whyUnread(error) }]);
  }
}

function whyUnread(error: unknown): string {
  if (!(error instanceof Error)) return 'cannot be read';
  if ('code' in error && error.code === 'EACCES') {
    return 'permission denied; run this as root (sudo postern …), or pass another file with --config';
  }
  return error.message.split('\n')[0] ?? '';
}

/** Flattens a tree to dotted paths. Lists are leaves. A section that is empty (null) has none. */
function collect(tree: unknown, origin: string, into: Map<string, Leaf>, prefix = ''): void {
  if (!isObject(tree)) {
    if (prefix === '') throw new ConfigError([{ path: origin, text: 'must contain settings as name: value' }]);
    const section = [...into.keys()].some((path) => path.startsWith(`${prefix}.`));
    if (!(section && tree === null)) into.set(prefix, { value: tree, origin });
    return;
  }
  for (const [name, value] of Object.entries(tree))
    collect(value, origin, into, prefix === '' ? name : `${prefix}.${name}`);
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
  if (isObject(next)) return next;
  const made: Record<string, unknown> = Object.create(null);
  at[name] = made;
  return made;
}
