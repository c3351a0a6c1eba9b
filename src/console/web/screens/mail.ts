import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import { DropDialog, ReplayDialog, RetryDialog, type Wish } from '../parts/changes.ts';
import { Chips } from '../parts/chips.ts';
import { Button, Loading, Notice, Title } from '../parts/elements.ts';
import { type List, MailRow, More, marked, useMail } from '../parts/list.ts';
import { Menu, MenuItem } from '../parts/menu.ts';
import { ANSWERS, FieldChoice, TimeChoice } from '../parts/narrow.ts';
import { hasEnded, isOpen, SEARCHED_STATES, stateWord } from '../parts/states.ts';
import { count, plain, shortUrl } from '../parts/text.ts';
import { fieldOf, withField } from '../query.ts';
import type { Mail } from '../records.ts';
import { linkTo, location } from '../router.ts';
import { may, person } from '../session.ts';
import { useDomains, useRoutes } from './domains.ts';
import { useEndpointsOnce } from './endpoints.ts';
import { MessageView } from './message.ts';

/** From this width on the message stands beside the list. */
const WIDE = window.matchMedia('(min-width: 1200px)');
const isWide = signal(WIDE.matches);
WIDE.addEventListener('change', () => {
  isWide.value = WIDE.matches;
});
/** A row that is only passed by is not fetched. */
const PREVIEW_AFTER_MS = 150;

/** All mail that came in, or what a search finds. */
export function MailList() {
  const query = location.value.query.get('q') ?? '';
  const list = useMail(query);
  const [preview, setPreview] = usePreview();
  const canReplay = may('inbound/replay');
  return h('div', { class: isWide.value ? 'screen split' : 'screen' }, [
    h('div.pane', [
      h(Title, { text: 'Inbound' }, [h(ReplayMarked), h(AllThatMatch, { query })]),
      h(StateFilter, { query }),
      h(Choices, { query }),
      h(FieldChips, { query }),
      h(RefusalsToo, { query }),
      h(MailRows, {
        list,
        canMark: canReplay,
        empty: () => h(Empty, { query }),
        ...(isWide.value && { onFocus: setPreview }),
      }),
    ]),
    isWide.value &&
      h('aside.pane.preview', { 'aria-label': 'Preview' }, [
        preview === undefined
          ? h(Notice, { title: 'Select a message to preview it (j/k)' })
          : h(MessageView, { id: preview, key: preview, beside: true }),
      ]),
  ]);
}

