import { useState } from 'preact/hooks';
import { h } from '../h.ts';
import { useCall, useRepeat } from '../load.ts';
import { Button, Choice, Loading, Notice, State, Time, Title } from '../parts/elements.ts';
import { useSeveral } from '../parts/hosts.ts';
import { WAITS_FOR } from '../parts/states.ts';
import { age, capital, count, number, plain, relative, shortUrl, now as time, toMs } from '../parts/text.ts';
import { withField } from '../query.ts';
import type { Waiting, WaitingQueue } from '../records.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { QueueChange } from './queue-change.ts';

const BY = [
  ['endpoint', 'By endpoint'],
  ['destination', 'By destination'],
  ['account', 'By account'],
] as const;

/** Waiting mail of all hosts, by target and age. For operators. */
export function Queue() {
  const chosen = location.value.query.get('by');
  const by = BY.find(([name]) => name === chosen)?.[0] ?? 'endpoint';
  const loaded = useRepeat(useCall('host/queue', { by }));
  const [changing, setChanging] = useState<string>();
  const { data, again } = loaded;
  return h('div.screen', [
    h(Title, { text: 'Queue' }, [
      h('span.buttons', [
        h(Choice, {
          label: 'Group by',
          value: by,
          options: BY,
          onValue: (value) => go(withQuery({ by: value === 'endpoint' ? undefined : value }), true),
        }),
        h(Button, { label: 'Change by filter\u2026', onPress: () => setChanging('') }),
      ]),
    ]),
    h(Loading, { of: loaded, rows: 6 }),
    data && h(Content, { queue: data, onChange: setChanging }),
    changing !== undefined &&
      h(QueueChange, {
        query: changing,
        onClose: () => {
          setChanging(undefined);
          again();
        },
      }),
  ]);
}

function Content({ queue, onChange }: { readonly queue: WaitingQueue; onChange(query: string): void }) {
  const { waiting, oldest_at: oldestAt, rows, left_out: leftOut, preparing } = queue;
  const isSeveral = useSeveral();
  return h('div.pane', [
    waiting === 0
      ? h(Notice, { icon: 'check', tone: 'good', title: 'The queue is empty' })
      : h('p.sentence', [
          `${count(waiting, 'delivery', 'deliveries')} waiting${isSeveral ? ' on all hosts' : ''}`,
          oldestAt !== null && [', oldest ', h(Time, { at: oldestAt })],
          '.',
        ]),
    rows.length > 0 && h(Ages, { queue, onChange }),
    leftOut > 0 && h('p.faint', `and ${count(leftOut, 'more row')} with fewer deliveries`),
    preparing.total > 0 &&
      h('section', { 'aria-labelledby': 'preparing' }, [
        h('h2', { id: 'preparing' }, 'In preparation'),
        h('ul.rows', [
          preparing.by.map(({ waits_for: waitsFor, count: many, oldest_at: oldest }) =>
            h('li', { key: waitsFor }, [
              h('p', [`${number(many)}: ${WAITS_FOR[waitsFor]}, oldest started `, h(Time, { at: oldest })]),
            ]),
          ),
        ]),
      ]),
  ]);
}

/** Waiting mail by age in minutes, as `qshape` prints it. */
function Ages({ queue: { ages, rows }, onChange }: { readonly queue: WaitingQueue; onChange(query: string): void }) {
  const spans = ages.map((age, i) => `${ages[i - 1] ?? 0}\u2013${age}`);
  const figures = ['Waiting', ...spans.map((one) => `${one} min`), `${ages.at(-1)}+ min`, 'Later'];
  const columns = ['Destination', 'Account', 'State', ...figures, ''];
  return h('div.wide', { tabIndex: 0, role: 'region', 'aria-label': 'Waiting deliveries by age' }, [
    h('table.ages', [
      h('thead', [
        h('tr', [
          columns.map((name) =>
            name === ''
              ? h('td', { key: name })
              : h('th', { key: name, scope: 'col', title: name === 'Later' ? 'Scheduled for later' : undefined }, name),
          ),
        ]),
      ]),
      h('tbody', [rows.map((row) => h(Row, { key: `${row.account?.id} ${row.url}`, row, figures, onChange }))]),
    ]),
  ]);
}

function Row({
  row,
  figures,
  onChange,
}: {
  readonly row: Waiting;
  /** The names of the columns with figures, which a telephone shows beside each. */
  readonly figures: readonly string[];
  onChange(query: string): void;
}) {
  const { account, url, waiting, ages, later } = row;
  return h('tr', { 'data-row': url ?? account?.id }, [
    h('th', { scope: 'row' }, [h(Name, { row })]),
    h('td', [account === null ? 'All' : h('bdi', plain(account.name))]),
    h('td', [h(RowState, { row })]),
    [waiting, ...ages, later].map((many, i) =>
      h('td', { key: i, class: many === 0 ? 'figure none' : 'figure', 'data-name': figures[i] }, number(many)),
    ),
    h('td', [h(Button, { label: 'Change\u2026', kind: 'quiet', onPress: () => onChange(queryOf(row)) })]),
  ]);
}

/** Webhooks have a screen of their own, which stands in the account. */
function Name({ row: { account, url, kind } }: { readonly row: Waiting }) {
  if (url === null) return h('bdi', plain(account?.name ?? ''));
  if (kind === 'outbound' || kind === 'return') return `${url.replace(/^smtp:\/\//, '')} (SMTP)`;
  if (account === null) return shortUrl(url);
  return h('a', { href: linkTo('/endpoint', { account: account.id, url }) }, shortUrl(url));
}

function RowState({ row }: { readonly row: Waiting }) {
  const { breaker, parked, down_since: since, paused_until: pausedUntil } = row;
  if (pausedUntil !== null)
    return h(State, { icon: 'pause', word: `Paused, resumes ${relative(toMs(pausedUntil), time.value)}`, tone: 'off' });
  if (breaker === null) return null;
  if (breaker === 'up' && parked > 0) return h(State, { icon: 'alert', word: 'Failing', tone: 'wait' });
  if (breaker === 'up') return h(State, { icon: 'check', word: 'Up', tone: 'good' });
  return h(State, {
    icon: 'cross',
    word: `${capital(breaker)}${since === null ? '' : ` for ${age(toMs(since), time.value)}`}`,
    tone: 'bad',
  });
}

/** The query that means the deliveries of a row. */
function queryOf({ account, url }: Waiting): string {
  return withField(withField('', 'account', account?.id), 'url', url ?? undefined);
}
