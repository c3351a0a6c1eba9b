import { h } from '../h.ts';
import { Loading } from '../parts/elements.ts';
import { useSeveral } from '../parts/hosts.ts';
import { SeriesPlot, type SeriesPlotProps, valueText } from '../parts/plot.ts';
import { lastOf, rateText, sum, useSeries, type Values } from '../parts/series.ts';
import { count, number } from '../parts/text.ts';

const PLOTS: readonly SeriesPlotProps[] = [
  {
    title: 'Received and refused per minute',
    curves: [
      { label: 'Received', of: ['accepted'], tone: 'accent' },
      { label: 'Refused', of: ['refused_4xx', 'refused_5xx'], tone: 'bad' },
    ],
    say: ([accepted = [], refused = []]) =>
      `Received: ${rateText(accepted)}. ${count(sum(refused), 'refusal')} in the last hour.`,
  },
  {
    title: 'Webhook responses per minute',
    curves: [
      { label: '2xx', of: ['attempts_2xx'], tone: 'good' },
      {
        label: 'Other or none',
        of: ['attempts_4xx', 'attempts_5xx', 'attempts_other', 'attempts_none'],
        tone: 'bad',
      },
    ],
    say([good = [], others = []]) {
      const all = sum(good) + sum(others);
      const share = Math.floor((sum(good) / all) * 1000) / 10;
      return all === 0 ? 'No POSTs in the last hour.' : `${count(all, 'POST')} in the last hour, ${share}% successful.`;
    },
  },
  {
    title: 'Waiting, and age of the oldest',
    curves: [
      { label: 'Waiting', of: ['waiting'], tone: 'accent' },
      { label: 'Oldest', of: ['oldest_waiting'], tone: 'wait', right: true },
    ],
    say: ([waiting = [], oldest = []]) => waitingText(waiting, oldest),
  },
];
const NAMES = PLOTS.flatMap(({ curves }) => curves.flatMap(({ of }) => of));

/** The last hour of all hosts: mail received, responses, deliveries waiting. */
export function NowPlots() {
  const loaded = useSeries(NAMES);
  const { data } = loaded;
  return h('section', { 'aria-labelledby': 'last-hour' }, [
    h('h2', { id: 'last-hour' }, useSeveral() ? 'Last hour on all hosts' : 'Last hour on this host'),
    h(Loading, { of: loaded, rows: 4 }),
    data && h('div.plots', [PLOTS.map((plot) => h(SeriesPlot, { key: plot.title, ...plot, data }))]),
  ]);
}

function waitingText(waiting: Values, oldest: Values): string {
  const now = lastOf(waiting);
  if (now === undefined) return 'No data yet.';
  const most = Math.max(...waiting.filter((one) => one !== null));
  const before = most > now ? `; up to ${number(most)} in the last hour` : '';
  // The newest value is the most within the minute.
  if (now === 0) return `None waiting${before}.`;
  return `${number(now)} waiting, oldest ${valueText(lastOf(oldest), 's')}${before}.`;
}
