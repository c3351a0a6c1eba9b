import type { FailureCause } from './types.ts';

/** Adds up causes of the same endpoint and last answer, the most frequent first. */
export function mergeCauses(causes: Iterable<FailureCause>): readonly FailureCause[] {
  const found = new Map<string, FailureCause>();
  for (const one of causes) {
    const key = JSON.stringify([one.url, one.lastStatus, one.lastError]);
    const known = found.get(key);
    found.set(key, known ? sum(known, one) : one);
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}

function sum(a: FailureCause, b: FailureCause): FailureCause {
  return {
    ...a,
    count: a.count + b.count,
    oldestAt: Math.min(a.oldestAt, b.oldestAt),
    firstEnded: earliest(a.firstEnded, b.firstEnded),
  };
}

function earliest(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.min(a, b);
}
