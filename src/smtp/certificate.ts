import { X509Certificate } from 'node:crypto';

// Checks our own certificate. A faulty one is used all the same: mail still arrives encrypted from senders that do not
// verify it.

interface CheckedCertificate {
  /** Its fault, as a predicate; undefined if it has none. */
  readonly fault: string | undefined;
  /** Whether its names cover ours. */
  readonly covers: boolean;
}

/** `pem`: the certificate, or its chain with it at the start. `now`: milliseconds since 1970. */
export function checkCertificate(pem: string, hostname: string, now: number): CheckedCertificate {
  const cert = new X509Certificate(pem);
  const covers = isCertificateFor(cert, hostname);
  return {
    fault: faultOf(cert, now) ?? (covers ? undefined : `covers ${certificateNames(cert)}, not ${hostname}`),
    covers,
  };
}

/** Whether a client that verifies names accepts this certificate for this host. */
export function isCertificateFor(cert: X509Certificate, hostname: string): boolean {
  return cert.checkHost(hostname) !== undefined;
}

/** Its names, for people. */
export function certificateNames(cert: X509Certificate): string {
  return cert.subjectAltName?.replaceAll('DNS:', '') ?? cert.subject;
}

function faultOf({ validFrom, validFromDate, validTo, validToDate }: X509Certificate, now: number): string | undefined {
  if (now >= validToDate.getTime()) return `expired on ${validTo}`;
  if (now < validFromDate.getTime()) return `is not valid before ${validFrom}`;
  return undefined;
}
