import { connect } from 'node:net';
import { DAY_MS } from '../base/clock.ts';
import { type HostPort, reachableHost } from '../base/networks.ts';
import { createCertificateNames, type WantedName } from '../certificates/names.ts';
import { certificateNameSettings } from '../composition/slices.ts';
import type { CertificateRow } from '../store/rows/certificates.ts';
import { type Check, type CheckContext, type Finding, fault, ok, skipped, warning } from './finding.ts';

/** A certificate of 90 days is renewed 30 days before its expiry; with less left than this, renewal is not working. */
const SOON_DAYS = 20;
/** Names of accounts with a problem that are shown. */
const MAX_SHOWN = 20;
const CONNECT_MS = 5_000;

/** Each name has a valid certificate from the ACME authority, or the reason why not. */
export const acmeCertificates: Check = {
  name: 'ACME certificates',
  async *run({ settings, store, noStore, resolver, clock }) {
    if (!settings.acme.enabled) return yield skipped('ACME certificates', 'acme.enabled is off');
    if (!store) return yield skipped('ACME certificates', noStore);
    const names = await createCertificateNames(certificateNameSettings(settings), { store, resolver }).all();
    if (!names.some(({ kind }) => kind === 'own'))
      yield warning(
        'ACME certificates',
        'no authority issues certificates for hostname or the host of public_url',
        'Set hostname to a public name in the DNS, and public_url to an https:// URL.',
      );
    let good = 0;
    let bad = 0;
    for (const wanted of names) {
      const finding = judge(wanted, await store.certificates.one({ id: wanted.name }), clock.now());
      if (wanted.kind === 'own') yield finding;
      else if (finding.verdict === 'ok') good++;
      else if (bad++ < MAX_SHOWN) yield finding;
    }
    if (good > 0) yield ok('certificates of accounts', `${good} valid`);
    if (bad > MAX_SHOWN)
      yield warning(
        'certificates of accounts',
        `${bad - MAX_SHOWN} more are missing`,
        'Fix those above, then run postern doctor again.',
      );
  },
};

function judge({ name, kind }: WantedName, row: CertificateRow | undefined, now: number): Finding {
  const check = `certificate of ${name}`;
  const missing = kind === 'own' ? fault : warning;
  const reason = row?.error ?? '';
  if (!row?.notAfter)
    return missing(
      check,
      reason === '' ? 'none yet' : `none: ${reason}`,
      reason === '' && kind === 'policy'
        ? `Point ${name} to the addresses of this host; the certificate follows within an hour.`
        : `Port 80 of ${name} must reach this host (systemctl enable postern-http.socket, or https.redirect_listen). ` +
            `The next attempt is at ${(row?.dueAt ?? new Date(now)).toISOString()}.`,
    );
  const days = Math.floor((row.notAfter.getTime() - now) / DAY_MS);
  const failing = reason === '' ? 'The log says why (certificate.failed).' : `The last attempt failed: ${reason}`;
  if (days < 0) return missing(check, `expired on ${row.notAfter.toISOString()}`, failing);
  if (row.failures > 0 || (days < SOON_DAYS && row.dueAt.getTime() < now - DAY_MS))
    return warning(check, `valid for ${days} days, but not renewed`, failing);
  return ok(check, `valid for ${days} days`);
}

/** The ports of HTTPS and of challenges are open. */
export const webPorts: Check = {
  name: 'ports 80 and 443',
  async *run({ settings }: CheckContext) {
    const { https, acme } = settings;
    if (!acme.enabled && https.listen.length === 0)
      return yield skipped('ports 80 and 443', 'Postern serves no HTTPS (https.listen, acme.enabled)');
    if (acme.enabled) yield* opened(https.redirect_listen, 80, 'postern-http.socket');
    yield* opened(https.listen, 443, 'postern-https.socket');
  },
};

/** Without an address in the settings, a systemd socket listens. */
async function* opened(listen: readonly HostPort[], port: number, unit: string): AsyncGenerator<Finding> {
  for (const address of listen.length > 0 ? listen : [{ host: '127.0.0.1', port }]) {
    const check = `port ${address.port}`;
    const failed = await reached({ host: reachableHost(address.host), port: address.port });
    yield failed === undefined
      ? ok(check, 'open on this host')
      : fault(
          check,
          failed,
          `Open it: systemctl enable ${unit} && systemctl restart postern, or set https.listen and ` +
            'https.redirect_listen.',
        );
  }
}

/** Why a port cannot be reached; undefined if it can. */
function reached(address: HostPort): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(address);
    const end = (reason?: string) => {
      socket.destroy();
      resolve(reason);
    };
    socket.setTimeout(CONNECT_MS, () => end(`no answer within ${CONNECT_MS / 1000} s`));
    socket.once('connect', () => end());
    socket.once('error', (error) => end(error.message));
  });
}
