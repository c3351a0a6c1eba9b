import { type ComponentChildren, h } from 'preact';
import { call } from '../call.ts';
import type { HostAction } from '../host-records.ts';
import { useLoad } from '../load.ts';
import { Bars, Button, Choice, Fault, Notice, Time, Title } from '../parts/elements.ts';
import { number, plain } from '../parts/text.ts';
import type { Action } from '../records.ts';
import { go, linkTo, place, withQuery } from '../router.ts';
import { account, person } from '../session.ts';
import { HostParts } from './host.ts';

const PAGE = 50;
const MOST_ROWS = 1_000;

/** What people and programs did in the account. */
export function Actions(): ComponentChildren {
  return h(
    'div',
    { class: 'screen' },
    h(Title, { text: 'Activity' }),
    h(
      'p',
      { class: 'faint' },
      'Replays, drops, changes to domains, routes and keys, outbound messages stopped or sent again, and message content viewed by operators, on this host. Kept for a year.',
    ),
    h(ActionList<Action>, { operation: 'actions/list', of: account.value?.id }),
  );
}

/** What was done to the host, and to all accounts. */
export function HostActions(): ComponentChildren {
  const { accounts = [] } = person.value ?? {};
  const wanted = place.value.query.get('of') ?? '';
  const chosen = accounts.some(({ id }) => id === wanted) ? wanted : '';
  return h(
    'div',
    { class: 'screen' },
    h(
      Title,
      { text: 'Host activity' },
      accounts.length > 1 &&
        h(Choice, {
          label: 'Account',
          value: chosen,
          options: [['', 'All accounts and the host'], ...accounts.map(({ id, name }) => [id, plain(name)] as const)],
          onValue: (id) => go(withQuery({ of: id === '' ? undefined : id }), true),
        }),
    ),
    h(HostParts, null),
    h(
      'p',
      { class: 'faint' },
      'Changes to the host and to the mail of accounts, and message content viewed: from the console, the command line or the API. Kept for a year.',
    ),
    h(ActionList<HostAction>, {
      key: chosen,
      operation: 'host/actions',
      of: chosen,
      params: chosen === '' ? {} : { account: chosen },
      where: ({ account }) =>
        account === null
          ? 'the host'
          : h('a', { href: linkTo('/actions', { account: account.id }) }, plain(account.name)),
    }),
  );
}

interface Page<A> {
  readonly actions: readonly A[];
  readonly next: number | null;
}

interface ActionListProps<A> {
  readonly operation: string;
  /** Of what these are, as far as the operation does not say it. */
  readonly of: string | undefined;
  readonly params?: object;
  /** Whose mail or setting it was, where that is not always the same. */
  readonly where?: (action: A) => ComponentChildren;
}

function ActionList<A extends Action>({ operation, of, params = {}, where }: ActionListProps<A>): ComponentChildren {
  const read = (before?: number, stop?: AbortSignal) =>
    call<Page<A>>(operation, { ...params, limit: PAGE, ...(before !== undefined && { before }) }, stop);
  const { data, error, failedAt, again, change } = useLoad(`${operation} ${of}`, (stop) => read(undefined, stop));
  const next = data?.next ?? null;
  const older = async () => {
    if (next === null) return;
    const page = await read(next);
    change((shown) => ({ actions: [...shown.actions, ...page.actions], next: page.next }));
  };
  return h(
    'div',
    { class: 'pane' },
    error && h(Fault, { error, since: failedAt, again }),
    data === undefined
      ? !error && h(Bars, { rows: 8 })
      : data.actions.length === 0
        ? h(
            Notice,
            { title: 'No activity yet' },
            h('p', null, 'Replays, new keys and views of message content appear here.'),
          )
        : h(
            'ul',
            { class: 'rows actions' },
            data.actions.map((action, i) => h(ActionRow, { key: `${action.at} ${i}`, action, where: where?.(action) })),
          ),
    data !== undefined &&
      next !== null &&
      data.actions.length < MOST_ROWS &&
      h('p', { class: 'more' }, h(Button, { label: 'Older', onPress: older })),
  );
}

function ActionRow({
  action: { at, by, what, count, detail },
  where,
}: {
  readonly action: Action;
  readonly where: ComponentChildren;
}): ComponentChildren {
  return h(
    'li',
    null,
    h('span', { class: 'faint' }, h(Time, { at })),
    h(
      'span',
      { class: 'by' },
      h('bdi', null, plain(by)),
      where !== undefined && [' \u00b7 ', h('bdi', { key: 'of' }, where)],
    ),
    h('span', null, count === 1 ? plain(what) : `${plain(what)} (${number(count)})`),
    h('span', { class: 'detail', dir: 'auto' }, plain(detail)),
  );
}
