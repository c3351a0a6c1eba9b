import { X509Certificate } from 'node:crypto';
import { connect } from 'node:net';
import { readTls } from '../../composition/files.ts';
import { ConfigError } from '../../config.ts';
import type { Settings } from '../../settings.ts';
import { type Check, type Finding, fault, isLocal, ok, skipped, type World, warning } from './finding.ts';

const WAIT_MS = 5000;
const SMTP_PORT = 25;

/** Somebody answers on our SMTP port, and it is the daemon. */
export const listening: Check = {
  name: 'SMTP',
  async run({ settings }) {
    const findings = await Promise.all(
      settings.smtp.listen.map(async ({ host, port }): Promise<Finding> => {
        const check = `SMTP ${host.includes(':') ? `[${host}]` : host}:${port}`;
        const line = await firstOf(reachable(host), port);
        if (line instanceof Error)
          return fault(
            check,
            line.message,
            'Start the daemon (systemctl start postern, npm start), and look at its log. Where a socket of systemd listens elsewhere, smtp.listen should say the same.',
          );
        if (!line.startsWith('220 '))
          return fault(
            check,
            `another program answers, or the daemon takes no mail: ${line}`,
            'Stop the other mail server, or look at the log of the daemon.',
          );
        if (!line.includes(settings.hostname))
          return warning(
            check,
            `greets as "${line}", not as ${settings.hostname}`,
            'The daemon runs with other settings than these: restart it, or name its file with --config.',
          );
        return ok(check, line);
      }),
    );
    const public25 = isLocal(settings) || settings.smtp.listen.some(({ port }) => port === SMTP_PORT);
    return public25
      ? findings
      : [
          ...findings,
          warning(
            'port 25',
            `smtp.listen has ${settings.smtp.listen.map(({ port }) => port).join(', ')}`,
            'Other mail servers come to port 25 and to no other: listen there, or let the socket unit or a proxy.',
          ),
        ];
  },
};

/** Whether this host may talk to mail servers at all: many providers close port 25 to the outside until they are asked. */
export const outgoing: Check = {
  name: 'port 25 to the outside',
  async run({ reach, resolver }) {
    const check = 'port 25 to the outside';
    if (reach === undefined) return [skipped(check, 'say --reach DOMAIN to try it with the mail server of a domain')];
    const host = await mailHost(reach, resolver);
    if (host === undefined) return [skipped(check, `no mail server of ${reach} was found`)];
    const line = await firstLine(host.address, SMTP_PORT);
    if (line instanceof Error) {
      return [
        fault(
          check,
          `${host.name} (${host.address}) was not reached: ${line.message}`,
          'Ask your provider to open port 25 to the outside, or set outbound.relay and mail.relay to a server that carries mail on.',
        ),
      ];
    }
    return [ok(check, `${host.name} answered: ${line}`)];
  },
};

async function mailHost(
  domain: string,
  resolver: World['resolver'],
): Promise<{ readonly name: string; readonly address: string } | undefined> {
  const mx = await resolver.resolve(domain, 'MX');
  const name = mx.kind === 'records' ? mx.records.toSorted((a, b) => a.priority - b.priority)[0]?.exchange : domain;
  if (name === undefined || name === '') return undefined;
  const found = await resolver.addresses(name);
  const address = found.kind === 'records' ? found.records[0] : undefined;
  return address === undefined ? undefined : { name, address };
}

/** From this machine a listener on all addresses is reached over loopback: where IPv6 is off, over that of IPv4. */
function reachable(host: string): readonly [string, ...string[]] {
  return host === '0.0.0.0' ? ['127.0.0.1'] : host === '::' ? ['::1', '127.0.0.1'] : [host];
}

async function firstOf([host, ...others]: readonly [string, ...string[]], port: number): Promise<string | Error> {
  const line = await firstLine(host, port);
  const [next] = others;
  return line instanceof Error && next !== undefined ? firstLine(next, port) : line;
}

/** The first line that a server says, without a word from us but goodbye. */
function firstLine(host: string, port: number): Promise<string | Error> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    let said = '';
    const end = (result: string | Error) => {
      clearTimeout(timer);
      resolve(result);
      socket.destroy();
    };
    const timer = setTimeout(() => end(new Error(`no answer within ${WAIT_MS / 1000} s`)), WAIT_MS);
    socket.setEncoding('latin1');
    socket.on('error', (error) => end(error));
    socket.on('close', () => end(new Error('the connection was closed without a greeting')));
    socket.on('data', (chunk: string) => {
      said = (said + chunk).slice(0, 1000);
      const line = said.indexOf('\r\n');
      if (line < 0) return;
      socket.write('QUIT\r\n', () => end(said.slice(0, line)));
    });
  });
}

const DAY_MS = 24 * 3_600_000;
/** Renewal tries from 30 days before the end; who has fewer left than this has a renewal that does not work. */
const SOON_DAYS = 14;

/** The certificate of SMTP: there, in force, ours, with its key. */
export const certificate: Check = {
  name: 'certificate',
  async run({ settings, clock }) {
    const { tls } = settings.smtp;
    if (tls.cert === '') {
      const advice = 'Set smtp.tls.cert and smtp.tls.key; docs/operations.md says how to get a certificate.';
      return [
        isLocal(settings)
          ? ok('certificate', 'none, and every listener is on loopback')
          : warning('certificate', 'none: mail comes in unencrypted', advice),
      ];
    }
    const parsed = readPair(tls);
    if (typeof parsed === 'string')
      return [
        fault(
          'certificate',
          parsed,
          'The daemon cannot start with these, or goes on with the old ones: put back the pair that belongs together.',
        ),
      ];
    return [inForce(parsed, clock.now()), named(parsed, settings.hostname)];
  },
};

/** What the daemon would use, or why it would not. */
function readPair(tls: Settings['smtp']['tls']): X509Certificate | string {
  try {
    return new X509Certificate(readTls(tls)?.cert ?? '');
  } catch (error) {
    if (error instanceof ConfigError) return error.faults.map(({ text }) => text).join('; ');
    return error instanceof Error ? error.message : String(error);
  }
}

function inForce(cert: X509Certificate, now: number): Finding {
  const [from, to] = [Date.parse(cert.validFrom), Date.parse(cert.validTo)];
  const days = Math.floor((to - now) / DAY_MS);
  if (now < from)
    return fault(
      'certificate',
      `in force only from ${cert.validFrom}`,
      'Look at the clock of this machine, then at who made the certificate.',
    );
  if (days < 0)
    return fault(
      'certificate',
      `over since ${cert.validTo}`,
      'Renew it. The daemon takes the new one by itself within a second.',
    );
  if (days < SOON_DAYS)
    return warning(
      'certificate',
      `ends in ${days} days (${cert.validTo})`,
      'See why it was not renewed (certbot renew --dry-run).',
    );
  return ok('certificate', `in force for ${days} days`);
}

function named(cert: X509Certificate, hostname: string): Finding {
  if (cert.checkHost(hostname) !== undefined) return ok('name in the certificate', hostname);
  const names = cert.subjectAltName?.replaceAll('DNS:', '') ?? cert.subject;
  return warning(
    'name in the certificate',
    `${names}, not ${hostname}`,
    `Senders that check (MTA-STS, DANE) will not deliver: get one for ${hostname}.`,
  );
}
