/** What scanners said of a message. It is asked once and kept with the message. */
export interface Scan {
  /** unknown: nobody who could tell has looked. */
  readonly spam: 'ham' | 'spam' | 'unknown';
  readonly virus: 'clean' | 'infected' | 'unknown';
  /** The name of the virus. */
  readonly name: string | null;
  /** The spam score; null if no scanner gave one. */
  readonly score: number | null;
  /** The rules that made up the score. */
  readonly rules: readonly ScanRule[];
  /** The scanners that looked at it. */
  readonly by: readonly string[];
  /** Why a scanner did not look at it; null if all did. */
  readonly reason: string | null;
}

export interface ScanRule {
  readonly name: string;
  readonly score: number;
  readonly description: string;
}
