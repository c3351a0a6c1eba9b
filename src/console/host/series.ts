import { z } from 'zod';
import { askAll } from '../../api/hosts/join-hosts.ts';
import { toTime } from '../../api/operations/fields.ts';
import { optional, optionalTime } from '../../base/schema.ts';
import { merged } from '../../journal/minutes.ts';
import { mergeOfHosts, SERIES_NAMES } from '../../journal/series.ts';
import type { LocalCall } from './operation.ts';
import { perHostOperation } from './per-host.ts';

// Figures over time, of one host or of all: sums, or for quantiles and machines the worst value.

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;
/** How long steps shorter than a minute are kept. */
const SHORT_S = HOUR_S;
const MINUTE_S = 60;
const MAX_STEPS = 2000;
/** The default steps in seconds, and the most points with a default step. */
const CHOSEN = [10, 60, 120, 300, 600, 1800, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, DAY_S];
const CHOSEN_STEPS = 360;

const params = {
  names: z.array(z.enum(SERIES_NAMES)).min(1).max(SERIES_NAMES.length),
  from: optionalTime,
  to: optionalTime,
  step: optional(
    z
      .int()
      .min(10)
      .max(DAY_S)
      .refine((step) => step % (step < MINUTE_S ? 10 : MINUTE_S) === 0, 'Please enter 10, 20, 30 or whole minutes'),
  ),
};

const plot = z.object({
  step: z.int(),
  times: z.array(z.int()),
  series: z.array(
    z.object({
      name: z.enum(SERIES_NAMES),
      kind: z.enum(['count', 'level', 'quantile']),
      unit: z.enum(['', 's', 'ms', 'bytes']),
      values: z.array(z.number().nullable()),
    }),
  ),
});
type Plot = z.output<typeof plot>;

/** The requested period, with the default step if none is given. */
function spanOf({ from, to, step }: z.output<z.ZodObject<typeof params>>, call: LocalCall) {
  const now = call.now();
  const end = Math.min(to?.getTime() ?? now, now);
  const begin = from?.getTime() ?? end - HOUR_S * 1000;
  if (begin >= end) throw call.invalid('from', 'Please enter a time before the end, and before now');
  return { begin, end, step: stepOf(step, { begin, end, now }, call) };
}

async function readHere(given: z.output<z.ZodObject<typeof params>>, call: LocalCall): Promise<Plot> {
  const { begin, end, step } = spanOf(given, call);
  const { times, series } = await call.host.series.read([...new Set(given.names)], {
    from: begin,
    to: end,
    step: step * 1000,
  });
  return {
    step,
    times: times.map((ms) => ms / 1000),
    series: series.map(({ name, kind, unit, values }) => ({ name, kind, unit, values: [...values] })),
  };
}

const series = perHostOperation({
  path: '/host/series',
  access: 'host',
  summary: 'Shows figures over time, of the last hour unless another time is given.',
  params,
  returns: plot,
  handle: readHere,
  across: {
    part: plot,
    own: readHere,
    async join(hosts, given, call) {
      // The same steps on all hosts, whose clocks may differ.
      const { begin, step } = spanOf(given, call);
      const [own, ...others] = await askAll(hosts, () => ({ from: toTime(begin), step }));
      return joined(own, others);
    },
  },
});

/** Merges the figures of this host with those of others at the same times. */
function joined(own: Plot | undefined, others: readonly Plot[]): Plot {
  const { step = 0, times = [], series = [] } = own ?? {};
  const indexes = others.map((one) => new Map(one.times.map((time, n) => [time, n])));
  return {
    step,
    times,
    series: series.map((one) => ({
      ...one,
      values: times.map((time, n) =>
        others.reduce((value, other, i) => {
          const values = other.series.find(({ name }) => name === one.name)?.values ?? [];
          return merged(mergeOfHosts(one.name), value, values[indexes[i]?.get(time) ?? -1] ?? null);
        }, one.values[n] ?? null),
      ),
    })),
  };
}

/** The length of a step in seconds. */
function stepOf(
  wanted: number | undefined,
  { begin, end, now }: { readonly begin: number; readonly end: number; readonly now: number },
  call: Pick<LocalCall, 'invalid'>,
): number {
  const length = (end - begin) / 1000;
  const isOld = now - begin > (SHORT_S + MINUTE_S) * 1000;
  if (wanted === undefined)
    return CHOSEN.find((step) => length / step <= CHOSEN_STEPS && (step >= MINUTE_S || !isOld)) ?? DAY_S;
  if (wanted < MINUTE_S && isOld) throw call.invalid('step', 'Steps shorter than a minute are known for an hour');
  if (length / wanted > MAX_STEPS)
    throw call.invalid('step', `There would be more than ${MAX_STEPS} steps; please enter a longer one`);
  return wanted;
}

export const seriesOperations = [series];
