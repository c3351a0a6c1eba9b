import { X509Certificate } from 'node:crypto';
import { readTls } from '../../composition/files.ts';
import { ConfigError } from '../../config.ts';
import type { Settings } from '../../settings.ts';
import { type Check, type Finding, fault, isLocal, ok, warning } from './finding.ts';

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
