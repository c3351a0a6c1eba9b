import { computed } from '@preact/signals';
import { h } from '../h.ts';
import { type Loaded, useCall } from '../load.ts';
import type { Answer } from '../operations.ts';
import type { HostOfStore } from '../records.ts';
import { go, linkTo, location, withQuery } from '../router.ts';
import { person } from '../session.ts';
import { Choice, Loading, type Mark, State, Time } from './elements.ts';
import { count, number, plain } from './text.ts';

// The hosts that share the store. Lists and sums are of all of them; what is about a machine is of one, which the URL
// names.

/** The hosts of the store; without data if there is no right to know them. */
export const useHosts = () => useCall('host/hosts', {});

/** Whether a list or a sum is of several hosts. */
export const useSeveral = (): boolean => (useHosts().data?.hosts.length ?? 0) > 1;

/** The host that a screen is about: this one, or the one in the URL. */
export const shownHost = computed(() => location.value.query.get('host') ?? person.value?.hostname ?? '');

/** Chooses the host that a screen is about, if there are several. One that is not known is shown too. */
export function HostChoice() {
  const { hosts = [] } = useHosts().data ?? {};
  if (hosts.length < 2) return null;
  const shown = shownHost.value;
  const known = hosts.map(({ name, here }) => [name, `${plain(name)}${here ? ' (this host)' : ''}`] as const);
  return h(Choice, {
    label: 'Host',
    value: shown,
    options: known.some(([name]) => name === shown) ? known : [...known, [shown, plain(shown)]],
    onValue: (name) => go(withQuery({ host: name }), true),
  });
}

/** What is loaded about the chosen host; if that does not answer, with a way back to this one. */
export function LoadingOfHost({ of, rows }: { readonly of: Loaded<unknown>; readonly rows: number }) {
  const { hostname = '' } = person.value ?? {};
  return h(Loading, { of, rows }, [
    shownHost.value !== hostname &&
      h('a', { href: linkTo(location.value.path) }, `Show ${plain(hostname)} (this host)`),
  ]);
}

const STATES: Readonly<Record<HostOfStore['state'], Mark>> = {
  running: { icon: 'check', word: 'Running', tone: 'good' },
  unanswered: { icon: 'alert', word: 'No answer', tone: 'bad' },
  silent: { icon: 'cross', word: 'Lost', tone: 'bad' },
  stopped: { icon: 'pause', word: 'Stopped', tone: 'off' },
};

/** What a change concerns on each host, if there are several, and why a host is missing. */
export function OnHosts({ hosts }: { readonly hosts: Answer<'host/drop'>['hosts'] }) {
  if (hosts.length < 2) return null;
  return h('ul', [
    hosts.map(({ name, count: many, error }) =>
      error === null
        ? h('li', { key: name }, `${plain(name)}: ${count(many, 'delivery', 'deliveries')}`)
        : h('li.wrong', { key: name }, `${plain(error)}.`),
    ),
  ]);
}

/** All hosts, with what waits on each. */
export function HostsOfStore({ hosts = [] }: { readonly hosts: readonly HostOfStore[] | undefined }) {
  if (hosts.length < 2) return null;
  const waiting = hosts.reduce((sum, one) => sum + (one.waiting ?? 0), 0);
  const unknown = hosts.filter((one) => one.waiting === null).length;
  return h('section', { 'aria-labelledby': 'hosts' }, [
    h('h2', { id: 'hosts' }, 'Hosts'),
    h('p.sentence', [
      `${count(waiting, 'delivery', 'deliveries')} waiting on all hosts`,
      unknown > 0 && `, not counting ${count(unknown, 'host')} that did not answer`,
      '.',
    ]),
    h('ul.rows.columns.hosts', [hosts.map((one) => h(HostRow, { key: one.name, one }))]),
  ]);
}

function HostRow({ one }: { readonly one: HostOfStore }) {
  const { name, here, state, version, waiting, dead, oldest_at: oldestAt, seen_at: seenAt } = one;
  return h('li', { 'data-row': name }, [
    h(State, STATES[state]),
    h('span.name', [h('a', { href: linkTo('/host', { host: name }) }, plain(name)), here && ' (this host)']),
    h('span.sentence', [
      waiting !== null && [
        `${number(waiting)} waiting`,
        oldestAt !== null && [', oldest ', h(Time, { at: oldestAt })],
        `, ${number(dead ?? 0)} failed`,
      ],
    ]),
    h('span.faint.when', [`version ${plain(version)}`, !here && [', last seen ', h(Time, { at: seenAt })]]),
  ]);
}
