import { z } from 'zod';
import { optional, optionalTime } from '../../base/schema.ts';
import { SERIES_NAMES } from '../../journal/series.ts';
import { type HostCall, hostOperation } from './operation.ts';

// The figures of this host over time.

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;
/** Steps shorter than a minute are known for this long. */
const SHORT_S = HOUR_S;
const MINUTE_S = 60;
const MOST_STEPS = 2000;
/** Steps in seconds that are chosen if none is given, and how many points there are then at most. */
const CHOSEN = [10, 60, 120, 300, 600, 1800, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, DAY_S];
const CHOSEN_STEPS = 360;

const series = hostOperation({
  path: '/host/series',
  access: 'host',
  summary: 'Shows figures over time, of the last hour unless another time is given.',
  params: {
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
  },
  returns: z.object({
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
  }),
  async handle({ names, from, to, step: wanted }, call) {
    const now = call.now();
    const end = Math.min(to?.getTime() ?? now, now);
    const begin = from?.getTime() ?? end - HOUR_S * 1000;
    if (begin >= end) throw call.invalid('from', 'Please enter a time before the end, and before now');
    const step = stepOf(wanted, { begin, end, now }, call);
    const plot = await call.host.series.read([...new Set(names)], { from: begin, to: end, step: step * 1000 });
    return {
      step,
      times: plot.times.map((ms) => ms / 1000),
      series: plot.series.map(({ name, kind, unit, values }) => ({ name, kind, unit, values: [...values] })),
    };
  },
});

/** The length of a step in seconds. */
function stepOf(
  wanted: number | undefined,
  { begin, end, now }: { readonly begin: number; readonly end: number; readonly now: number },
  call: Pick<HostCall, 'invalid'>,
): number {
  const length = (end - begin) / 1000;
  const isOld = now - begin > (SHORT_S + MINUTE_S) * 1000;
  if (wanted === undefined)
    return CHOSEN.find((step) => length / step <= CHOSEN_STEPS && (step >= MINUTE_S || !isOld)) ?? DAY_S;
  if (wanted < MINUTE_S && isOld) throw call.invalid('step', 'Steps shorter than a minute are known for an hour');
  if (length / wanted > MOST_STEPS)
    throw call.invalid('step', `There would be more than ${MOST_STEPS} steps; please enter a longer one`);
  return wanted;
}

export const seriesOperations = [series];
