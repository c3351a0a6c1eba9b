import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface Postfix {
  /** Of its master, which leads the session of all its processes. */
  readonly pid: number;
  /** What it wrote to its log so far. */
  log(): Promise<string>;
  stop(): Promise<void>;
}

interface PostfixOptions {
  /** Where it takes mail: `address:port`, `[ip6]:port`. */
  readonly listen: readonly string[];
  /** Where it takes all mail on to, on 127.0.0.1; without it, to the MX of the recipient. */
  readonly next?: number;
  /** Where it takes mail of single domains to instead. */
  readonly routes?: Readonly<Record<string, number>>;
  /** Files with a certificate and its key, for STARTTLS. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** What to write before its commands: the network where it runs. */
  readonly enter?: readonly string[];
  /** Further lines of main.cf. */
  readonly main?: Readonly<Record<string, string>>;
}

/** Why there is no postfix here, if there is none: only root may start one. */
export function whyNoPostfix(): string | undefined {
  if (spawnSync('postconf', ['-d', 'mail_version']).status !== 0) return 'postfix is not installed';
  return process.getuid?.() === 0 ? undefined : 'postfix needs root';
}

/**
 * What an instance consists of that takes mail by SMTP and carries it on by SMTP or to mailboxes of its own: nothing
 * local, no program, no maildrop.
 */
const MASTER = (listen: readonly string[]) =>
  [
    ...listen.map((address) => `${address} inet n - n - - smtpd`),
    'cleanup unix n - n - 0 cleanup',
    'qmgr unix n - n 300 1 qmgr',
    'tlsmgr unix - - n 1000? 1 tlsmgr',
    'rewrite unix - - n - - trivial-rewrite',
    'bounce unix - - n - 0 bounce',
    'defer unix - - n - 0 bounce',
    'trace unix - - n - 0 bounce',
    'proxymap unix - - n - - proxymap',
    'smtp unix - - n - - smtp',
    'relay unix - - n - - smtp',
    'virtual unix - n n - - virtual',
    'error unix - - n - - error',
    'retry unix - - n - - error',
    'discard unix - - n - - discard',
    'anvil unix - - n - 1 anvil',
    'scache unix - - n - 1 scache',
    'postlog unix-dgram n - n - 1 postlogd',
    '',
  ].join('\n');

/** A Debian postfix of its own in `dir`, beside whatever else runs on the machine. */
export async function startPostfix(
  dir: string,
  { listen, next, routes = {}, tls, enter = [], main = {} }: PostfixOptions,
): Promise<Postfix> {
  const [etc, log] = [join(dir, 'etc'), join(dir, 'mail.log')];
  const loopback = (to: number) => `[127.0.0.1]:${to}`;
  const settings = {
    compatibility_level: '3.6',
    queue_directory: join(dir, 'queue'),
    data_directory: join(dir, 'data'),
    maillog_file: log,
    maillog_file_prefixes: dir,
    inet_interfaces: '127.0.0.1',
    inet_protocols: 'ipv4',
    myhostname: 'mx.postfix.test',
    mydestination: '',
    mynetworks: '127.0.0.0/8',
    alias_maps: '',
    alias_database: '',
    smtpd_relay_restrictions: 'permit_mynetworks, reject',
    smtp_dns_support_level: 'disabled',
    relayhost: next === undefined ? '' : loopback(next),
    ...(Object.keys(routes).length > 0 && {
      transport_maps: `inline:{ ${Object.entries(routes)
        .map(([domain, to]) => `{ ${domain} = smtp:${loopback(to)} }`)
        .join(' ')} }`,
    }),
    ...(tls && {
      smtpd_tls_security_level: 'may',
      smtpd_tls_cert_file: tls.cert,
      smtpd_tls_key_file: tls.key,
      smtpd_tls_received_header: 'yes',
    }),
    ...main,
  };
  await chmod(dir, 0o755); // its parts run as the user postfix, and must get through
  for (const name of ['etc', 'queue', 'data']) await mkdir(join(dir, name));
  await Promise.all([
    writeFile(
      join(etc, 'main.cf'),
      Object.entries(settings)
        .map(([name, value]) => `${name} = ${value}\n`)
        .join(''),
    ),
    writeFile(join(etc, 'master.cf'), MASTER(listen)),
  ]);
  await run('chown', 'postfix', join(dir, 'data'));
  const read = () => readFile(log, 'utf8').catch(() => ''); // it is not there before the first line
  if ((await run(...enter, 'postfix', '-c', etc, 'start')) !== 0)
    throw new Error(`postfix did not start: ${await read()}`);
  const pid = Number(await readFile(join(dir, 'queue/pid/master.pid'), 'utf8'));
  return {
    pid,
    log: read,
    async stop() {
      await run(...enter, 'postfix', '-c', etc, 'stop');
    },
  };
}

/** Answers its exit code. Without pipes: a daemon that inherits them keeps them open. */
async function run(...[program = '', ...args]: readonly string[]): Promise<unknown> {
  const [code] = await once(spawn(program, args, { stdio: 'ignore' }), 'exit');
  return code;
}
