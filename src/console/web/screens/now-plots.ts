import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import { Loading } from '../parts/elements.ts';
import { Plot, valueText } from '../parts/plot.ts';
import { lastOf, rateText, sum, useSeries, type Values, valuesOf } from '../parts/series.ts';
import { count, number } from '../parts/text.ts';
import type { HostSeries } from '../records.ts';

const REFUSED = ['refused_4xx', 'refused_5xx'];
const NOT_OK = ['attempts_4xx', 'attempts_5xx', 'attempts_other', 'attempts_none'];
const NAMES = ['accepted', ...REFUSED, 'attempts_2xx', ...NOT_OK, 'waiting', 'oldest_waiting'];

/** The last hour of this host: what came in, what was answered, what waits. */
export function NowPlots(): ComponentChildren {
  const loaded = useSeries(NAMES);
  const { data } = loaded;
  return h('section', { 'aria-labelledby': 'last-hour' }, [
    h('h2', { id: 'last-hour' }, 'Last hour on this host'),
    h(Loading, { of: loaded, rows: 4 }),
    data && h('div.plots', [h(TakenIn, { data }), h(Answers, { data }), h(Waiting, { data })]),
  ]);
}

interface Of {
  readonly data: HostSeries;
}

function TakenIn({ data }: Of): ComponentChildren {
  const accepted = valuesOf(data, 'accepted');
  const refused = valuesOf(data, ...REFUSED);
  return h(Plot, {
    title: 'Received and refused per minute',
    sentence: `Received: ${rateText(accepted)}. ${count(sum(refused), 'refusal')} in the last hour.`,
    times: data.times,
    curves: [
      { label: 'Received', unit: '', tone: 'accent', values: accepted },
      { label: 'Refused', unit: '', tone: 'bad', values: refused },
    ],
  });
}

function Answers({ data }: Of): ComponentChildren {
  const good = valuesOf(data, 'attempts_2xx');
  const others = valuesOf(data, ...NOT_OK);
  const all = sum(good) + sum(others);
  const share = Math.floor((sum(good) / all) * 1000) / 10;
  return h(Plot, {
    title: 'Webhook responses per minute',
    sentence:
      all === 0 ? 'No POSTs in the last hour.' : `${count(all, 'POST')} in the last hour, ${share}% successful.`,
    times: data.times,
    curves: [
      { label: '2xx', unit: '', tone: 'good', values: good },
      { label: 'Other or none', unit: '', tone: 'bad', values: others },
    ],
  });
}

function Waiting({ data }: Of): ComponentChildren {
  const waiting = valuesOf(data, 'waiting');
  const oldest = valuesOf(data, 'oldest_waiting');
  return h(Plot, {
    title: 'Waiting, and age of the oldest',
    sentence: waitingText(waiting, oldest),
    times: data.times,
    curves: [
      { label: 'Waiting', unit: '', tone: 'accent', values: waiting },
      { label: 'Oldest', unit: 's', tone: 'wait', values: oldest, right: true },
    ],
  });
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
