import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { type Loaded, useCall, useRepeat } from '../load.ts';
import { Chips } from '../parts/chips.ts';
import { Button, Facts, Loading, type Mark, State, Time, Title } from '../parts/elements.ts';
import { HostChoice, HostsOfStore, LoadingOfHost, shownHost, useHosts } from '../parts/hosts.ts';
import { Icon } from '../parts/icons.ts';
import { SeriesPlot, type SeriesPlotProps, valueText } from '../parts/plot.ts';
import { SPANS, type SpanName, useSeries } from '../parts/series.ts';
import { number, plain, shortUrl, span } from '../parts/text.ts';
import type { HostNeed, HostOverview, HostTask } from '../records.ts';
import { linkTo, location, withQuery } from '../router.ts';
import { may, person } from '../session.ts';
import { Checks, LEVELS, Listeners } from './host-checks.ts';

/** Whether a machine is well. */
export function Host() {
  const host = shownHost.value;
  const loaded = useOverview(host);
  const { data: overview } = loaded;
  const hosts = useRepeat(useHosts()).data?.hosts;
  return h('div.screen', [
    h(Title, { text: 'Host' }),
    h(HostParts),
    h(LoadingOfHost, { of: loaded, rows: 4 }),
    overview && h(Overview, { overview }),
    h(HostsOfStore, { hosts }),
    // Another host that does not answer says so once.
    (overview || host === person.value?.hostname) && h(Machine, { key: host }),
  ]);
}

function Machine() {
  return [
    may('host/examine') && h(Checks),
    may('host/listeners') && h(Listeners),
    may('host/series') && h(Figures),
    may('host/tasks') && h(Tasks),
  ];
}

/** How a host is, or all hosts, read again and again. Only operators may ask. */
export function useOverview(host?: string): Loaded<HostOverview> {
  return useRepeat(useCall('host/overview', { host }));
}

const PARTS = [
  ['/host', 'Status', 'host/overview'],
  ['/host/settings', 'Settings', 'host/settings'],
  ['/host/log', 'Log', 'host/log'],
  ['/host/actions', 'Host activity', 'host/actions'],
] as const;

/** The screens of a host, and the choice of the host. */
export function HostParts() {
  return h(HostChips, [h(HostChoice)]);
}

/** The screens of a host. */
export function HostChips({ children }: { readonly children?: ComponentChildren }) {
  const host = location.value.query.get('host') ?? undefined;
  const href = (path: string) => linkTo(path, { host });
  const parts = PARTS.filter(([, , needs]) => may(needs)).map(([path, label]) => [path, label] as const);
  return h(Chips<string>, { label: 'Host', chips: parts, chosen: location.value.path, href }, [children]);
}

function Overview({ overview }: { readonly overview: HostOverview }) {
  const { hostname, version, started_at: startedAt, waiting, oldest_at: oldestAt, dead, needs } = overview;
  return h('section', { 'aria-label': 'Overview' }, [
    h(HealthSentence, overview),
    needs.length > 0 && [
      h('h2', 'Needs attention'),
      h('ul.rows.needs', [needs.map((need, i) => h(NeedRow, { key: `${need.what} ${need.url} ${i}`, need }))]),
    ],
    h(Facts, {
      rows: [
        ['Name', plain(hostname)],
        ['Version', version],
        ['Started', h(Time, { at: startedAt })],
        ['Waiting', [number(waiting), oldestAt !== null && [', oldest ', h(Time, { at: oldestAt })]]],
        ['Failed', number(dead)],
      ],
    }),
  ]);
}

/** Whether mail is taken, in the server's words. */
export function HealthSentence({ state, text }: Pick<HostOverview, 'state' | 'text'>) {
  const { tone } = LEVELS[state];
  return h('p', { class: `health ${tone}` }, [h(Icon, { name: state === 'ok' ? 'check' : 'alert' }), plain(text)]);
}

/** The screen with the details: null if it is the current one. */
function linkOfNeed({
  what,
  account,
  url,
  host = location.value.query.get('host') ?? undefined,
}: HostNeed): string | null {
  if (what === 'endpoint' && url !== null) return linkTo('/endpoint', { url, account: account?.id });
  if (what === 'log') return linkTo('/host/log', { host, level: 'error' });
  return location.value.path === '/host' ? null : linkTo('/host', what === 'host' ? {} : { host });
}

/** Items that need the attention of an operator. */
export function NeedRow({ need }: { readonly need: HostNeed }) {
  const { level, text, account, url, since, what, host } = need;
  const href = linkOfNeed(need);
  const cells = [
    h(State, LEVELS[level]),
    h('span.url', [
      url === null
        ? [WHAT[what], host !== undefined && ` (${plain(host)})`]
        : [shortUrl(url), account !== null && ` (${plain(account.name)})`],
    ]),
    h('span.sentence', { dir: 'auto' }, plain(text)),
    h('span.waiting', [since !== null && h(Time, { at: since })]),
  ];
  return h('li', [href === null ? h('div.cells', [cells]) : h('a', { href }, [cells])]);
}

