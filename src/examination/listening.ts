import { X509Certificate } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { DAY_MS } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { createAddressList, isLoopback, withPort } from '../base/networks.ts';
import { readTls } from '../composition/files.ts';
import { ConfigError } from '../config.ts';
import { sameName } from '../dns/types.ts';
import { domainOf } from '../mail/addresses/address.ts';
import { parseRelay, type Relay } from '../sending/transport/hops.ts';
import type { Settings } from '../settings.ts';
import { certificateNames, isCertificateFor } from '../smtp/certificate.ts';
import { type Check, type CheckContext, type Finding, fault, isLocal, ok, skipped, warning } from './finding.ts';
import { isOwnAddress, publishedAddresses } from './published.ts';
import { greet } from './smtp-talk.ts';

const SMTP_PORT = 25;

/** The daemon answers on its SMTP port. */
export const listening: Check = {
  name: 'SMTP',
  async *run(world) {
    const { settings, listeners } = world;
    const isProxy = createAddressList(settings.smtp.proxy_protocol);
    yield* await Promise.all(
      listeners.smtp.map(async ({ host, port }): Promise<Finding> => {
        const check = `SMTP ${withPort(host, port)}`;
        const line = await firstOf(reachable(host), port, isProxy);
        if (line instanceof Error)
          return fault(
            check,
            line.message,
            'Start the daemon (systemctl start postern) and check its log (journalctl -u postern). If a systemd ' +
              'socket listens elsewhere, set smtp.listen to match.',
          );
        if (!line.startsWith('220 '))
          return fault(
            check,
            `another program answers, or the daemon refuses mail: ${line}`,
            'Stop the other mail server, or check the log of the daemon (journalctl -u postern).',
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
    if (!isLocal(world) && !listeners.smtp.some(({ port }) => port === SMTP_PORT))
      yield warning(
        'port 25',
        `smtp.listen has no port 25, only ${listeners.smtp.map(({ port }) => port).join(', ')}`,
        'Other mail servers connect to port 25 only. Listen on it: with smtp.listen, the systemd socket, or a proxy.',
      );
  },
};

/** Each published address of our name reaches this daemon. */
export const arriving: Check = {
  name: 'inbound port 25',
  async *run(world) {
    const { settings, resolver } = world;
    const check = 'inbound port 25';
    if (isLocal(world)) return yield skipped(check, 'every listener is on loopback');
    const addresses = (await publishedAddresses(resolver, settings.hostname))?.filter((each) => !isLoopback(each));
    if (addresses === undefined) return yield skipped(check, `no DNS answer for ${settings.hostname}`);
    yield* await Promise.all(addresses.map((address) => arrivingAt(address, world)));
  },
};

async function arrivingAt(address: string, { settings, clock }: CheckContext): Promise<Finding> {
  const { hostname, smtp } = settings;
  const check = `inbound port 25 at ${address}`;
  const isOurs = isOwnAddress(address);
  const asProxy = isOurs && createAddressList(smtp.proxy_protocol)(address);
  const found = await greet({ host: address, port: SMTP_PORT, asProxy, as: hostname });
  if (found instanceof Error)
    return isOurs
      ? fault(
          check,
          found.message,
          'Other mail servers cannot connect either. Check smtp.listen and the firewall of this host (nft list ' +
            'ruleset).',
        )
      : warning(
          check,
          `${found.message} from here; this is not an address of this host`,
          'If a router or load balancer forwards it to this host, test it from another network. If not, correct ' +
            `the address of ${hostname} in the DNS.`,
        );
  const { greeting, starttls, certificate: shown } = found;
  if (!greeting.startsWith('220')) return fault(check, `refuses sessions: ${greeting}`, 'Check the log of the daemon.');
  if (!greeting.includes(hostname))
    return fault(
      check,
      `another server answers: ${greeting}`,
      `Mail for your domains goes to that server: correct the address of ${hostname} in the DNS, or the ` +
        'forwarding to this host.',
    );
  const unseen = 'tested from this host, so not through a firewall in front of it';
  if (smtp.tls.cert === '') return ok(check, `answers as ${hostname} (${unseen})`);
  if (!starttls || !shown)
    return fault(
      check,
      'offers no STARTTLS, though smtp.tls is set',
      'Mail arrives unencrypted. Restart the daemon, or find the proxy or firewall in front of it that removes ' +
        'STARTTLS.',
    );
  const wrong = wrongCertificate(shown, settings, clock.now());
  return wrong === undefined
    ? ok(check, `answers as ${hostname}, STARTTLS with the certificate of smtp.tls (${unseen})`)
    : warning(check, `STARTTLS shows ${wrong}`, 'See the certificate above, then: systemctl reload postern.');
}

/** The faults of the certificate that a listener shows. */
function wrongCertificate(shown: X509Certificate, { smtp, hostname }: Settings, now: number): string | undefined {
  if (Date.parse(shown.validTo) < now) return `a certificate that expired on ${shown.validTo}`;
  if (!isCertificateFor(shown, hostname)) return `a certificate for ${certificateNames(shown)}, not for ${hostname}`;
  const installed = readPair(smtp.tls);
  return typeof installed !== 'string' && installed.fingerprint256 !== shown.fingerprint256
    ? `another certificate than that of smtp.tls (valid until ${shown.validTo})`
    : undefined;
}

/** This host can reach other mail servers: many providers block outbound port 25 unless asked. */
export const outgoing: Check = {
  name: 'outbound port 25',
  async *run(world) {
    const check = 'outbound port 25';
    const { reach, settings } = world;
    const relay = parseRelay(settings.outbound.relay);
    if (reach === undefined && relay) return yield* relayed(relay);
    if (reach === undefined && isLocal(world)) return yield skipped(check, 'every listener is on loopback');
    const failed: string[] = [];
    for (const domain of reach === undefined ? await others(world) : [reach]) {
      const host = await mailHost(domain, world);
      for (const address of host?.addresses ?? []) {
        const line = await firstLine(address, settings.outbound.mx_port);
        if (typeof line === 'string') return yield ok(check, `${host?.name} answered: ${line}`);
        failed.push(`${host?.name} (${address}): ${line.message}`);
      }
      if (failed.length >= MAX_TRIED) break;
    }
    if (failed.length === 0)
      return yield skipped(
        check,
        reach === undefined
          ? 'no mail server found to connect to; choose one: postern doctor --reach DOMAIN'
          : `no mail server found for ${reach}`,
      );
    yield fault(
      check,
      `cannot reach ${failed.join('; ')}`,
      'Ask your provider to unblock outbound port 25, or set outbound.relay and mail.relay to a relay server.',
    );
  },
};

/** Addresses that are tried before port 25 counts as closed: a server may be down, and a host without IPv6. */
const MAX_TRIED = 3;
/** A domain whose mail servers always answer, for a new host without known domains. */
const WELL_KNOWN = 'gmail.com';

/** Foreign domains whose mail servers this host may connect to, known ones first. */
async function others({ settings, store }: CheckContext): Promise<readonly string[]> {
  const { postmaster } = settings.smtp;
  const rows = store ? await store.senderDomains.many({}, { limit: 10 }) : [];
  const domains = [domainOf(postmaster), ...rows.map(({ domain }) => domain), WELL_KNOWN];
  return [...new Set(domains.filter((domain) => domain !== ''))];
}

async function* relayed({ host, port, secure }: Relay): AsyncGenerator<Finding> {
  const check = `outbound relay ${host}:${port}`;
  if (secure) return yield skipped(check, 'outbound.relay takes all mail; smtps is not tested');
  const line = await firstLine(host, port);
  yield line instanceof Error
    ? fault(check, line.message, 'Correct outbound.relay, or start the relay: no mail leaves without it.')
    : ok(check, line);
}

/** The first mail server of a domain, with an address of each kind; not one of ours, which would prove nothing. */
async function mailHost(
  domain: string,
  { resolver, settings }: CheckContext,
): Promise<{ readonly name: string; readonly addresses: readonly string[] } | undefined> {
  const mx = await resolver.resolve(domain, 'MX');
  const name = mx.kind === 'records' ? mx.records.toSorted((a, b) => a.priority - b.priority)[0]?.exchange : domain;
  if (name === undefined || name === '') return undefined;
  if ([settings.hostname, ...settings.inbound.mx_hosts].some((own) => sameName(own, name))) return undefined;
  const found = await resolver.addresses(name);
  const records = found.kind === 'records' ? found.records : [];
  const addresses = [records.find(isIPv4), records.find((address) => !isIPv4(address))];
  return { name, addresses: addresses.filter((address) => address !== undefined) };
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

/** The greeting of a server. */
async function firstLine(host: string, port: number, asProxy = false): Promise<string | Error> {
  const found = await greet({ host, port, asProxy });
  return found instanceof Error ? found : found.greeting;
}

/** Certbot renews 30 days before expiry; with fewer days left than this, renewal is not working. */
const SOON_DAYS = 14;

/** The SMTP certificate is valid, covers our name and matches its key. */
export const certificate: Check = {
  name: 'certificate',
  async *run(world) {
    const { settings, clock } = world;
    const { tls } = settings.smtp;
    if (tls.cert === '') {
      // Then the check of ACME certificates covers it.
      if (settings.acme.enabled)
        return yield skipped('certificate', 'smtp.tls is not set; the certificate comes from ACME');
      const advice =
        'Set acme.enabled (see "HTTPS and certificates" in docs/operations.md), or smtp.tls.cert and smtp.tls.key.';
      return yield isLocal(world)
        ? ok('certificate', 'none; every listener is on loopback')
        : warning('certificate', 'none; inbound mail is not encrypted', advice);
    }
    const parsed = readPair(tls);
    if (typeof parsed === 'string')
      return yield fault(
        'certificate',
        parsed,
        'The daemon cannot start with these files, or still uses the previous ones. Install a matching certificate ' +
          'and key.',
      );
    yield inForce(parsed, clock.now());
    yield named(parsed, settings.hostname);
    yield keyed(parsed);
  },
};

/** The certificate as the daemon loads it, or why it cannot be loaded. */
function readPair(tls: Settings['smtp']['tls']): X509Certificate | string {
  try {
    return new X509Certificate(readTls(tls)?.cert ?? '');
  } catch (error) {
    if (error instanceof ConfigError) return error.faults.map(({ text }) => text).join('; ');
    return errorText(error);
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
    `RSA, ${details?.modulusLength} bits; with an ECDSA certificate this host can handle more TLS sessions ` +
      '(certbot renew --key-type ecdsa --force-renewal)',
  );
}

function named(cert: X509Certificate, hostname: string): Finding {
  if (isCertificateFor(cert, hostname)) return ok('certificate name', hostname);
  return warning(
    'certificate name',
    `covers ${certificateNames(cert)}, not ${hostname}`,
    `Senders that verify it (MTA-STS, DANE) will not deliver: get a certificate for ${hostname}.`,
  );
}
