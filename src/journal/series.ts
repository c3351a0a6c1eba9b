import { createLoop, HOUR_MS, MINUTE_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { METRICS } from '../base/metric-list.ts';
import type { Figures } from '../base/prometheus.ts';
import { namesOf } from '../base/tables.ts';
import type { Tools } from '../base/tools.ts';
import type { AskJournal } from './history.ts';
import { type Merge, merged, mergeSamples, type PlotSpan } from './minutes.ts';
import type { Notes } from './types.ts';

// The figures of this host over time: every ten seconds in memory for an hour, every minute in the journal for a month.
// They are read from the metrics, so nothing is counted twice.

/** count: a number within a step · level: a value at a time · quantile: of the measurements within a step. */
type Definition = { readonly unit: Unit } & (
  | { readonly kind: 'count'; read(figures: Figures): number }
  | { readonly kind: 'level'; readonly worst: 'most' | 'least'; read(now: Now): Promise<number | undefined> }
  | {
      readonly kind: 'quantile';
      readonly share: number;
      readonly bounds: readonly number[];
      read(figures: Figures): readonly number[];
    }
);
type Unit = '' | 's' | 'ms' | 'bytes';

/** The source of levels, read once for each sample. */
interface Now {
  readonly figures: Figures;
  readonly process: Awaited<ReturnType<Figures['process']>>;
}

type Labels = Readonly<Record<string, string>>;
const isPost = (labels: Labels) => labels.class === 'inbound' || labels.class === 'events';

const counter = (...of: Parameters<Figures['count']>): Definition => ({
  kind: 'count',
  unit: '',
  read: ({ count }) => count(...of),
});
const refusals = (first: string) => counter('postern_smtp_refusals_total', ({ code = '' }) => code.startsWith(first));
const posts = (...codes: readonly string[]) =>
  counter('postern_attempts_total', (one) => isPost(one) && codes.includes(one.code ?? ''));
const sending = (...results: readonly string[]) =>
  counter('postern_sending_results_total', ({ result = '' }) => results.includes(result));
const quantileOf = (share: number, ...of: Parameters<Figures['buckets']>): Definition => ({
  kind: 'quantile',
  unit: 'ms',
  share,
  bounds: METRICS[of[0]].buckets,
  read: ({ buckets }) => buckets(...of),
});
const gauge = (
  name: Parameters<Figures['level']>[0],
  unit: Unit = '',
  worst: 'most' | 'least' = 'most',
): Definition => ({
  kind: 'level',
  unit,
  worst,
  read: async ({ figures }) => sumOf(await figures.level(name)),
});

const ofProcess = (name: 'memory' | 'lag', unit: Unit): Definition => ({
  kind: 'level',
  unit,
  worst: 'most',
  read: async ({ process }) => process?.[name],
});

/** All series. A new series is null for the time before it was added. */
const SERIES = {
  accepted: counter('postern_messages_accepted_total'),
  refused_4xx: refusals('4'),
  refused_5xx: refusals('5'),
  sessions: gauge('postern_smtp_sessions_active'),
  waiting: gauge('postern_spool_waiting'),
  oldest_waiting: gauge('postern_spool_oldest_waiting_seconds', 's'),
  attempts_2xx: posts('2xx'),
  attempts_4xx: posts('4xx'),
  attempts_5xx: posts('5xx'),
  attempts_other: posts('3xx', 'other'),
  attempts_none: posts('none'),
  attempt_p50: quantileOf(0.5, 'postern_attempt_seconds', isPost),
  attempt_p95: quantileOf(0.95, 'postern_attempt_seconds', isPost),
  given_up: counter('postern_dead_letters_total', isPost),
  submitted: counter('postern_submissions_total'),
  sent: sending('send'),
  deferred: sending('deferral'),
  bounced: sending('hard_bounce', 'soft_bounce'),
  commit_p95: quantileOf(0.95, 'postern_spool_commit_seconds'),
  dns_failures: counter('postern_dns_questions_total', ({ result = '' }) => DNS_FAILURES.includes(result)),
  dns_p95: quantileOf(0.95, 'postern_dns_seconds'),
  disk_free: gauge('postern_spool_disk_free_bytes', 'bytes', 'least'),
  memory: ofProcess('memory', 'bytes'),
  loop_lag: ofProcess('lag', 'ms'),
} as const;

const DNS_FAILURES: readonly string[] = ['timeout', 'servfail', 'refused', 'malformed', 'unreachable'];

export type SeriesName = keyof typeof SERIES;
export const SERIES_NAMES = namesOf(SERIES);

const SAMPLE_MS = 10_000;
const RING = HOUR_MS / SAMPLE_MS;
/** Minutes that are read from the journal in one query, which takes a few milliseconds. */
const MAX_MINUTES = 3000;

type Values = Readonly<Partial<Record<SeriesName, number | null>>>;

/** Counts and measurements up to a moment. */
type Totals = ReadonlyMap<SeriesName, number | readonly number[]>;

interface SeriesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly figures: Figures;
  readonly notes: Notes;
  readonly ask: AskJournal;
}

