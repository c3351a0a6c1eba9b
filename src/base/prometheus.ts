import {
  collectDefaultMetrics,
  Counter as PromCounter,
  Gauge as PromGauge,
  Histogram as PromHistogram,
  Registry,
} from 'prom-client';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import { DECLARED, type Declared, type METRICS } from './metric-list.ts';
import { counterIn, histogramIn, keyOf, type Metrics, placesInThreads, type Reading, widthOf } from './metrics.ts';

/** The numbers as Prometheus reads them. */
export interface Exposition {
  readonly contentType: string;
  /** Everything, as text. Never rejects, and never takes much longer than `SCRAPE_MS`: what cannot be read in time is left out and named. */
  text(): Promise<string>;
}

/** How long a scrape waits for a part. Prometheus gives up after 10 s as it comes. */
export const SCRAPE_MS = 2000;
/** Sets of labels of one metric. No list of values is nearly as long; it is the last guard against one that is not closed. */
const MOST_SETS = 2000;

type AnyLabels = Readonly<Record<string, string>>;
type Value = readonly [labels: AnyLabels, cells: Float64Array, at: number];
type Reader = () => Reading<keyof typeof METRICS> | Promise<Reading<keyof typeof METRICS>>;

/** One metric with its sets of labels. */
interface Family {
  readonly name: string;
  readonly declared: Declared;
  readonly sets: Map<string, Value>;
  readonly readers: Reader[];
  /** What the gauge showed in this scrape. */
  readings: (readonly [AnyLabels, number])[];
}

/**
 * The one file that knows prom-client. Its own counters look their labels up at every step, which costs a microsecond; so numbers
 * are kept in plain cells here, and prom-client gets them when somebody looks. `ofProcess`: with its figures of the process under
 * their usual names, which watch the loop and the garbage collector from then on.
 */
export function createPrometheus(
  deps: { readonly clock: Clock },
  options: { readonly ofProcess: boolean },
): Metrics & Exposition {
  const registry = new Registry();
  const families = new Map(DECLARED.map(([name, declared]) => [name, createFamily(name, declared)]));
  const shared: Float64Array[] = [];
  const { places, cells: sharedCells } = placesInThreads();
  let running: Promise<string> | undefined;

  for (const family of families.values())
    register(family, () => [...family.sets.values(), ...inThreads(family.name)], registry);
  if (options.ofProcess) collectDefaultMetrics({ register: registry });

  function* inThreads(name: string): Generator<Value> {
    for (const place of places)
      if (place.name === name) for (const cells of shared) yield [place.labels, cells, place.at];
  }

  function cellsOf(name: string, labels: AnyLabels = {}): { cells: Float64Array; declared: Declared } {
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
    return registry.metrics();
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
    contentType: registry.contentType,
    // Two that look at one time see the same.
    text: () =>
      (running ??= scrape().finally(() => {
        running = undefined;
      })),
  });
}

function createFamily(name: string, declared: Declared): Family {
  return { name, declared, sets: new Map(), readers: [], readings: [] };
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

function register(family: Family, values: () => Iterable<Value>, registry: Registry): void {
  const {
    name,
    declared: { kind, help, labels = {} },
  } = family;
  const config = { name, help, labelNames: Object.keys(labels), registers: [registry] };
  if (kind === 'histogram') registry.registerMetric(new Cells(family, values));
  else if (kind === 'counter')
    new PromCounter({
      ...config,
      collect() {
        this.reset();
        for (const [set, cells, at] of values()) this.inc({ ...set }, cells[at] ?? 0);
      },
    });
  else
    new PromGauge({
      ...config,
      collect() {
        this.reset();
        this.remove({}); // one without labels is 0 after a reset, which would be a reading
        for (const [set, value] of family.readings) this.set({ ...set }, value);
      },
    });
}

/** prom-client has no way to fill a histogram but value by value; so this one answers for itself. */
class Cells extends PromHistogram {
  readonly #family: Family;
  readonly #values: () => Iterable<Value>;

  constructor(family: Family, values: () => Iterable<Value>) {
    const {
      name,
      declared: { help, labels = {}, buckets = [] },
    } = family;
    super({ name, help, labelNames: Object.keys(labels), buckets: [...buckets], registers: [] });
    this.#family = family;
    this.#values = values;
  }

  /** What the registry asks for first; prom-client's types do not show it. */
  async getForPromString() {
    const {
      name,
      declared: { help, buckets = [] },
    } = this.#family;
    const sets = Map.groupBy(this.#values(), ([labels]) => keyOf(labels));
    const values = [...sets.values()].flatMap((same) =>
      toLines(name, same[0]?.[0] ?? {}, sum(same, buckets.length + 2), buckets),
    );
    return { name, help, type: 'histogram', values };
  }
}

/** What was counted with the same labels here and in threads. */
function sum(same: readonly Value[], width: number): number[] {
  return Array.from({ length: width }, (_, i) => same.reduce((all, [, cells, at]) => all + (cells[at + i] ?? 0), 0));
}

function toLines(name: string, labels: AnyLabels, cells: readonly number[], buckets: readonly number[]) {
  let count = 0;
  const upTo = (i: number) => (count += cells[i] ?? 0);
  const lines = [...buckets, '+Inf'].map((le, i) => ({
    metricName: `${name}_bucket`,
    labels: { ...labels, le },
    value: upTo(i),
  }));
  return [
    ...lines,
    { metricName: `${name}_sum`, labels, value: cells[buckets.length + 1] ?? 0 },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
