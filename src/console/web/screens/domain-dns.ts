import type { ComponentChildren } from 'preact';
import { h } from '../h.ts';
import type { Loaded } from '../load.ts';
import { Bars, Fault, type Mark, State, Time } from '../parts/elements.ts';
import { Copy } from '../parts/form.ts';
import { age, count, now, plain, toMs } from '../parts/text.ts';
import type { DomainRecord, DomainServer, DomainServers, InboundDomain } from '../records.ts';

/** The required DNS records, those last seen, and the current answer of each name server. */
export function DnsRecords({
  domain,
  servers,
}: {
  readonly domain: InboundDomain;
  readonly servers: Loaded<DomainServers>;
}) {
  const { domain: name, mx_hosts: hosts, valid_mx: isValid, mx_error: error, tested_at: testedAt } = domain;
  const { routed, txt_name: txtName, txt_value: txtValue, verified_at: verifiedAt } = domain;
  const { data, failedAt, again } = servers;
  const since = data?.records.find(({ type }) => type === 'MX')?.since ?? null;
  return h('section', { 'aria-labelledby': 'dns' }, [
    h('h2', { id: 'dns' }, 'DNS records'),
    servers.error && h(Fault, { error: servers.error, since: failedAt, again }),
    h('ul.rows.dns', [
      h(DnsRecord, {
        type: 'MX',
        name,
        values: hosts.map((host) => `10 ${host}.`),
        mark: isValid
          ? FOUND
          : testedAt === null
            ? { icon: 'question', word: 'Not checked', tone: 'off' }
            : { icon: 'cross', word: 'Not found', tone: 'bad' },
        note: [
          hosts.length > 1 && 'Any one of these is enough. ',
          error !== null && `${plain(error)}. `,
          testedAt !== null && ['Checked ', h(Time, { at: testedAt }), '. '],
          since !== null && `Unchanged for ${age(toMs(since), now.value)}. `,
          data && nextTest(data),
        ],
        servers,
        optional: false,
      }),
      h(DnsRecord, {
        type: 'TXT',
        name: txtName,
        values: [txtValue],
        mark: verifiedAt !== null ? FOUND : { icon: 'clock', word: 'Not found', tone: routed ? 'off' : 'wait' },
        note: [
          routed
            ? 'Optional. Proves that you own the domain, so that no other account can claim it.'
            : 'Proves that you own the domain. Mail to it is refused until this record is found.',
          verifiedAt !== null && [' First found ', h(Time, { at: verifiedAt }), '.'],
        ],
        servers,
        optional: routed,
      }),
    ]),
  ]);
}

const FOUND: Mark = { icon: 'check', word: 'Found', tone: 'good' };

function nextTest({ next_test_at: at }: DomainServers) {
  return at === null || toMs(at) < now.value ? 'Next check within minutes.' : ['Next check ', h(Time, { at }), '.'];
}

interface DnsRecordProps {
  readonly type: DomainRecord['type'];
  readonly name: string;
  readonly values: readonly string[];
  readonly mark: Mark;
  readonly note: ComponentChildren;
  readonly servers: Loaded<DomainServers>;
  /** Mail comes in without it. */
  readonly optional: boolean;
}

function DnsRecord({ type, name, values, mark, note, servers: { data, loading }, optional }: DnsRecordProps) {
  const record = data?.records.find((one) => one.type === type);
  return h('li', [
    h('span.type', type),
    h('code.name', plain(name)),
    h('span.mark', [h(State, mark)]),
    h('ul.values', [values.map((value) => h('li', { key: value }, [h('code', value), h(Copy, { text: value })]))]),
    h('p.note.faint', [note]),
    loading && !data && h('div.servers', [h(Bars, { rows: 2 })]),
    record && h(Servers, { record, optional }),
  ]);
}

const STATES: Readonly<Record<DomainServer['state'], Mark>> = {
  ok: { icon: 'check', word: 'OK', tone: 'good' },
  differs: { icon: 'cross', word: 'Wrong value', tone: 'bad' },
  missing: { icon: 'cross', word: 'Missing', tone: 'bad' },
  failed: { icon: 'alert', word: 'No response', tone: 'wait' },
  not_asked: { icon: 'question', word: 'Not queried', tone: 'off' },
};

/** The current answer of each name server, not from a cache. */
function Servers({
  record: { type, error, servers, left_out: leftOut },
  optional,
}: {
  readonly record: DomainRecord;
  readonly optional: boolean;
}) {
  if (error !== null) return h('p.servers.faint', error);
  return h('ul.servers', { 'aria-label': `Name servers, ${type}` }, [
    servers.map((one) =>
      h('li', { key: one.server, 'data-server': one.server }, [
        h(State, { ...STATES[one.state], ...(optional && one.state === 'missing' && { tone: 'off' as const }) }),
        h('code', { title: one.address ?? undefined }, plain(one.server)),
        h('span.faint', { dir: 'auto' }, sentenceOf(one)),
      ]),
    ),
    leftOut > 0 && h('li.faint', `${count(leftOut, 'more name server')} not queried`),
  ]);
}

function sentenceOf({ state, values, reason }: DomainServer): string {
  if (reason !== null) return reason;
  if (state === 'missing') return 'no such record';
  return state === 'ok' && values.length === 1 ? '' : `has ${plain(values.join(', '))}`;
}