export type Series = ReturnType<typeof createSeries>;

/** Samples the figures once started. */
export function createSeries({ figures, notes, ask, clock, log }: SeriesDeps) {
  const ring: { readonly at: number; readonly values: Values }[] = [];
  let last: Totals = new Map();
  /** The current minute: its totals at the beginning, and its samples so far. */
  let minute: { readonly at: number; readonly begun: Totals; values: Values } | undefined;

  async function sample(): Promise<void> {
    const at = Math.floor(clock.now() / SAMPLE_MS) * SAMPLE_MS - SAMPLE_MS;
    const now = { figures, process: await figures.process() };
    const levels = await readLevels(now);
    const start = Math.floor(at / MINUTE_MS) * MINUTE_MS;
    // Usually a minute ends with its last sample; not if that was late, or the clock was set.
    if (minute?.at !== start) write();
    const begun = last;
    last = readTotals(figures);
    const values = { ...levels, ...between(begun, last) };
    // After the clock was set back, new samples replace earlier ones.
    while ((ring.at(-1)?.at ?? -Infinity) >= at) ring.pop();
    ring.push({ at, values });
    if (ring.length > RING) ring.shift();
    minute ??= { at: start, begun, values: {} };
    minute.values = mergeValues(minute.values, levels);
    if (at + SAMPLE_MS === start + MINUTE_MS) write();
  }

  /** The values of the minute so far. */
  const valuesOf = (one: NonNullable<typeof minute>): Values => ({ ...one.values, ...between(one.begun, last) });

  function write(): void {
    if (!minute) return;
    const known = Object.entries(valuesOf(minute)).filter(([, value]) => value !== null);
    notes.note({ what: 'minute', at: minute.at, figures: JSON.stringify(Object.fromEntries(known)) });
    minute = undefined;
  }

  const pause = () => SAMPLE_MS - (clock.now() % SAMPLE_MS);
  const loop = createLoop(clock, async () => {
    await sample().catch((error: unknown) => log.error('journal.fault', { error }));
    return pause();
  });

  async function fromJournal(names: readonly SeriesName[], { from, to, step }: PlotSpan): Promise<(number | null)[][]> {
    const wanted = wantedOf(names);
    const window = Math.max(step, Math.floor((MAX_MINUTES * MINUTE_MS) / step) * step);
    const parts: (number | null)[][][] = [];
    for (let at = from; at < to; at += window)
      parts.push(await ask('minutes', wanted, at, Math.min(to, at + window), step));
    const whole = names.map((_, i) => parts.flatMap((part) => part[i] ?? []));
    const current = minute ? [{ at: minute.at, values: valuesOf(minute) }] : [];
    const present = mergeSamples(current, wanted, { from, to, step });
    return wanted.map(({ merge }, i) =>
      (whole[i] ?? []).map((known, n) => merged(merge, known, present[i]?.[n] ?? null)),
    );
  }

  return frozen({
    async start(): Promise<void> {
      await figures.process(); // the lag begins now
      last = readTotals(figures);
      loop.startAfter(pause());
    },
    stop: loop.stop,
    /**
     * The steps that begin between these times, in milliseconds since 1970; null where a value is unknown. Steps
     * shorter than a minute are known for an hour, others are multiples of a minute. Rejects with `JournalAway`.
     */
    async read(names: readonly SeriesName[], { from, to, step }: PlotSpan) {
      const span = { from: Math.floor(from / step) * step, to: Math.ceil(to / step) * step, step };
      const steps = await (step < MINUTE_MS ? mergeSamples(ring, wantedOf(names), span) : fromJournal(names, span));
      return {
        times: Array.from({ length: Math.ceil((span.to - span.from) / step) }, (_, n) => span.from + n * step),
        series: names.map((name, i) => ({
          name,
          kind: SERIES[name].kind,
          unit: SERIES[name].unit,
          values: steps[i] ?? [],
        })),
      };
    },
  });
}

