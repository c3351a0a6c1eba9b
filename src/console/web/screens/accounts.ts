import { useEffect, useRef } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { ofOneHost, usePages } from '../load.ts';
import { Chips } from '../parts/chips.ts';
import { Button, Loading, Notice, Time, Title } from '../parts/elements.ts';
import { useSeveral } from '../parts/hosts.ts';
import { number, plain } from '../parts/text.ts';
import type { HostAccount } from '../records.ts';
import { linkTo, location } from '../router.ts';
import { account, person, readSession } from '../session.ts';
import { People, Sessions } from './people.ts';

const VIEWS = [
  ['', 'Accounts'],
  ['people', 'People'],
  ['sessions', 'Sessions'],
] as const;

/** Whose mail this service has, who may see it, and who does. */
export function Accounts() {
  const shown = location.value.query.get('show') ?? '';
  return h('div.screen', [
    h(Title, { text: 'Accounts' }),
    h(Chips<string>, { label: 'Show', chips: VIEWS, chosen: shown, href: (show) => linkTo('/accounts', { show }) }),
    shown === 'people' ? h(People) : shown === 'sessions' ? h(Sessions) : h(AccountList),
  ]);
}

const PAGE = 50;

function AccountList() {
  const loaded = usePages('host accounts', 'accounts', (after, stop) =>
    call('host/accounts', { limit: PAGE, after: ofOneHost(after) }, stop),
  );
  const { data, more } = loaded;
  const isSeveral = useSeveral();
  useNewAccounts(data?.accounts);
  return h('div.pane', [
    h('p.faint', [
      `Mail of the last 24 hours on ${isSeveral ? 'all hosts' : 'this host'}. Click an account to open it.`,
    ]),
    h(Loading, { of: loaded, rows: 6 }),
    data &&
      (data.accounts.length === 0
        ? h(Notice, { title: 'No accounts yet' }, [
            h('p', ['To create one, run ', h('code', 'postern account create NAME'), ' on the host.']),
          ])
        : h('ul.rows.accounts', [data.accounts.map((one) => h(AccountRow, { key: one.id, one }))])),
    more && h('p.more', [h(Button, { label: 'More', onPress: more })]),
  ]);
}

/** Accounts that were made since the page was loaded can only be chosen after the session is read again. */
function useNewAccounts(rows: readonly HostAccount[] | undefined): void {
  const asked = useRef('');
  const newest = rows?.findLast(({ id }) => !canChoose(id))?.id ?? '';
  useEffect(() => {
    if (newest === '' || newest === asked.current) return;
    asked.current = newest;
    void readSession();
  }, [newest]);
}

const canChoose = (wanted: string) => person.value?.accounts.some(({ id }) => id === wanted) ?? false;

function AccountRow({ one: { id, name, created_at: createdAt, waiting, day } }: { readonly one: HostAccount }) {
  const figures = [
    [day.received, 'received'],
    [day.delivered, 'delivered'],
    [day.given_up, 'failed'],
    [day.refused, 'refused'],
    [day.sent, 'sent'],
    [waiting, 'waiting'],
  ] as const;
  const content = [
    h('span.who', [h('bdi.name', plain(name)), h('span.faint', ['created ', h(Time, { at: createdAt })])]),
    ...figures.map(([value, word]) =>
      h('span', { key: word, class: value === 0 ? 'figure faint' : 'figure' }, [
        h('strong', number(value)),
        ' ',
        h('span.faint', word),
      ]),
    ),
  ];
  return h('li', { 'data-row': id }, [
    canChoose(id)
      ? h('a', { href: linkTo('/', { account: id }), 'aria-current': account.value?.id === id ? 'true' : undefined }, [
          content,
        ])
      : h('span.cells', [content]),
  ]);
}