const WHAT: Readonly<Record<HostNeed['what'], string>> = {
  host: 'Host',
  listener: 'Listener',
  queue: 'Queue',
  routes: 'Routes',
  store: 'Store',
  certificate: 'Certificate',
  endpoint: 'Endpoint',
  task: 'Task',
  log: 'Log',
};

/** A plot of one series, and the sentence for its last and its worst value. */
const figure = (name: string, title: string, text: (last: string, worst: string) => string): SeriesPlotProps => ({
  title,
  curves: [{ label: title, of: [name], tone: 'accent' }],
  say([values = []], unit) {
    const known = values.filter((one) => one !== null);
    const last = known.at(-1);
    const worst = name === 'disk_free' ? Math.min(...known) : Math.max(...known);
    return last === undefined ? 'No data for this period.' : text(valueText(last, unit), valueText(worst, unit));
  },
});

const FIGURES = [
  figure('commit_p95', 'Queue commits', (last, worst) => `p95 ${last} now, ${worst} at worst.`),
  figure('dns_p95', 'DNS lookups', (last, worst) => `p95 ${last} now, ${worst} at worst.`),
  figure('disk_free', 'Free disk', (last, worst) => `${last} free on the disk of the queue, lowest ${worst}.`),
  figure('memory', 'Memory', (last, worst) => `${last} in use, highest ${worst}.`),
  figure('loop_lag', 'Event loop delay', (last, worst) => `${last} now, ${worst} at worst.`),
];

const isSpan = (name: string | null): name is SpanName => name !== null && Object.hasOwn(SPANS, name);

/** How fast it is and how much room it has. */
function Figures() {
  const wanted = location.value.query.get('span');
  const chosen = isSpan(wanted) ? wanted : 'hour';
  const loaded = useSeries(
    FIGURES.flatMap(({ curves }) => curves.flatMap(({ of }) => of)),
    { of: chosen, host: shownHost.value },
  );
  const { data } = loaded;
  return h('section', { 'aria-labelledby': 'figures' }, [
    h('div.heading', [
      h('h2', { id: 'figures' }, 'Performance'),
      h(Chips<string>, {
        label: 'Time range',
        chips: Object.entries(SPANS).map(([name, { label }]) => [name, label] as const),
        chosen,
        href: (name) => withQuery({ span: name === 'hour' ? undefined : name }),
      }),
    ]),
    h(Loading, { of: loaded, rows: 4 }),
    data && h('div.plots', [FIGURES.map((plot) => h(SeriesPlot, { key: `${chosen} ${plot.title}`, ...plot, data }))]),
  ]);
}

const RESULTS: Readonly<Record<NonNullable<HostTask['last_result']>, Mark>> = {
  done: { icon: 'check', word: 'Done', tone: 'good' },
  failed: { icon: 'cross', word: 'Failed', tone: 'bad' },
  skipped: { icon: 'pause', word: 'Skipped', tone: 'off' },
  elsewhere: { icon: 'host', word: 'On another host', tone: 'off' },
};

/** The scheduled tasks of the host. */
function Tasks() {
  const loaded = useRepeat(useCall('host/tasks', { host: shownHost.value }));
  const { data, again } = loaded;
  return h('section', { 'aria-labelledby': 'tasks' }, [
    h('h2', { id: 'tasks' }, 'Tasks'),
    h('p.faint', [
      'Schedules are cron expressions in UTC: the settings ',
      h('code', 'tasks.*'),
      ', which docs/configuration.md describes.',
    ]),
    h(Loading, { of: loaded, rows: 6 }),
    data && h('ul.rows.columns.tasks', [data.tasks.map((task) => h(TaskRow, { key: task.name, task, again }))]),
  ]);
}

function TaskRow({ task, again }: { readonly task: HostTask; again(): void }) {
  const { name, schedule, running, last_at: lastAt, last_ms: lastMs, last_result: result, last_text: text } = task;
  const [asked, setAsked] = useState(false);
  const run = async () => {
    await call('host/run-task', { host: shownHost.value, task: name });
    setAsked(true);
    again();
  };
  return h('li', { 'data-row': name }, [
    running
      ? h(State, { icon: 'clock', word: 'Running', tone: 'wait' })
      : result === null
        ? h(State, { icon: 'dot', word: 'Not run yet', tone: 'off' })
        : h(State, RESULTS[result]),
    h('span.name', name),
    h('span.sentence', [
      lastAt !== null && [
        h(Time, { at: lastAt }),
        lastMs !== null && `, took ${span(lastMs)}`,
        text !== '' && `: ${plain(text)}`,
      ],
    ]),
    h('span.faint.when', [
      task.next_at !== null && ['next ', h(Time, { at: task.next_at })],
      ' (',
      h('code', schedule),
      task.per_host ? ')' : ', on one host)',
    ]),
    may('host/run-task') &&
      h('span.buttons', [
        h(Button, { label: 'Run now', title: `Run ${name} now`, disabled: running, onPress: run }),
        asked && h('span.hidden', { role: 'status' }, `${name} was started`),
      ]),
  ]);
}
