import { frozen } from './frozen.ts';
import { DECLARED, METRICS, type MetricDeclaration } from './metric-list.ts';

type Names = keyof typeof METRICS;
/** The metrics of a kind, by name. */
export type MetricName<K extends MetricDeclaration['kind']> = {
  [N in Names]: KindOf<N> extends K ? N : never;
}[Names];
type KindOf<N extends Names> = (typeof METRICS)[N] extends { readonly buckets: unknown }
  ? 'histogram'
  : N extends `${string}_total`
    ? 'counter'
    : 'gauge';
/** A value for each label of a metric. */
type Labels<N extends Names> = (typeof METRICS)[N] extends { readonly labels: infer L }
  ? { readonly [K in keyof L]: string }
  : Readonly<Record<never, string>>;
type LabelArguments<N extends Names> = (typeof METRICS)[N] extends { readonly labels: unknown }
  ? [labels: Labels<N>]
  : [];

/** A number that only grows. */
export type Counter = ReturnType<typeof counterIn>;

/** Numbers sorted into buckets. */
export type Histogram = ReturnType<typeof histogramIn>;

/** The value of a gauge: one number, or one for each label set; undefined if unknown. */
export type Reading<N extends Names> = number | undefined | readonly (readonly [labels: Labels<N>, value: number])[];

/**
 * The metrics that parts update. A part creates its counters and histograms once and keeps them; adding is then as
 * cheap as adding to a variable. Gauges are read at each scrape.
 *
 * Label values come from a closed list, never from a client: no address, no URL, no name chosen by a sender.
 */
export interface Metrics {
  counter<N extends MetricName<'counter'>>(name: N, ...labels: LabelArguments<N>): Counter;
  histogram<N extends MetricName<'histogram'>>(name: N, ...labels: LabelArguments<N>): Histogram;
  /** `read` is called at each scrape, with its deadline. Several parts may report one gauge with different labels. */
  gauge<N extends MetricName<'gauge'>>(name: N, read: () => Reading<N> | Promise<Reading<N>>): void;
  /** Allocates memory for the counts of a thread (`createThreadMetrics`); they are added to the others. */
  share(): SharedArrayBuffer;
}

const NOTHING: Counter & Histogram = Object.freeze({ add() {}, observe() {} });

/** Metrics that are discarded. */
export const NO_METRICS: Metrics = Object.freeze({
  counter: () => NOTHING,
  histogram: () => NOTHING,
  gauge() {},
  share: () => new SharedArrayBuffer(threadLayout().cells * Float64Array.BYTES_PER_ELEMENT),
});

/** Number of cells per label set: a histogram has one per bucket, one for larger values, one for the sum. */
export function widthOf({ buckets }: MetricDeclaration): number {
  return buckets ? buckets.length + 2 : 1;
}

/** A counter stored in the cell `at`. */
export function counterIn(cells: Float64Array, at: number) {
  return {
    /** Adds `amount`, by default 1. */
    add(amount = 1) {
      cells[at] = (cells[at] ?? 0) + amount;
    },
  };
}

/** A histogram stored in the cells from `at` on. */
export function histogramIn(cells: Float64Array, at: number, buckets: readonly number[]) {
  const { length } = buckets;
  return {
    observe(value: number) {
      let i = 0;
      while (i < length && value > (buckets[i] ?? 0)) i++;
      cells[at + i] = (cells[at + i] ?? 0) + 1;
      cells[at + length + 1] = (cells[at + length + 1] ?? 0) + value;
    },
  };
}

/** The first cell of a label set of a metric in the memory of a thread. */
interface CellOffset {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly at: number;
}

/** The layout of the shared memory. It is derived from the declarations, so both threads compute the same. */
export function threadLayout(): { readonly offsets: readonly CellOffset[]; readonly cells: number } {
  const offsets: CellOffset[] = [];
  let cells = 0;
  for (const [name, declared] of DECLARED) {
    if (!declared.threads) continue;
    for (const labels of combinations(Object.entries(declared.threads))) {
      offsets.push({ name, labels, at: cells });
      cells += widthOf(declared);
    }
  }
  return { offsets, cells };
}

function combinations(
  labels: readonly (readonly [name: string, values: readonly string[]])[],
): Record<string, string>[] {
  return labels.reduce<Record<string, string>[]>(
    (found, [name, values]) => found.flatMap((one) => values.map((value) => ({ ...one, [name]: value }))),
    [{}],
  );
}

/** A key for a label set that does not depend on the order of the labels. */
export function labelsKey(labels: Readonly<Record<string, string>> = {}): string {
  return Object.keys(labels)
    .sort()
    .map((name) => `${name}\0${labels[name]}`)
    .join('\0');
}

/**
 * Creates the metrics of a thread: plain numbers in shared memory, so that no messages are needed. Metrics that are not
 * declared for threads are discarded.
 */
export function createThreadMetrics(shared: SharedArrayBuffer): Metrics {
  const cells = new Float64Array(shared);
  const offsets = new Map(threadLayout().offsets.map(({ name, labels, at }) => [`${name} ${labelsKey(labels)}`, at]));
  return frozen({
    ...NO_METRICS,
    counter(name: string, labels?: Readonly<Record<string, string>>) {
      const at = offsets.get(`${name} ${labelsKey(labels)}`);
      return at === undefined ? NOTHING : counterIn(cells, at);
    },
    histogram(name: MetricName<'histogram'>, labels?: Readonly<Record<string, string>>) {
      const at = offsets.get(`${name} ${labelsKey(labels)}`);
      return at === undefined ? NOTHING : histogramIn(cells, at, METRICS[name].buckets);
    },
  });
}
