import { monitorEventLoopDelay } from 'node:perf_hooks';
import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import { type Clock, withTimeout } from './clock.ts';
import { frozen } from './frozen.ts';
import { DECLARED, METRICS, type MetricDeclaration } from './metric-list.ts';
import {
  counterIn,
  histogramIn,
  labelsKey,
  type MetricName,
  type Metrics,
  type Reading,
  threadLayout,
  widthOf,
} from './metrics.ts';

/** The metrics in the Prometheus text format. */
export interface Exposition {
  readonly contentType: string;
  /**
   * Returns all metrics as text. Never rejects, and never takes much longer than `SCRAPE_MS`: metrics that cannot be
   * read in time are left out and listed in `postern_scrape_missing`.
   */
  text(): Promise<string>;
}

/** Chooses label sets. */
type Matches = (labels: AnyLabels) => boolean;

/** The values of metrics, for the console and the journal. */
export interface Figures {
  /** A counter, summed over the label sets that match. */
  count(name: MetricName<'counter'>, matches?: Matches): number;
  /** How many values of a histogram are in each of its buckets, and (last) above them, summed likewise. */
  buckets(name: MetricName<'histogram'>, matches?: Matches): readonly number[];
  /** A gauge; undefined if it cannot be read in time, as in a scrape. */
  level(name: MetricName<'gauge'>): Promise<readonly (readonly [labels: AnyLabels, value: number])[] | undefined>;
  /** Resident memory in bytes, and the worst lag of the event loop in ms since the last call. Only with `ofProcess`. */
  process(): Promise<{ readonly memory: number; readonly lag: number } | undefined>;
}

/** How long a scrape waits for a gauge. The default scrape timeout of Prometheus is 10 s. */
export const SCRAPE_MS = 2000;
/** Most label sets per metric. No closed list is nearly as long; this is a last guard against an open one. */
const MAX_SETS = 2000;

type AnyLabels = Readonly<Record<string, string>>;
type Value = readonly [labels: AnyLabels, cells: Float64Array, at: number];
type Reader = () => Reading<keyof typeof METRICS> | Promise<Reading<keyof typeof METRICS>>;

const ALL: Matches = () => true;
/** How often the lag of the event loop is measured; each measurement includes this time. */
const LAG_MS = 20;

/** One metric with its label sets. */
interface Family {
  readonly name: string;
  readonly declared: MetricDeclaration;
  readonly sets: Map<string, Value>;
  readonly readers: Reader[];
  /** The values of the gauge in this scrape. */
  readings: (readonly [AnyLabels, number])[];
}

/**
 * Creates the metrics of a process. Only this file uses prom-client. Its own counters look up their labels on each
 * increment, which costs a microsecond, so values are kept in plain cells here and in memory shared with our threads.
 * A scrape passes them to prom-client as if from cluster workers (`AggregatorRegistry.aggregate`), which adds up values
 * with the same labels and writes the text. `ofProcess` adds prom-client's default metrics of the process, which
 * observe the event loop and the garbage collector from then on.
 */