function usePreview(): [string | undefined, (id: string) => void] {
  const [shown, setShown] = useState<string>();
  const [wanted, setWanted] = useState<string>();
  useEffect(() => {
    const timer = setTimeout(() => setShown(wanted), PREVIEW_AFTER_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  return [shown, setWanted];
}

interface MailRowsProps {
  readonly list: List<Mail>;
  readonly canMark: boolean;
  empty(): ComponentChildren;
  onFocus?(id: string): void;
}

/** A list, with its texts while loading, after an error, and without entries. */
export function MailRows({ list, canMark, empty, onFocus }: MailRowsProps) {
  const { rows } = list;
  useEffect(() => () => void (marked.value = new Set()), []);
  return h('div', { 'aria-busy': list.loading }, [
    h(Loading, { of: list, rows: 10 }),
    rows &&
      (rows.length === 0
        ? !list.more && empty()
        : h('ul.rows', [rows.map((mail) => h(MailRow, { key: mail.id, mail, canMark, ...(onFocus && { onFocus }) }))])),
    h(More, { list }),
  ]);
}

function StateFilter({ query }: { readonly query: string }) {
  return h(Chips<string | undefined>, {
    label: 'State',
    chips: [[undefined, 'All'], ...SEARCHED_STATES.map((state) => [state, stateWord(state)] as const)],
    chosen: fieldOf(query, 'state'),
    href: (state) => linkTo('/mail', { q: withField(query, 'state', state) }),
  });
}

/** When and where it was received, where it was posted, and the answer. */
function Choices({ query }: { readonly query: string }) {
  const { data: domains = [] } = useDomains();
  const { data: endpoints = [] } = useEndpointsOnce();
  const to = fieldOf(query, 'to');
  const domain = domains.find((one) => to === `@${one.domain}`)?.domain;
  const { data: routes = [] } = useRoutes(domain);
  const choice = (field: string, label: string, options: readonly (readonly [value: string, label: string])[]) =>
    h(FieldChoice, { path: '/mail', query, field, label, options });
  return h('p.choices', [
    h(TimeChoice, { path: '/mail', query }),
    choice('to', 'Domain', [
      ['', 'Any domain'],
      ...domains.map((one) => [`@${one.domain}`, plain(one.domain)] as const),
    ]),
    choice('route', 'Route', [
      ['', 'Any route'],
      ...routes.map(({ id, pattern }) => [id, `${id} ${plain(pattern)}`] as const),
    ]),
    choice('url', 'Endpoint', [['', 'Any endpoint'], ...endpoints.map(({ url }) => [url, shortUrl(url)] as const)]),
    choice('status', 'Last response', ANSWERS),
  ]);
}

const SHOWN_FIELDS = ['from', 'to', 'subject', 'thread', 'route', 'client', 'url', 'status', 'id', 'after', 'before'];

/** The fields of the search, each with a way to take it out. */
function FieldChips({ query }: { readonly query: string }) {
  const fields = SHOWN_FIELDS.flatMap((name) => {
    const value = fieldOf(query, name);
    return value === undefined ? [] : [{ name, value }];
  });
  if (fields.length === 0) return null;
  return h('p.chips', [
    fields.map(({ name, value }) =>
      h(
        'a.chip',
        {
          key: name,
          href: linkTo('/mail', { q: withField(query, name, undefined) }),
          'aria-label': `Remove the filter ${name}:${value}`,
        },
        [`${name}: ${value} \u00d7`],
      ),
    ),
  ]);
}

/** A search for a mail that is missing may find that it was refused. */
function RefusalsToo({ query }: { readonly query: string }) {
  const without = withField(query, 'state', undefined).trim();
  const wanted = without !== '' && !/\b(?:subject|thread|route|url|status|id):/.test(without);
  const found = useCall('inbound/refusals', wanted ? { query: without, limit: 1 } : undefined);
  const all = found.data?.by_reason.reduce((sum, one) => sum + one.count, 0) ?? 0;
  if (all === 0) return null;
  return h('p.also', [
    h('a', { href: linkTo('/refused', { q: without }) }, [
      `${count(all, 'refusal')} also ${all === 1 ? 'matches' : 'match'}`,
    ]),
  ]);
}

function ReplayMarked() {
  const [wish, setWish] = useState<Wish>();
  const ids = [...marked.value];
  const close = () => {
    setWish(undefined);
    marked.value = new Set();
  };
  if (wish) return h(ReplayDialog, { wish, onClose: close });
  if (ids.length === 0) return null;
  return h('span.buttons', { 'data-key': 'replay' }, [
    h(Button, { label: `Replay ${ids.length} selected\u2026`, icon: 'replay', onPress: () => setWish({ ids }) }),
    h(Button, { label: 'Clear', kind: 'quiet', onPress: () => (marked.value = new Set()) }),
  ]);
}

/** Actions for all matches, if the filter has one state: the next step first, dropping behind a menu. */
function AllThatMatch({ query }: { readonly query: string }) {
  const [open, setOpen] = useState<'next' | 'drop'>();
  const state = fieldOf(query, 'state');
  const rest = withField(query, 'state', undefined);
  const close = () => setOpen(undefined);
  if (marked.value.size > 0) return null;
  const mayNext = hasEnded(state) ? may('inbound/replay') : state === 'waiting' && may('inbound/retry');
  const next = state === 'waiting' ? 'Retry' : state === 'held' ? 'Release' : 'Replay';
  return h('span.buttons', { 'data-key': 'replay' }, [
    mayNext &&
      h(Button, {
        label: `${next} all that match\u2026`,
        icon: 'replay',
        ...(isOpen(state) && { kind: 'main' as const }),
        onPress: () => setOpen('next'),
      }),
    isOpen(state) &&
      may('inbound/drop') &&
      h(Menu, [h(MenuItem, { label: 'Drop all that match\u2026', destroys: true, onPress: () => setOpen('drop') })]),
    open === 'next' &&
      (hasEnded(state)
        ? h(ReplayDialog, { wish: { query: rest, state }, onClose: close })
        : h(RetryDialog, { query: rest, onClose: close })),
    open === 'drop' && isOpen(state) && h(DropDialog, { wish: { query: rest, state }, onClose: close }),
  ]);
}

function Empty({ query }: { readonly query: string }) {
  if (query.trim() === '')
    return h(Notice, { title: 'No messages yet' }, [
      h('p', ['New messages appear here immediately. ', h('a', { href: linkTo('/') }, 'Send the first one')]),
    ]);
  return h(Notice, { title: 'No messages match this search' }, [
    h('p', [
      `Messages are kept for ${count(person.value?.keeps_days.history ?? 0, 'day')}, refusals for ` +
        `${count(person.value?.keeps_days.refusals ?? 0, 'day')}. `,
      h('a', { href: linkTo('/mail') }, 'Show all messages'),
    ]),
  ]);
}
