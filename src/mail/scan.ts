/** The results of scanners for a message. It is scanned once, and they are kept with the message. */
export interface Scan {
  /** unknown: it was not scanned for that. */
  readonly spam: 'ham' | 'spam' | 'unknown';
  readonly virus: 'clean' | 'infected' | 'unknown';
  /** The name of the virus. */
  readonly name: string | null;
  /** The spam score; null if no scanner gave one. */
  readonly score: number | null;
  /** The rules that made up the score. */
  readonly rules: readonly ScanRule[];
  /** The scanners that scanned it. */
  readonly by: readonly string[];
  /** Why a scanner did not scan it; null if all did. */
  readonly reason: string | null;
}

export interface ScanRule {
  readonly name: string;
  readonly score: number;
  readonly description: string;
}
