import type { Verdict } from './checker.ts';

/** Prints the one line of figures that a case ends with. */
export function tell(what: string, verdict: Verdict, more: Readonly<Record<string, number | string>> = {}): void {
  const { acknowledged, delivered, lost, duplicates, mismatched, altered, waiting, dead } = verdict;
  const figures = {
    acknowledged,
    delivered,
    lost: lost.length,
    duplicates,
    mismatched: mismatched.length,
    altered: altered.length,
    waiting,
    dead,
    ...more,
  };
  console.log(
    `      ${what}: ${Object.entries(figures)
      .map(([name, figure]) => `${name} ${figure}`)
      .join(', ')}`,
  );
}
