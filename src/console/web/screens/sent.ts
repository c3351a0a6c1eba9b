import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import { Chips } from '../parts/chips.ts';
import { Button, Choice, Loading, type Mark, Notice, State, Time, Title } from '../parts/elements.ts';
import { Parties } from '../parts/list.ts';
import { count, plain, replyText, toApiTime } from '../parts/text.ts';
import { fieldOf, withField } from '../query.ts';
import type { SentMessage, SentState } from '../records.ts';
import { go, linkTo, location, sentLink, withQuery } from '../router.ts';
import { account } from '../session.ts';

const STATES: Readonly<Record<SentState, Mark>> = {
  queued: { icon: 'clock', word: 'Queued', tone: 'wait' },
  sent: { icon: 'check', word: 'Sent', tone: 'good' },
  deferred: { icon: 'clock', word: 'Deferred', tone: 'wait' },
  bounced: { icon: 'cross', word: 'Bounced', tone: 'bad' },
  'soft-bounced': { icon: 'cross', word: 'Soft bounce', tone: 'bad' },
  rejected: { icon: 'refused', word: 'Rejected', tone: 'off' },
  spam: { icon: 'alert', word: 'Complaint', tone: 'bad' },
  unsub: { icon: 'refused', word: 'Unsubscribed', tone: 'off' },
};

export function SentStateMark({ state }: { readonly state: SentState }) {
  return h(State, STATES[state]);
}

/** A time of the messages group as the other groups write it. */
export function toTime(seconds: number): string {
  return toApiTime(seconds * 1000);
}

const DAY_MS = 86_400_000;
const SPANS: readonly (readonly [string, string])[] = [
  ['1', 'Last 24 hours'],
  ['7', 'Last 7 days'],
  ['30', 'Last 30 days'],
  ['90', 'Last 90 days'],
];
const FIRST_ROWS = 50;
const MAX_ROWS = 800;

/** Mail that the account has sent. */
export function SentList() {
  const { query } = location.value;
  const q = query.get('q') ?? '';
  const days = SPANS.some(([id]) => id === query.get('days')) ? Number(query.get('days')) : 7;
  const [limit, setLimit] = useState(FIRST_ROWS);
  const loaded = useLoad(`sent ${account.value?.id} ${days} ${limit} ${q}`, (stop) =>
    call('messages/search', { query: q, limit, date_from: toApiTime(Date.now() - days * DAY_MS) }, stop),
  );
  const { data, loading, again } = loaded;
  return h('div.screen', [
    h(Title, { text: 'Outbound' }, [h(Button, { label: 'Refresh', icon: 'replay', onPress: again })]),
    h(
      Chips<string | undefined>,
      {
        label: 'State',
        chips: [[undefined, 'All'], ...Object.entries(STATES).map(([state, { word }]) => [state, word] as const)],
        chosen: fieldOf(q, 'state'),
        href: (state) => withQuery({ q: withField(q, 'state', state) }),
      },
      [
        h(Choice, {
          label: 'Time range',
          value: String(days),
          options: SPANS,
          onValue: (value) => go(withQuery({ days: value === '7' ? undefined : value }), true),
        }),
      ],
    ),
    h('div', { 'aria-busy': loading }, [
      h(Loading, { of: loaded, rows: 10 }),
      data &&
        (data.length === 0
          ? h(Empty, { q, days })
          : h('ul.rows', [data.map((message) => h(SentRow, { key: message._id, message }))])),
      data !== undefined &&
        data.length === limit &&
        (limit < MAX_ROWS
          ? h('p.more', [h(Button, { label: 'Older', onPress: () => setLimit(limit * 4) })])
          : h('p.faint', 'Search to find older messages.')),
    ]),
  ]);
}

function SentRow({ message }: { readonly message: SentMessage }) {
  const { _id: id, state, sender, email, subject, diag, opens, clicks, ts } = message;
  const seen = [opens > 0 && count(opens, 'open'), clicks > 0 && count(clicks, 'click')].filter(Boolean).join(', ');
  return h('li.mail-row', { 'data-row': id }, [
    h('a', { href: sentLink(id) }, [
      h(SentStateMark, { state }),
      h(Parties, { from: sender, to: email }),
      h('span.subject', [h('bdi', [plain(subject) || '(no subject)'])]),
      h('span.answer', [diag === null ? seen : replyText(diag)]),
      h('span.age', [h(Time, { at: toTime(ts) })]),
    ]),
  ]);
}

function Empty({ q, days }: { readonly q: string; readonly days: number }) {
  if (q.trim() !== '')
    return h(Notice, { title: `No messages of the last ${count(days, 'day')} match this search` }, [
      h('p', [
        days < 90 && [h('a', { href: withQuery({ days: '90' }) }, 'Search 90 days'), ' or '],
        h('a', { href: linkTo('/sent') }, 'show all outbound mail'),
      ]),
    ]);
  const message = {
    from_email: 'you@your-domain.example',
    to: [{ email: 'somebody@example.net' }],
    subject: 'Hello',
    text: 'Hello',
  };
  return h(Notice, { title: `No messages sent in the last ${count(days, 'day')}` }, [
    h('p', 'Send a message with an API key:'),
    h('pre.code', { tabIndex: 0 }, [
      `curl ${window.location.origin}/api/1.0/messages/send.json \\\n  -d ` +
        `'${JSON.stringify({ key: 'YOUR-KEY', message })}'`,
    ]),
    days < 90 && h('p', [h('a', { href: withQuery({ days: '90' }) }, 'Show 90 days')]),
  ]);
}
