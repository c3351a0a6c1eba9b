import { X509Certificate } from 'node:crypto';
import { frozen } from '../base/frozen.ts';
import { type Counter, type Metrics, NO_METRICS } from '../base/metrics.ts';
import { REFUSALS, type Reply } from './refusal.ts';

/** What is counted of the sessions of a listener. */
export interface Meters {
  opened(): void;
  closed(): void;
  secured(version: string | null): void;
  refused(reply: Reply): void;
  /** The certificate in use from now on, PEM; undefined: none. */
  certificate(pem: string | undefined): void;
}

const VERSIONS = ['TLSv1.2', 'TLSv1.3', 'other'] as const;

/** Counts for a listener; `listener` is the value of its label. */
export function createMeters(listener: 'smtp' | 'submission' | 'submissions', metrics: Metrics = NO_METRICS): Meters {
  const sessions = metrics.counter('postern_smtp_sessions_total', { listener });
  const byVersion = new Map<string, Counter>(
    VERSIONS.map((version) => [version, metrics.counter('postern_smtp_tls_sessions_total', { listener, version })]),
  );
  const count = (reason: string, { code }: Reply) =>
    metrics.counter('postern_smtp_refusals_total', { listener, code: String(code), reason: toWords(reason) });
  const byReply = new Map<Reply, Counter>(
    Object.entries(REFUSALS).map(([reason, reply]) => [reply, count(reason, reply)]),
  );
  let active = 0;
  let notAfter: number | undefined;
  metrics.gauge('postern_smtp_sessions_active', () => [[{ listener }, active]]);
  metrics.gauge('postern_tls_certificate_not_after_timestamp_seconds', () =>
    notAfter === undefined ? [] : [[{ listener }, notAfter]],
  );
  // The one refusal that is made when it is said, because it names something.
  let unknownThing: Counter | undefined;
  return frozen({
    opened() {
      active++;
      sessions.add();
    },
    closed() {
      active--;
    },
    secured(version) {
      (byVersion.get(version ?? 'other') ?? byVersion.get('other'))?.add();
    },
    refused(reply) {
      (byReply.get(reply) ?? (unknownThing ??= count('unknownThing', reply))).add();
    },
    certificate(pem) {
      notAfter = pem === undefined ? undefined : expiryOf(pem);
    },
  });
}

function expiryOf(pem: string): number {
  return new X509Certificate(pem).validToDate.getTime() / 1000;
}

/** `noMailbox` as Prometheus writes names. */
function toWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
