import { call } from '../call.ts';
import { type Loaded, useLoad, useRepeat } from '../load.ts';
import type { HostSeries } from '../records.ts';
import { number, toApiTime } from './text.ts';

// Figures of hosts over time, in numbers and words.

const HOUR_S = 3600;
const DAY_S = 86_400;

/** How far back, and how long a step is. */
export const SPANS = {
  hour: { label: 'Hour', length: HOUR_S, step: 60, everyMs: 10_000 },
  day: { label: 'Day', length: DAY_S, step: 600, everyMs: 60_000 },
  month: { label: '30 days', length: 30 * DAY_S, step: 3 * HOUR_S, everyMs: 600_000 },
} as const;

export type SpanName = keyof typeof SPANS;

export type Values = readonly (number | null)[];

/** Reads series of one host, or the sums of all, again and again while the screen is seen. */
export function useSeries(
  names: readonly string[],
  { of = 'hour', host }: { readonly of?: SpanName; readonly host?: string | undefined } = {},
): Loaded<HostSeries> {
  const { length, step, everyMs } = SPANS[of];
  const loaded = useLoad(`series ${host} ${of} ${names}`, (stop) =>
    call('host/series', { host, names, step, from: toApiTime(Date.now() - length * 1000) }, stop),
  );
  return useRepeat(loaded, everyMs);
}

/** The values of a series, or of several added up. */
export function valuesOf({ times, series }: HostSeries, ...names: readonly string[]): Values {
  const found = series.filter(({ name }) => names.includes(name));
  return times.map((_, i) => {
    const known = found.flatMap(({ values }) => values[i] ?? []);
    return known.length === 0 ? null : sum(known);
  });
}

export function sum(values: Values): number {
  return values.reduce<number>((all, one) => all + (one ?? 0), 0);
}

/** The last value that is known. */
export function lastOf(values: Values): number | undefined {
  return values.findLast((one) => one !== null) ?? undefined;
}

/** Minutes that are put together, so that one quiet minute is no event. */
const FEW = 5;

/** How many a minute there are, and whether that is as it was an hour ago. `values` are of minutes. */
export function rateText(values: Values): string {
  // The newest minute is not over.
  const recent = known(values.slice(-FEW - 1, -1)) ?? known(values.slice(-1));
  if (recent === undefined) return 'no data yet';
  const before = values.slice(0, FEW).includes(null) ? undefined : known(values.slice(0, FEW));
  const now = `${shown(recent)} per minute`;
  return before === undefined || (recent === 0 && before === 0) ? now : `${now}, ${comparison(recent, before)}`;
}

/** Few have a decimal. */
const shown = (value: number): string => number(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));

/** The mean of the values that are known. */
function known(values: Values): number | undefined {
  const there = values.filter((one) => one !== null);
  return there.length === 0 ? undefined : sum(there) / there.length;
}

function comparison(recent: number, before: number): string {
  if (before === 0) return 'none an hour ago';
  const ratio = recent / before;
  if (ratio === 0) return `${shown(before)} an hour ago`;
  if (ratio < 0.4) return 'far below the rate an hour ago';
  if (ratio < 0.6) return 'half the rate an hour ago';
  if (ratio < 0.8) return 'below the rate an hour ago';
  if (ratio <= 1.25) return 'same as an hour ago';
  if (ratio < 1.8) return 'above the rate an hour ago';
  if (ratio <= 2.2) return 'twice the rate an hour ago';
  return `${Math.round(ratio)} times the rate an hour ago`;
}
