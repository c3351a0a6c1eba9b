import { call } from '../call.ts';
import { h } from '../h.ts';
import { usePages } from '../load.ts';
import { Button, Choice, Loading, Notice, Time, Title } from '../parts/elements.ts';
import { number, plain } from '../parts/text.ts';
import type { Action, HostAction } from '../records.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { account, person } from '../session.ts';
import { HostChips } from './host.ts';

const PAGE = 50;
const MAX_ROWS = 1_000;

/** The activity of people and programs in the account. */
export function Actions() {
  return h('div.screen', [
    h(Title, { text: 'Activity' }),
    h('p.faint', [
      'Replays, drops, changes to domains, routes and keys, outbound messages stopped or sent again, and ' +
        'message content viewed by operators. API keys are named by their first four characters. Kept for a year.',
    ]),
    h(ActionList, { of: `${account.value?.id}`, read: (page, stop) => call('actions/list', page, stop) }),
  ]);
}

/** The activity on all hosts, and in all accounts. */
export function HostActions() {
  const { accounts = [] } = person.value ?? {};
  const wanted = location.value.query.get('of') ?? '';
  const chosen = accounts.some(({ id }) => id === wanted) ? wanted : '';
  return h('div.screen', [
    h(Title, { text: 'Host activity' }, [
      accounts.length > 1 &&
        h(Choice, {
          label: 'Account',
          value: chosen,
          options: [['', 'All accounts and the host'], ...accounts.map(({ id, name }) => [id, plain(name)] as const)],
          onValue: (id) => go(withQuery({ of: id === '' ? undefined : id }), true),
        }),
    ]),
    h(HostChips),
    h('p.faint', [
      'Changes to the host and to the mail of accounts, and message content viewed: from the console, ' +
        'the command line or the API. Kept for a year.',
    ]),
    h(ActionList, {
      key: chosen,
      of: `host ${chosen}`,
      read: ({ limit, before }, stop) => call('host/actions', { limit, before, account: chosen || undefined }, stop),
    }),
  ]);
}

/** An action; of the host's list also whose mail or setting it was, null for the host itself, and on which host. */
type Done = Action & Partial<Pick<HostAction, 'account' | 'host'>>;

interface ActionListProps {
  readonly of: string;
  read(
    page: { readonly limit: number; readonly before: number | string | undefined },
    stop?: AbortSignal,
  ): Promise<{ readonly actions: readonly Done[]; readonly next: number | string | null }>;
}

function ActionList({ of, read }: ActionListProps) {
  const loaded = usePages(`actions ${of}`, 'actions', (before, stop) => read({ limit: PAGE, before }, stop));
  const { data, more } = loaded;
  return h('div.pane', [
    h(Loading, { of: loaded, rows: 8 }),
    data &&
      (data.actions.length === 0
        ? h(Notice, { title: 'No activity yet' }, [
            h('p', ['Replays, new keys and views of message content appear here.']),
          ])
        : h('ul.rows.columns.actions', [
            data.actions.map((action, i) => h(ActionRow, { key: `${action.at} ${i}`, action })),
          ])),
    data !== undefined &&
      more &&
      data.actions.length < MAX_ROWS &&
      h('p.more', [h(Button, { label: 'Older', onPress: more })]),
  ]);
}

function ActionRow({ action: { at, by, what, count, detail, account: of, host } }: { readonly action: Done }) {
  return h('li', [
    h('span.faint', [h(Time, { at })]),
    h('span.by', [
      h('bdi', plain(by)),
      of === null && host === undefined && ' \u00b7 the host',
      of && [' \u00b7 ', h('a', { href: linkTo('/actions', { account: of.id }) }, [h('bdi', plain(of.name))])],
      host !== undefined && ` \u00b7 ${plain(host)}`,
    ]),
    h('span', count === 1 ? plain(what) : `${plain(what)} (${number(count)})`),
    h('span.detail.faint', { dir: 'auto' }, plain(detail)),
  ]);
}
