import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ask, awaySince, hostsMissing } from '../call.ts';
import { h } from '../h.ts';
import { live } from '../live.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { account, may, messageOf, person, signOut } from '../session.ts';
import { ConfirmPassword } from './confirm-password.ts';
import { Button, Choice, Dialog, useAction } from './elements.ts';
import { FactorDialog, factorOpen } from './factor.ts';
import { Icon } from './icons.ts';
import { JobBar } from './job.ts';
import { helpOpen, KEYS, keysOn, turnKeys } from './keys.ts';
import { MenuItem } from './menu.ts';
import { PasswordDialog, PasswordNotice, passwordOpen } from './password.ts';
import { isIn, listOfShown, mayOpen, SECTIONS, type Section } from './sections.ts';
import { now, relative } from './text.ts';

// The frame around every screen.

/** The number of items in the bar of a telephone; the others are under "More". */
const IN_BAR = 4;

export function Frame({ children }: { readonly children?: ComponentChildren }) {
  return h('div.frame', [
    h('a.skip', { href: '#main' }, 'Skip to content'),
    h('header.top', [
      h('a.brand', { href: linkTo('/') }, 'Postern'),
      h(Accounts),
      h(Search),
      h(LiveMark),
      h(PersonMenu),
    ]),
    h(Rail),
    h('main', { id: 'main', tabIndex: -1 }, [h(Away), h(Missing), h(JobBar), h(PasswordNotice), children]),
    passwordOpen.value && h(PasswordDialog),
    factorOpen.value && h(FactorDialog),
    helpOpen.value && h(Help),
    h(ConfirmPassword),
  ]);
}

function Rail() {
  const { path } = location.value;
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  const sections = SECTIONS.filter(({ needs }) => needs === undefined || may(needs));
  const isHere = (one: Section) => isIn(one, path);
  const others = sections.slice(IN_BAR);
  const close = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && open) {
      event.stopPropagation();
      setOpen(false);
    }
  };
  const entry = (one: Section) =>
    h('a', { key: one.path, href: linkTo(one.path), 'aria-current': isHere(one) ? 'page' : undefined }, [
      h(Icon, { name: one.icon }),
      h('span', one.label),
    ]);
  return h('nav.rail', { 'aria-label': 'Pages', onKeyDown: close }, [
    sections.slice(0, IN_BAR).map(entry),
    others.length > 0 &&
      h(
        'button',
        {
          type: 'button',
          class: others.some(isHere) ? 'more here' : 'more',
          'aria-expanded': open,
          'aria-controls': 'more-screens',
          onClick: () => setOpen(!open),
        },
        [h(Icon, { name: 'more' }), h('span', 'More')],
      ),
    h('div', { id: 'more-screens', class: open ? 'rest open' : 'rest' }, others.map(entry)),
  ]);
}

/** Operators choose whose mail they see. */
function Accounts() {
  const accounts = person.value?.accounts ?? [];
  if (accounts.length < 2) return account.value && h('span.account', account.value.name);
  return h(Choice, {
    label: 'Account',
    value: account.value?.id ?? '',
    options: accounts.map(({ id, name }) => [id, name] as const),
    // What one account has, another has not.
    onValue: (id) => go(linkTo(listOfShown() ? '/' : location.value.path, { account: id })),
  });
}

interface Searched {
  readonly about: string;
  readonly help: string;
}

const OF_MAIL: Searched = {
  about: 'inbound mail',
  help: 'Words or filters: from: to: subject: route: client: url: state: status: id: before: after:',
};
const OF_DOMAINS: Searched = { about: 'domains', help: 'Part of the name' };
/** Screens with a search of their own. */
const SEARCHED: Readonly<Record<string, Searched>> = {
  '/mail': OF_MAIL,
  '/given-up': OF_MAIL,
  '/refused': { about: 'refusals', help: 'Words or filters: from: to: client: reason: domain: before: after:' },
  '/sent': {
    about: 'outbound mail',
    help: 'Words or filters: email: sender: subject: tag: state: template: subaccount: u_NAME: (metadata)',
  },
  '/lists': { about: 'addresses', help: 'The start of an address' },
  '/domains': OF_DOMAINS,
};

