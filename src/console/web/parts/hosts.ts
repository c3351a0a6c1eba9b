import { h } from '../h.ts';
import { useCall } from '../load.ts';
import type { Answer } from '../operations.ts';
import type { HostOfStore } from '../records.ts';
import { linkTo } from '../router.ts';
import { type Mark, State, Time } from './elements.ts';
import { count, number, plain } from './text.ts';

// The hosts that share the store. The screens of operators are about the one that serves the console; changes of the
// queue are made on all.

type Hosts = { readonly hosts: readonly HostOfStore[] | undefined };
type Name = { readonly changes?: boolean };

/** Says which host a screen is about, if there are others, and with `changes` that its changes are about all. */
export function ThisHost({ changes = false }: Name) {
  return h(HostName, { hosts: useHosts().data?.hosts, changes });
}

/** The hosts of the store; without data if there is no right to know them. */
export const useHosts = () => useCall('host/hosts', {});

export function HostName({ hosts = [], changes = false }: Hosts & Name) {
  const [own, ...others] = hosts;
  if (!own || others.length === 0) return null;
  return h('p.faint.this-host', [
    `Host ${plain(own.name)} only. `,
    h('a', { href: linkTo('/host') }, `${count(others.length, 'other host')} of this store`),
    changes && '. Changes apply to all hosts.',
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
export function HostsOfStore({ hosts = [] }: Hosts) {
  if (hosts.length < 2) return null;
  const waiting = hosts.reduce((sum, one) => sum + (one.waiting ?? 0), 0);
  const unknown = hosts.filter((one) => one.waiting === null).length;
  return h('section', { 'aria-labelledby': 'hosts' }, [
    h('h2', { id: 'hosts' }, 'Hosts of this store'),
    h('p.sentence', [
      `${count(waiting, 'delivery', 'deliveries')} waiting on all hosts`,
      unknown > 0 && `, without ${count(unknown, 'host')} that did not answer`,
      '.',
    ]),
    h('ul.rows.columns.hosts', [hosts.map((one) => h(HostRow, { key: one.name, one }))]),
  ]);
}

function HostRow({ one }: { readonly one: HostOfStore }) {
  const { name, here, state, version, waiting, dead, oldest_at: oldestAt, seen_at: seenAt } = one;
  return h('li', { 'data-row': name }, [
    h(State, STATES[state]),
    h('span.name', [plain(name), here && ' (this host)']),
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
