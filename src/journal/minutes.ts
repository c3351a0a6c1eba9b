// Figures over time, merged into steps. Times are milliseconds since 1970.

/** How figures of several moments are merged into a longer step. */
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

/** An empty row of figures for each series. */
export function emptySteps(wanted: readonly WantedSeries[], { from, to, step }: PlotSpan): (number | null)[][] {
  const steps = Math.max(0, Math.ceil((to - from) / step));
  return wanted.map(() => Array.from({ length: steps }, () => null));
}

/** Merges the rows of the journal into steps. Unreadable rows are ignored. */
export function mergeMinutes(
  rows: readonly { readonly at: number; readonly figures: string }[],
  wanted: readonly WantedSeries[],
  span: PlotSpan,
): (number | null)[][] {
  const steps = emptySteps(wanted, span);
  for (const { at, figures } of rows) {
    const read = readFigures(figures);
    const step = Math.floor((at - span.from) / span.step);
    for (const [i, { name, merge }] of wanted.entries()) {
      const own = steps[i];
      if (own) own[step] = merged(merge, own[step] ?? null, read[name] ?? null);
    }
  }
  return steps;
}

/** Without zod: loading it would double the time in which the journal's thread starts. */
function readFigures(text: string): Readonly<Record<string, number>> {
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