/** Searches what the screen shows; where it shows no list, mail, or domains if the role sees no mail. */
function Search() {
  const { path, query } = location.value;
  const own = mayOpen(path) ? SEARCHED[path] : undefined;
  const otherwise = mayOpen('/mail') ? '/mail' : '/domains';
  const { about, help } = own ?? SEARCHED[otherwise] ?? OF_MAIL;
  const shown = query.get('q') ?? '';
  const [text, setText] = useState(shown);
  useEffect(() => setText(shown), [shown, path]);
  return h(
    'form.search',
    {
      role: 'search',
      onSubmit: (event: Event) => {
        event.preventDefault();
        const q = text.trim();
        go(own ? withQuery({ q }) : linkTo(otherwise, { q }));
      },
    },
    [
      h(Icon, { name: 'search' }),
      h('input', {
        id: 'search',
        type: 'search',
        value: text,
        'aria-label': `Search ${about}`,
        placeholder: `Search ${about}`,
        title: help,
        spellcheck: false,
        autocomplete: 'off',
        onInput: (event) => setText(event.currentTarget.value),
      }),
      h('kbd', { 'aria-hidden': 'true' }, '/'),
    ],
  );
}

function LiveMark() {
  if (!may('inbound/search')) return null;
  const state = live.value;
  return h('span', { class: `live ${state.state}`, role: 'status' }, [
    h('span.lamp', { 'aria-hidden': 'true' }),
    h('span', [
      state.state === 'on' ? 'Live' : 'Disconnected',
      state.state === 'lost' && h(Seconds, { until: state.at }),
    ]),
  ]);
}

const SECOND_MS = 1_000;

/** The time until the next try. Screen readers do not announce each second. */
function Seconds({ until }: { readonly until: number }) {
  const [left, setLeft] = useState(() => until - Date.now());
  useEffect(() => {
    const tick = () => setLeft(until - Date.now());
    tick();
    const timer = setInterval(tick, SECOND_MS);
    return () => clearInterval(timer);
  }, [until]);
  const seconds = Math.ceil(left / SECOND_MS);
  return h('span', { 'aria-hidden': 'true' }, seconds > 0 ? `, retrying in ${seconds} s` : ', retrying now');
}

function PersonMenu() {
  const { error, start: leave } = useAction(signOut);
  const { name = '', role = '', has_password: has = false, can_set_password: can = false } = person.value ?? {};
  return h('details.menu', { key: location.value.path }, [
    h('summary', { 'aria-label': `Menu for ${name}` }, [h(Icon, { name: 'person' })]),
    h('div.sheet', [
      h('p', [h('strong', name), h('br'), h('span.faint', role)]),
      h(MenuItem, { label: 'Keyboard shortcuts', onPress: () => (helpOpen.value = true) }),
      (has || can) && h(MenuItem, { label: 'Password\u2026', onPress: () => (passwordOpen.value = true) }),
      has && h(MenuItem, { label: 'Two-factor authentication\u2026', onPress: () => (factorOpen.value = true) }),
      h('a.button.quiet', { href: '/docs', target: '_blank', rel: 'noopener' }, 'API reference'),
      h('button.button.quiet', { type: 'button', onClick: leave }, 'Sign out'),
      error !== undefined && h('p.wrong', { role: 'alert' }, messageOf(error)),
    ]),
  ]);
}

/** How often the store is asked for while it is away. Milliseconds. */
const ASK_AGAIN_MS = 5_000;

function Away() {
  const since = awaySince.value;
  const isAway = since !== undefined;
  useEffect(() => {
    if (!isAway) return;
    // Any answer ends the report, and this one needs the store.
    const timer = setInterval(() => void ask('GET', '/console/me').catch(() => undefined), ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, [isAway]);
  if (!isAway) return null;
  return h('p.banner', { role: 'status' }, [
    h(Icon, { name: 'alert' }),
    `The database is not responding (noticed ${relative(since, now.value)}). Lists may be out of date. Mail is ` +
      'still accepted.',
  ]);
}

/** Hosts without a part in what is shown; another screen asks again. */
function Missing() {
  const { path } = location.value;
  useEffect(
    () => () => {
      hostsMissing.value = new Map();
    },
    [path],
  );
  const names = [...new Set([...hostsMissing.value.values()].flatMap((hosts) => hosts.split(', ')))];
  if (names.length === 0) return null;
  return h('p.banner', { role: 'status' }, [
    h(Icon, { name: 'alert' }),
    `Not included: ${names.join(', ')}. `,
    mayOpen('/host') && h('a', { href: linkTo('/host') }, 'Show the state of each host'),
  ]);
}

function Help() {
  return h(Dialog, { title: 'Keyboard shortcuts', onClose: () => (helpOpen.value = false) }, [
    h('dl.keys', [
      KEYS.map(([key, what]) =>
        h('div', { key }, [h('dt', [key.split(', ').map((one) => h('kbd', { key: one }, [one]))]), h('dd', [what])]),
      ),
    ]),
    h(Button, {
      label: keysOn.value ? 'Turn off shortcuts' : 'Turn on shortcuts',
      onPress: () => turnKeys(!keysOn.value),
    }),
  ]);
}
