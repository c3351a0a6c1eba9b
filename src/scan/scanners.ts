import { createClamd } from './clamd.ts';
import { createMilter } from './milter.ts';
import { createRspamd } from './rspamd.ts';
import type { Scanner, ScannerAddress, ThreatKind } from './scanner.ts';
import { createSpamd } from './spamd.ts';

interface ScannerSettings {
  /** URL; empty: not used. */
  readonly rspamd: string;
  readonly spamd: ScannerAddress | null;
  readonly clamd: ScannerAddress | null;
  readonly milters: readonly { readonly finds: ThreatKind; readonly address: ScannerAddress }[];
  /** The score from which a message is spam; null: the scanner decides. */
  readonly spamAt: number | null;
  /** Messages that are scanned at one time. */
  readonly concurrency: number;
  readonly hostname: string;
}

/** The configured scanners. The first one that gives a score gives that of the message. */
export function createScanners(settings: ScannerSettings): readonly Scanner[] {
  const { rspamd, spamd, clamd, milters, spamAt, concurrency, hostname } = settings;
  return [
    ...(rspamd === '' ? [] : [createRspamd({ url: rspamd, hostname, spamAt, connections: concurrency })]),
    ...(spamd ? [createSpamd({ address: spamd, spamAt })] : []),
    ...(clamd ? [createClamd(clamd)] : []),
    ...milters.map((milter, i) => createMilter({ ...milter, name: `milter-${i + 1}`, hostname })),
  ];
}
