import type { Scan } from '../mail/scan.ts';
import type { Scanner, ScannerFinding, ThreatKind } from './scanner.ts';

/** The result of one scanner: its finding, or why there is none. */
export interface ScannerAnswer {
  readonly scanner: Pick<Scanner, 'name' | 'finds'>;
  readonly finding: ScannerFinding | undefined;
  /** Why the message was not scanned, for people; undefined if it was. */
  readonly reason: string | undefined;
}

/**
 * Combines the results of all scanners. Any finding against the message counts. A message is ham or clean only if every
 * scanner for spam or viruses has scanned it.
 */
export function combineAnswers(answers: readonly ScannerAnswer[]): Scan {
  const findings = answers.flatMap(({ finding }) => (finding ? [finding] : []));
  const scored = findings.find(({ score }) => score !== undefined);
  const reasons = answers.flatMap(({ reason }) => (reason === undefined ? [] : [reason]));
  return {
    spam: findings.some(({ spam }) => spam === 'spam')
      ? 'spam'
      : allSay(answers, 'spam', ({ spam }) => spam === 'ham')
        ? 'ham'
        : 'unknown',
    virus: findings.some(({ virus }) => virus === 'infected')
      ? 'infected'
      : allSay(answers, 'virus', ({ virus }) => virus === 'clean')
        ? 'clean'
        : 'unknown',
    name: findings.find(({ name }) => name !== undefined)?.name ?? null,
    score: scored?.score ?? null,
    rules: scored?.rules ?? [],
    by: answers.filter(({ reason }) => reason === undefined).map(({ scanner }) => scanner.name),
    reason: reasons.length === 0 ? null : reasons.join('; '),
  };
}

function allSay(
  answers: readonly ScannerAnswer[],
  concern: ThreatKind,
  says: (finding: ScannerFinding) => boolean,
): boolean {
  const concerned = answers.filter(({ scanner }) => scanner.finds === concern);
  return concerned.length > 0 && concerned.every(({ finding }) => finding !== undefined && says(finding));
}

/** The result for a message that was not scanned. */
export function unscanned(reason: string): Scan {
  return { spam: 'unknown', virus: 'unknown', name: null, score: null, rules: [], by: [], reason };
}
