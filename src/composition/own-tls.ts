import { createSecureContext, type SecureContext } from 'node:tls';
import { createPauses, systemClock } from '../base/clock.ts';
import { createSerialQueue } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import { VERSION } from '../base/version.ts';
import { createAcme } from '../certificates/acme.ts';
import { createAcmeHttp } from '../certificates/acme-http.ts';
import { createCertificates, newAccountKey } from '../certificates/certificates.ts';
import { createChallenges } from '../certificates/challenges.ts';
import { createCertificateNames } from '../certificates/names.ts';
import { type Resolver, toQuestionName } from '../dns/types.ts';
import type { Settings } from '../settings.ts';
import { checkCertificate } from '../smtp/certificate.ts';
import type { Listener, TlsSettings } from '../smtp/listener.ts';
import { StoreAway } from '../store/driver/port.ts';
import { sharedSecret } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { readRoots, readTls } from './files.ts';
import { acmeSettings, certificateNameSettings, certificatesSettings, type DaemonDeps } from './slices.ts';

/** The SMTP listeners that offer certificates. */
type SmtpListeners = readonly Pick<Listener, 'reload'>[];

export type OwnTls = Awaited<ReturnType<typeof openOwnTls>>;

/**
 * The certificates of this host: from ACME for all names; for SMTP and for names without one, that of `smtp.tls` if it
 * is set. They are read before the listeners are created, which offer them from the first session on.
 */
export async function openOwnTls(
  settings: Settings,
  { clock, log, metrics, role }: DaemonDeps,
  { store, resolver }: { readonly store: Store; readonly resolver: Resolver },
) {
  const hostname = toQuestionName(settings.hostname) ?? '';
  const inTurn = createSerialQueue();
  let listeners: SmtpListeners = [];

  const { acme: authority } = settings;
  const challenges = createChallenges({ store, clock });
  const names = createCertificateNames(certificateNameSettings(settings), { store, resolver });
  // The authority works in real time, even if the rest uses another clock.
  const pauses = createPauses(systemClock);
  const acme = authority.enabled
    ? createAcme(acmeSettings(settings), {
        wire: createAcmeHttp({ ca: readRoots(authority), userAgent: `Postern/${VERSION}` }),
        accountKey: () => sharedSecret(store, `acme ${authority.directory}`, newAccountKey),
        clock,
        wait: pauses.wait,
      })
    : undefined;
  const certificates = createCertificates(certificatesSettings(settings), {
    store,
    names,
    challenges,
    acme,
    changed(name) {
      if (name !== hostname || inUse?.files.cert !== '') return;
      offer(inUse.files).catch((fault: unknown) => log.error('smtp.fault', { fault }));
    },
    clock,
    log,
    metrics,
  });

  /** The certificate for SMTP: from the files, else for the hostname from ACME. Throws `ConfigError`. */
  function read(files: Settings['smtp']['tls']): TlsSettings | undefined {
    const issued = certificates.of(hostname);
    return readTls(files) ?? (issued && { cert: issued.chain, key: issued.key, minVersion: files.min_version });
  }

  function use(files: Settings['smtp']['tls']) {
    const pem = read(files);
    const context = pem && createSecureContext({ cert: pem.cert, key: pem.key, minVersion: pem.minVersion });
    return { files, pem, context };
  }

  /** Offers the certificate by SMTP. Throws if it is unusable; the old one stays. */
  const offer = (files: Settings['smtp']['tls']) =>
    inTurn(async () => {
      const next = use(files);
      for (const listener of listeners) await listener.reload(next.pem);
      inUse = next;
      look();
    });

  function look(): void {
    const judged = inUse?.pem && checkCertificate(inUse.pem.cert, settings.hostname, clock.now());
    if (judged?.fault === undefined) return;
    const { cert } = inUse?.files ?? settings.smtp.tls;
    log.warn('smtp.certificate', {
      reason: `the certificate ${cert === '' ? 'from ACME' : `in ${cert}`} ${judged.fault}`,
      note: 'senders that verify it do not deliver, and clients do not log in: renew it, or set smtp.tls.cert',
    });
  }

  let inUse: ReturnType<typeof use> | undefined;
  // A visitor does not serve certificates.
  if (role === 'daemon') await certificates.load();
  inUse = use(settings.smtp.tls);
  metrics.gauge('postern_tls_certificate_covers_hostname', () =>
    inUse?.pem ? [[{}, Number(checkCertificate(inUse.pem.cert, settings.hostname, clock.now()).covers)]] : [],
  );

  return frozen({
    /** The certificate that SMTP offers. */
    pem: () => inUse?.pem,
    /** Its files in the settings. */
    files: () => inUse?.files ?? settings.smtp.tls,
    /** The certificate that HTTPS shows for our first name, PEM. */
    web: () =>
      names.own.map((name) => certificates.of(name)?.chain).find((chain) => chain !== undefined) ?? inUse?.pem?.cert,
    contextFor: (name: string): SecureContext | undefined => certificates.contextFor(name) ?? inUse?.context,
    isOurs: certificates.isOurs,
    answerTo: challenges.answerTo,
    /** Begins to order certificates, once challenges are answered, and offers new ones to these listeners. */
    start(to: SmtpListeners): void {
      listeners = to;
      look();
      certificates.start();
    },
    async reload({ smtp }: Settings): Promise<void> {
      await offer(smtp.tls);
      await certificates.retry().catch((error: unknown) => {
        if (!(error instanceof StoreAway)) throw error;
      });
    },
    async stop(): Promise<void> {
      listeners = [];
      pauses.end();
      await certificates.stop();
    },
  });
}
