import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import { DECLARED, type METRICS, type MetricDeclaration } from './metric-list.ts';
import { counterIn, histogramIn, keyOf, type Metrics, placesInThreads, type Reading, widthOf } from './metrics.ts';

/** The numbers as Prometheus reads them. */
export interface Exposition {
  readonly contentType: string;
  /**
   * Everything, as text. Never rejects, and never takes much longer than `SCRAPE_MS`: what cannot be read in time is
   * left out and named.
   */
  text(): Promise<string>;
}

/** How long a scrape waits for a part. Prometheus gives up after 10 s as it comes. */
export const SCRAPE_MS = 2000;
/**
 * Sets of labels of one metric. No list of values is nearly as long; it is the last guard against one that is not
 * closed.
 */
const MOST_SETS = 2000;

type AnyLabels = Readonly<Record<string, string>>;
type Value = readonly [labels: AnyLabels, cells: Float64Array, at: number];
type Reader = () => Reading<keyof typeof METRICS> | Promise<Reading<keyof typeof METRICS>>;

/** One metric with its sets of labels. */
interface Family {
  readonly name: string;
  readonly declared: MetricDeclaration;
  readonly sets: Map<string, Value>;
  readonly readers: Reader[];
  /** What the gauge showed in this scrape. */
  readings: (readonly [AnyLabels, number])[];
}

/**
 * The one file that knows prom-client. Its own counters look their labels up at every step, which costs a microsecond;
 * so numbers are kept in plain cells here and in the memory of our threads. At a scrape they are handed to prom-client
 * as it takes the numbers of cluster workers (`AggregatorRegistry.aggregate`): it adds up what has the same labels and
 * writes the text. `ofProcess`: with its figures of the process under their usual names, which watch the loop and the
 * garbage collector from then on.
 */
export function createPrometheus(
  deps: { readonly clock: Clock },
  options: { readonly ofProcess: boolean },
): Metrics & Exposition {
  const ofProcess = new Registry();
  const families = new Map(DECLARED.map(([name, declared]) => [name, createFamily(name, declared)]));
  const shared: Float64Array[] = [];
  const { places, cells: sharedCells } = placesInThreads();
  let running: Promise<string> | undefined;

  if (options.ofProcess) collectDefaultMetrics({ register: ofProcess });

  function* inThreads(name: string): Generator<Value> {
    for (const place of places)
      if (place.name === name) for (const cells of shared) yield [place.labels, cells, place.at];
  }

  function cellsOf(name: string, labels: AnyLabels = {}): { cells: Float64Array; declared: MetricDeclaration } {
    const family = families.get(name);
    if (!family) throw new Error(`no such metric: ${name}`);
    const { sets, declared } = family;
    const key = keyOf(labels);
    const known = sets.get(key);
    if (known) return { cells: known[1], declared };
    const cells = new Float64Array(widthOf(declared));
    if (sets.size < MOST_SETS) sets.set(key, [labels, cells, 0]);
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
    contentType: ofProcess.contentType,
    // Two that look at one time see the same.
    text: () =>
      (running ??= scrape().finally(() => {
        running = undefined;
      })),
  });
}

/** A counter without labels is there from the start, as 0. */
function createFamily(name: string, declared: MetricDeclaration): Family {
  const sets = new Map<string, Value>();
  if (declared.kind === 'counter' && !declared.labels) sets.set(keyOf(), [{}, new Float64Array(widthOf(declared)), 0]);
  return { name, declared, sets, readers: [], readings: [] };
}

/** Reads every gauge anew; answers the names of those that could not be read. */
async function readGauges(families: readonly Family[], clock: Clock): Promise<string[]> {
  const missing: string[] = [];
  await Promise.all(
    families
      .filter(({ readers }) => readers.length > 0)
      .map(async (family) => {
        const readings = await Promise.all(family.readers.map((read) => inTime(read, clock)));
        if (readings.includes('missing')) missing.push(family.name);
        family.readings = readings.flatMap(toReadings);
      }),
  );
  return missing;
}

/** The reading of a part, or `missing` when it failed or took too long. */
function inTime(read: Reader, clock: Clock): Promise<Awaited<ReturnType<Reader>> | 'missing'> {
  return new Promise((resolve) => {
    const cancel = clock.after(SCRAPE_MS, () => resolve('missing'));
    Promise.resolve()
      .then(read)
      .then(resolve, () => resolve('missing'))
      .finally(cancel);
  });
}

function toReadings(reading: Awaited<ReturnType<typeof inTime>>): Family['readings'] {
  if (reading === undefined || reading === 'missing') return [];
  return typeof reading === 'number' ? [[{}, reading]] : [...reading];
}

/** A metric in the form that `getMetricsAsJSON` of prom-client has. */
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

/** The lines of a histogram: how many values are up to each bound, their sum and their number. */
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
