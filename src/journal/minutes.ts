// Figures over time, merged into steps. Times are milliseconds since 1970.

/** How several figures are merged into one step. */
export type Merge = 'sum' | 'most' | 'least';

/** A requested series. */
export interface WantedSeries {
  readonly name: string;
  readonly merge: Merge;
}

/** The steps of a plot: the first, the end of the last, and their length. */
export interface PlotSpan {
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

/** Merges a figure into its step. */
export function merged(how: Merge, known: number | null, figure: number | null): number | null {
  if (known === null || figure === null) return known ?? figure;
  if (how === 'sum') return known + figure;
  return how === 'most' ? Math.max(known, figure) : Math.min(known, figure);
}

/** Figures of a moment, by the names of their series. */
interface Sample {
  readonly at: number;
  readonly values: Readonly<Partial<Record<string, number | null>>>;
}

/** For each series the figures of the steps, merged from samples; those outside of the span are ignored. */
export function mergeSamples(
  samples: Iterable<Sample>,
  wanted: readonly WantedSeries[],
  { from, to, step }: PlotSpan,
): (number | null)[][] {
  const length = Math.max(0, Math.ceil((to - from) / step));
  const steps = wanted.map(() => Array.from({ length }, (): number | null => null));
  for (const { at, values } of samples) {
    if (at < from || at >= to) continue;
    const n = Math.floor((at - from) / step);
    for (const [i, { name, merge }] of wanted.entries()) {
      const own = steps[i];
      if (own) own[n] = merged(merge, own[n] ?? null, values[name] ?? null);
    }
  }
  return steps;
}

/** Reads the figures of a minute, if they are readable. Without zod, which would double the start of the thread. */
export function readFigures(text: string): Readonly<Record<string, number>> {
  try {
    const read: unknown = JSON.parse(text);
    return isFigures(read) ? read : {};
  } catch {
    return {};
  }
}

function isFigures(read: unknown): read is Readonly<Record<string, number>> {
  return typeof read === 'object' && read !== null && Object.values(read).every((figure) => typeof figure === 'number');
}