/** Levels that are summed over hosts; for others, the worst is shown. */
const SUMS: readonly SeriesName[] = ['sessions', 'waiting'];

/** How the values of several hosts are merged. For quantiles, the highest counts. */
export const mergeOfHosts = (name: SeriesName): Merge => (SUMS.includes(name) ? 'sum' : mergeOf(name));

function mergeOf(name: SeriesName): Merge {
  const defined = SERIES[name];
  if (defined.kind === 'count') return 'sum';
  return defined.kind === 'level' ? defined.worst : 'most';
}

const wantedOf = (names: readonly SeriesName[]) => names.map((name) => ({ name, merge: mergeOf(name) }));

async function readLevels(now: Now): Promise<Values> {
  const levels: Partial<Record<SeriesName, number | null>> = {};
  await Promise.all(
    SERIES_NAMES.map(async (name) => {
      const defined = SERIES[name];
      if (defined.kind === 'level') levels[name] = (await defined.read(now)) ?? null;
    }),
  );
  return levels;
}

function mergeValues(known: Values, more: Values): Values {
  const all: Partial<Record<SeriesName, number | null>> = { ...known };
  for (const name of SERIES_NAMES)
    if (name in more) all[name] = merged(mergeOf(name), known[name] ?? null, more[name] ?? null);
  return all;
}

function readTotals(figures: Figures): Totals {
  const totals = new Map<SeriesName, number | readonly number[]>();
  for (const name of SERIES_NAMES) {
    const defined = SERIES[name];
    if (defined.kind !== 'level') totals.set(name, defined.read(figures));
  }
  return totals;
}

/** Counts and measurements between two moments. */
function between(begun: Totals, ended: Totals): Values {
  const values: Partial<Record<SeriesName, number | null>> = {};
  for (const [name, after] of ended) {
    const before = begun.get(name);
    const defined = SERIES[name];
    if (typeof after === 'number') values[name] = typeof before === 'number' ? after - before : null;
    else if (defined.kind === 'quantile' && Array.isArray(before))
      values[name] = quantile(
        after.map((count, i) => count - Number(before[i])),
        defined,
      );
  }
  return values;
}

/** In milliseconds, evenly spread within its bucket; null if nothing was measured. */
function quantile(
  counts: readonly number[],
  { share, bounds }: { readonly share: number; readonly bounds: readonly number[] },
): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let below = 0;
  for (const [i, count] of counts.entries()) {
    const [least, most] = [bounds[i - 1] ?? 0, bounds[i] ?? bounds.at(-1) ?? 0];
    if (below + count >= share * total)
      return round(1000 * (least + ((most - least) * (share * total - below)) / count));
    below += count;
  }
  return null;
}

/** Rounds to three digits, the precision of the measurement. */
const round = (ms: number): number => Number(ms.toPrecision(3));

function sumOf(readings: Awaited<ReturnType<Figures['level']>>): number | undefined {
  if (!readings || readings.length === 0) return undefined;
  return readings.reduce((sum, [, value]) => sum + value, 0);
}
