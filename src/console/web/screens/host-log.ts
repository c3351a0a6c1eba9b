import { call } from '../call.ts';
import { h } from '../h.ts';
import { ofOneHost, usePages } from '../load.ts';
import { Chips, CountedFilters } from '../parts/chips.ts';
import { Button, Notice, State, Time, Title } from '../parts/elements.ts';
import { LoadingOfHost, shownHost } from '../parts/hosts.ts';
import { plain } from '../parts/text.ts';
import type { HostLogLine, HostLog as Logged } from '../records.ts';
import { location, withQuery } from '../router.ts';
import { HostParts } from './host.ts';

const PAGE = 50;
const LEVELS = [
  [undefined, 'Warnings and errors'],
  ['error', 'Errors'],
] as const;

/** The last warnings and errors of the log, and how often each event was logged. */
export function HostLog() {
  const level = location.value.query.get('level') === 'error' ? 'error' : undefined;
  const event = location.value.query.get('event') ?? undefined;
  const host = shownHost.value;
  const loaded = usePages(`host log ${host} ${level} ${event}`, 'lines', (before, stop) =>
    call('host/log', { host, limit: PAGE, level, event, before: ofOneHost(before) }, stop),
  );
  const { data, again, more } = loaded;
  return h('div.screen', [
    h(Title, { text: 'Log' }, [h(Button, { label: 'Refresh', icon: 'replay', onPress: again })]),
    h(HostParts),
    h('p.faint', ['The last 500 warnings and errors since startup, at most 100 per event.']),
    h(Chips<'error' | undefined>, {
      label: 'Level',
      chips: LEVELS,
      chosen: level,
      href: (name) => withQuery({ level: name }),
    }),
    h(LoadingOfHost, { of: loaded, rows: 8 }),
    data && h(Events, { events: data.events, chosen: event }),
    data &&
      (data.lines.length === 0
        ? h(Empty, { filtered: level !== undefined || event !== undefined })
        : h('ul.rows.columns.log', [data.lines.map((line) => h(LineRow, { key: line.n, line }))])),
    more && h('p.more', [h(Button, { label: 'Older', onPress: more })]),
  ]);
}

/** Counts by event; each is a filter. */
function Events({ events, chosen }: { readonly events: Logged['events']; readonly chosen: string | undefined }) {
  const rows = events.map(({ event, level, count, last_at: lastAt }) => ({
    key: `${event} ${level}`,
    name: event,
    count,
    note: h('span.faint', [level === 'error' ? 'error, last ' : 'warning, last ', h(Time, { at: lastAt })]),
    isChosen: chosen === event,
    href: withQuery({ event: chosen === event ? undefined : event }),
  }));
  return h(CountedFilters, { label: 'Events', rows });
}

function LineRow({ line: { at, level, event, fields } }: { readonly line: HostLogLine }) {
  return h('li', [
    level === 'error'
      ? h(State, { icon: 'cross', word: 'Error', tone: 'bad' })
      : h(State, { icon: 'alert', word: 'Warning', tone: 'wait' }),
    h('span.name', event),
    h('span.fields', { dir: 'auto' }, [
      Object.entries(fields).map(([name, value]) =>
        h('span', { key: name }, [h('span.faint', `${plain(name)} `), fieldText(value)]),
      ),
    ]),
    h('span.faint.age', [h(Time, { at })]),
  ]);
}

const LONGEST_FIELD = 2_000;

function fieldText(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return plain(text.length > LONGEST_FIELD ? `${text.slice(0, LONGEST_FIELD)}\u2026` : text);
}

function Empty({ filtered }: { readonly filtered: boolean }) {
  if (!filtered) return h(Notice, { icon: 'check', tone: 'good', title: 'No warnings or errors since startup' });
  return h(Notice, { title: 'No log lines match' }, [
    h('p', [h('a', { href: withQuery({ level: undefined, event: undefined }) }, 'Show all lines')]),
  ]);
}
