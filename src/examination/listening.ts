import { X509Certificate } from 'node:crypto';
import { connect } from 'node:net';
import { createAddressList } from '../base/networks.ts';
import { readTls } from '../composition/files.ts';
import { ConfigError } from '../config.ts';
import type { Settings } from '../settings.ts';
import { isFor, namesOf } from '../smtp/certificate.ts';
import { type Check, type Finding, fault, isLocal, ok, skipped, type World, warning } from './finding.ts';

const WAIT_MS = 5000;
const SMTP_PORT = 25;

/** The daemon answers on its SMTP port. */
export const listening: Check = {
  name: 'SMTP',
  async *run(world) {
    const { settings, places } = world;
    const isProxy = createAddressList(settings.smtp.proxy_protocol);
    yield* await Promise.all(
      places.smtp.map(async ({ host, port }): Promise<Finding> => {
        const check = `SMTP ${host.includes(':') ? `[${host}]` : host}:${port}`;
        const line = await firstOf(reachable(host), port, isProxy);
        if (line instanceof Error)
          return fault(
            check,
            line.message,
            'Start the daemon (systemctl start postern, or npm start) and check its log. If a systemd socket listens elsewhere, set smtp.listen to match.',
          );
        if (!line.startsWith('220 '))
          return fault(
            check,
            `another program answers, or the daemon refuses mail: ${line}`,
            'Stop the other mail server, or check the log of the daemon.',
          );
        if (!line.includes(settings.hostname))
          return warning(
            check,
            `greets as "${line}", not as ${settings.hostname}`,
            'The running daemon has other settings: restart it, or pass its settings file with --config.',
          );
        return ok(check, line);
      }),
    );
    if (!isLocal(world) && !places.smtp.some(({ port }) => port === SMTP_PORT))
      yield warning(
        'port 25',
        `smtp.listen has ${places.smtp.map(({ port }) => port).join(', ')}`,
        'Other mail servers connect to port 25 only: listen on it, here or through the socket unit or a proxy.',
      );
  },
};

/** This host can reach other mail servers: many providers block outbound port 25 unless asked. */
export const outgoing: Check = {
  name: 'outbound port 25',
  async *run({ reach, howToReach, resolver }) {
    const check = 'outbound port 25';
    if (reach === undefined) return yield skipped(check, `not tested; ${howToReach}`);
    const host = await mailHost(reach, resolver);
    if (host === undefined) return yield skipped(check, `no mail server found for ${reach}`);
    const line = await firstLine(host.address, SMTP_PORT);
    yield line instanceof Error
      ? fault(
          check,
          `cannot reach ${host.name} (${host.address}): ${line.message}`,
          'Ask your provider to unblock outbound port 25, or set outbound.relay and mail.relay to a relay server.',
        )
      : ok(check, `${host.name} answered: ${line}`);
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

/** The addresses to try for a listener from this machine: loopback for a wildcard, IPv4 in case IPv6 is disabled. */
function reachable(host: string): readonly [string, ...string[]] {
  return host === '0.0.0.0' ? ['127.0.0.1'] : host === '::' ? ['::1', '127.0.0.1'] : [host];
}

async function firstOf(
  [host, ...others]: readonly [string, ...string[]],
  port: number,
  isProxy: (address: string) => boolean,
): Promise<string | Error> {
  const line = await firstLine(host, port, isProxy(host));
  const [next] = others;
  return line instanceof Error && next !== undefined ? firstLine(next, port, isProxy(next)) : line;
}

/** As a proxy checks the health of a server: for no client. */
const PROXY_HEADER = 'PROXY UNKNOWN\r\n';

/** Reads the greeting of a server, and sends only QUIT; before it a PROXY header, if the server expects one from us. */
function firstLine(host: string, port: number, asProxy = false): Promise<string | Error> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    let received = '';
    const end = (result: string | Error) => {
      clearTimeout(timer);
      resolve(result);
      socket.destroy();
    };
    const timer = setTimeout(() => end(new Error(`no answer within ${WAIT_MS / 1000} s`)), WAIT_MS);
    socket.setEncoding('latin1');
    if (asProxy) socket.write(PROXY_HEADER);
    socket.on('error', (error) => end(error));
    socket.on('close', () => end(new Error('the connection was closed without a greeting')));
    socket.on('data', (chunk: string) => {
      received = (received + chunk).slice(0, 1000);
      const line = received.indexOf('\r\n');
      if (line < 0) return;
      socket.write('QUIT\r\n', () => end(received.slice(0, line)));
    });
  });
}

const DAY_MS = 24 * 3_600_000;
/** Certbot renews 30 days before expiry; with fewer days left than this, renewal is not working. */
const SOON_DAYS = 14;

/** The SMTP certificate is valid, covers our name and matches its key. */
export const certificate: Check = {
  name: 'certificate',
  async *run(world) {
    const { settings, clock } = world;
    const { tls } = settings.smtp;
    if (tls.cert === '') {
      const advice = 'Set smtp.tls.cert and smtp.tls.key; docs/operations.md explains how to get a certificate.';
      return yield isLocal(world)
        ? ok('certificate', 'none; every listener is on loopback')
        : warning('certificate', 'none; inbound mail is not encrypted', advice);
    }
    const parsed = readPair(tls);
    if (typeof parsed === 'string')
      return yield fault(
        'certificate',
        parsed,
        'The daemon cannot start with these files, or keeps using the previous ones: install a matching certificate and key.',
      );
    yield inForce(parsed, clock.now());
    yield named(parsed, settings.hostname);
    yield keyed(parsed);
  },
};

/** The certificate as the daemon loads it, or the reason why it cannot. */
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
      `not valid before ${cert.validFrom}`,
      'Check the clock of this machine, then the certificate.',
    );
  if (days < 0)
    return fault(
      'certificate',
      `expired on ${cert.validTo}`,
      'Renew it. The daemon loads the new one within a second.',
    );
  if (days < SOON_DAYS)
    return warning(
      'certificate',
      `expires in ${days} days (${cert.validTo})`,
      'Find out why it was not renewed (certbot renew --dry-run).',
    );
  return ok('certificate', `valid for ${days} days`);
}

/** Most of the cost of a TLS handshake is the signature with this key (decision 0032). */
function keyed({ publicKey: { asymmetricKeyType: type, asymmetricKeyDetails: details } }: X509Certificate): Finding {
  if (type !== 'rsa') return ok('certificate key', type === 'ec' ? `ECDSA, ${details?.namedCurve}` : String(type));
  return ok(
    'certificate key',
    `RSA, ${details?.modulusLength} bits; with an ECDSA certificate this host can handle more TLS sessions (certbot renew --key-type ecdsa --force-renewal)`,
  );
}

function named(cert: X509Certificate, hostname: string): Finding {
  if (isFor(cert, hostname)) return ok('certificate name', hostname);
  return warning(
    'certificate name',
    `covers ${namesOf(cert)}, not ${hostname}`,
    `Senders that verify it (MTA-STS, DANE) will not deliver: get a certificate for ${hostname}.`,
  );
}