export function createPrometheus(
  deps: { readonly clock: Clock },
  options: { readonly ofProcess: boolean },
): Metrics & Exposition & Figures {
  const ofProcess = new Registry();
  const families = new Map(DECLARED.map(([name, declared]) => [name, createFamily(name, declared)]));
  const shared: Float64Array[] = [];
  const { offsets, cells: sharedCells } = threadLayout();
  let running: Promise<string> | undefined;

  if (options.ofProcess) collectDefaultMetrics({ register: ofProcess });
  const delay = options.ofProcess ? monitorEventLoopDelay({ resolution: LAG_MS }) : undefined;
  delay?.enable();

  /** The cells of all label sets that match, those of threads included. */
  function* valuesOf(name: string, matches: Matches): Generator<Value> {
    for (const value of families.get(name)?.sets.values() ?? []) if (matches(value[0])) yield value;
    for (const value of inThreads(name)) if (matches(value[0])) yield value;
  }

  function* inThreads(name: string): Generator<Value> {
    for (const offset of offsets)
      if (offset.name === name) for (const cells of shared) yield [offset.labels, cells, offset.at];
  }

  function cellsOf(name: string, labels: AnyLabels = {}): { cells: Float64Array; declared: MetricDeclaration } {
    const family = families.get(name);
    if (!family) throw new Error(`no such metric: ${name}`);
    const { sets, declared } = family;
    const key = labelsKey(labels);
    const known = sets.get(key);
    if (known) return { cells: known[1], declared };
    const cells = new Float64Array(widthOf(declared));
    if (sets.size < MAX_SETS) sets.set(key, [labels, cells, 0]);
    return { cells, declared };
  }

  async function scrape(): Promise<string> {
    const missing = await readGauges([...families.values()], deps.clock);
    const lost = families.get('postern_scrape_missing');
    if (lost) lost.readings = missing.map((metric) => [{ metric }, 1]);
    const ours = [...families.values()].map((family) => toJson(family, inThreads(family.name)));
    const texts = [await AggregatorRegistry.aggregate([ours]).metrics()];
    if (options.ofProcess) texts.push(await ofProcess.metrics());
    return texts.join('\n');
  }

  return frozen({
    counter: (name: string, labels?: AnyLabels) => counterIn(cellsOf(name, labels).cells, 0),
    histogram(name: string, labels?: AnyLabels) {
      const { cells, declared } = cellsOf(name, labels);
      return histogramIn(cells, 0, declared.buckets ?? []);
    },
    gauge(name, read) {
      families.get(name)?.readers.push(read);
    },
    share() {
      const memory = new SharedArrayBuffer(sharedCells * Float64Array.BYTES_PER_ELEMENT);
      shared.push(new Float64Array(memory));
      return memory;
    },
    count(name, matches = ALL) {
      let sum = 0;
      for (const [, cells, at] of valuesOf(name, matches)) sum += cells[at] ?? 0;
      return sum;
    },
    buckets(name, matches = ALL) {
      const sums = [...METRICS[name].buckets, Number.POSITIVE_INFINITY].map(() => 0);
      for (const [, cells, at] of valuesOf(name, matches))
        for (const i of sums.keys()) sums[i] = (sums[i] ?? 0) + (cells[at + i] ?? 0);
      return sums;
    },
    async level(name) {
      const { readers = [] } = families.get(name) ?? {};
      const readings = await Promise.all(readers.map((read) => readOne(read, deps.clock)));
      return readings.includes('missing') ? undefined : readings.flatMap(toReadings);
    },
    async process() {
      const memory = await ofProcess.getSingleMetric('process_resident_memory_bytes')?.get();
      if (!delay || !memory) return undefined;
      const lag = delay.count === 0 ? 0 : Math.max(0, delay.max / 1e6 - LAG_MS);
      delay.reset();
      return { memory: memory.values[0]?.value ?? 0, lag };
    },
    contentType: ofProcess.contentType,
    // Concurrent scrapes share one result.
    text: () =>
      (running ??= scrape().finally(() => {
        running = undefined;
      })),
  });
}

/** Creates the state of a metric. A counter without labels exists from the start, as 0. */
function createFamily(name: string, declared: MetricDeclaration): Family {
  const sets = new Map<string, Value>();
  if (declared.kind === 'counter' && !declared.labels)
    sets.set(labelsKey(), [{}, new Float64Array(widthOf(declared)), 0]);
  return { name, declared, sets, readers: [], readings: [] };
}

/** Reads every gauge; returns the names of those that could not be read. */
async function readGauges(families: readonly Family[], clock: Clock): Promise<string[]> {
  const missing: string[] = [];
  await Promise.all(
    families
      .filter(({ readers }) => readers.length > 0)
      .map(async (family) => {
        const readings = await Promise.all(family.readers.map((read) => readOne(read, clock)));
        if (readings.includes('missing')) missing.push(family.name);
        family.readings = readings.flatMap(toReadings);
      }),
  );
  return missing;
}

/** Reads a gauge; resolves with `missing` if that fails or takes too long. */
const readOne = (read: Reader, clock: Clock) =>
  withTimeout(clock, SCRAPE_MS, Promise.resolve().then(read), () => 'missing' as const).catch(() => 'missing' as const);

function toReadings(reading: Awaited<ReturnType<typeof readOne>>): Family['readings'] {
  if (reading === undefined || reading === 'missing') return [];
  return typeof reading === 'number' ? [[{}, reading]] : [...reading];
}

/** A metric in the format of prom-client's `getMetricsAsJSON`. */
function toJson({ name, declared, sets, readings }: Family, inThreads: Iterable<Value>) {
  const { kind, help, buckets = [] } = declared;
  const header = { name, help, type: kind, aggregator: kind === 'gauge' ? 'first' : 'sum' };
  if (kind === 'gauge') return { ...header, values: readings.map(([labels, value]) => ({ labels, value })) };
  const values = [...sets.values(), ...inThreads];
  return {
    ...header,
    values:
      kind === 'counter'
        ? values.map(([labels, cells, at]) => ({ labels, value: cells[at] ?? 0 }))
        : values.flatMap((value) => toLines(name, value, buckets)),
  };
}

/** The lines of a histogram: the cumulative count of each bucket, the sum and the count. */
function toLines(name: string, [labels, cells, at]: Value, buckets: readonly number[]) {
  let count = 0;
  const upTo = (i: number) => (count += cells[at + i] ?? 0);
  const lines = [...buckets, '+Inf'].map((le, i) => ({
    metricName: `${name}_bucket`,
    labels: { ...labels, le },
    value: upTo(i),
  }));
  return [
    ...lines,
    { metricName: `${name}_sum`, labels, value: cells[at + buckets.length + 1] ?? 0 },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
