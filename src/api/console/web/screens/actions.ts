import { type ComponentChildren, h } from 'preact';
import { call } from '../call.ts';
import { useLoad } from '../load.ts';
import { Bars, Button, Fault, Notice, Time, Title } from '../parts/elements.ts';
import { number, plain } from '../parts/text.ts';
import type { Action } from '../records.ts';
import { account } from '../session.ts';

const PAGE = 50;
const MOST_ROWS = 1_000;

interface Page {
  readonly actions: readonly Action[];
  readonly next: number | null;
}

/** What people and programs did in the account. */
export function Actions(): ComponentChildren {
  const read = (before?: number, stop?: AbortSignal) =>
    call<Page>('actions/list', { limit: PAGE, ...(before !== undefined && { before }) }, stop);
  const { data, error, failedAt, again, change } = useLoad(`actions ${account.value?.id}`, (stop) =>
    read(undefined, stop),
  );
  const next = data?.next ?? null;
  const older = async () => {
    if (next === null) return;
    const page = await read(next);
    change((shown) => ({ actions: [...shown.actions, ...page.actions], next: page.next }));
  };
  return h(
    'div',
    { class: 'screen' },
    h(Title, { text: 'What was done' }),
    h(
      'p',
      { class: 'faint' },
      'Replays, drops, changes of domains, routes and keys, mail out that was stopped or sent again, and looks of operators at content, on this host. Remembered for a year.',
    ),
    error && h(Fault, { error, since: failedAt, again }),
    data === undefined
      ? !error && h(Bars, { rows: 8 })
      : data.actions.length === 0
        ? h(Notice, { title: 'Nothing was done yet.' })
        : h(
            'ul',
            { class: 'rows actions' },
            data.actions.map((action, i) => h(ActionRow, { key: `${action.at} ${i}`, action })),
          ),
    data !== undefined &&
      next !== null &&
      data.actions.length < MOST_ROWS &&
      h('p', { class: 'more' }, h(Button, { label: 'Older', onPress: older })),
  );
}

function ActionRow({ action: { at, by, what, count, detail } }: { readonly action: Action }): ComponentChildren {
  return h(
    'li',
    null,
    h('span', { class: 'faint' }, h(Time, { at })),
    h('span', { class: 'by' }, h('bdi', null, plain(by))),
    h('span', null, count === 1 ? plain(what) : `${plain(what)} (${number(count)})`),
    h('span', { class: 'detail', dir: 'auto' }, plain(detail)),
  );
}
