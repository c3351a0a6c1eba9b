import { z } from 'zod';
import type { ServerAnswer, ZoneAnswers } from '../../dns/name-servers.ts';
import { type MxRecord, sameName } from '../../dns/types.ts';
import { ownershipRecordOf, RETEST_MS } from '../../inbound/ownership.ts';
import { memberOf } from '../../mail/addresses/wildcard-domain.ts';
import { nameOf } from '../../store/rows/domains.ts';
import { operation } from '../operation.ts';
import { int, knownDomain, listOf, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';
import { findDomain } from './inbound-domains.ts';

const STATES = ['ok', 'differs', 'missing', 'failed', 'not_asked'] as const;
type State = (typeof STATES)[number];

const serverRecord = z.object({
  server: str('name of the name server'),
  address: strOrNull('the address that was queried; null if none'),
  state: z
    .enum(STATES)
    .describe(
      'ok: it has an expected record; differs: it has only other records; missing: it has none; failed: no ' +
        'usable answer; not_asked: none of its addresses may be queried',
    ),
  values: listOf(z.string(), 'its records, at most ten'),
  reason: strOrNull('why it gave no usable answer or was not queried, or null'),
});

const recordRecord = z.object({
  type: z.enum(['MX', 'TXT']),
  name: str('the name of the record'),
  expected: listOf(z.string(), 'the valid records, of which one is enough'),
  since: timeOrNull(
    'MX: since when the regular checks have the same result; TXT: when it was first found',
    'null: not known, or not found yet',
  ),
  zone: strOrNull('the zone of the name; null if not found'),
  error: strOrNull('why no name server could be queried, or null'),
  servers: listOf(serverRecord, 'the answer of each name server of the zone, at most eight'),
  left_out: int('number of name servers beyond the first eight, which were not queried'),
});

const domainServers = operation({
  path: '/inbound/domain-servers',
  access: 'settings',
  extension: true,
  summary: 'Queries every name server of an inbound domain directly for its current MX and TXT records.',
  notes:
    'check-domain uses a resolver, which may have an old answer in its cache; this operation queries each ' +
    'authoritative server, so it shows whether a change has reached all of them. Nothing is stored. Servers on ' +
    'private addresses are queried only if the operator allows it (`outbound.allow_private`).',
  params: { domain: knownDomain },
  returns: z.object({
    domain: str('the domain, as it was added'),
    asked_at: time('when the name servers were queried'),
    next_test_at: timeOrNull(
      'when the MX records are next checked, or up to a few minutes later',
      'null: within a few minutes',
    ),
    records: z.array(recordRecord),
  }),
  errors: ['Unknown_InboundDomain'],
  example: { domain: 'inbound.example.com' },
  async handle({ domain }, call) {
    const { nameServers, settings, inTurn, now } = call;
    const row = await findDomain(domain, call);
    const name = nameOf(row);
    const proof = ownershipRecordOf(row);
    const hosts = [settings.hostname, ...settings.mxHosts];
    const [mx, txt] = await inTurn('domain-servers', () =>
      Promise.all([nameServers.ask(memberOf(name), 'MX'), nameServers.ask(proof.name, 'TXT')]),
    );
    return {
      domain: row.domain,
      asked_at: toTime(now()),
      next_test_at: toTime(row.testedAt && row.testedAt.getTime() + RETEST_MS),
      records: [
        {
          type: 'MX' as const,
          name,
          expected: hosts.map((host) => `10 ${host}.`),
          since: toTime(row.mxSince),
          ...toRecord(mx, ({ exchange }) => hosts.some((host) => sameName(exchange, host)), toMxText),
        },
        {
          type: 'TXT' as const,
          name: proof.name,
          expected: [proof.value],
          since: toTime(row.verifiedAt),
          ...toRecord(txt, (text) => text === proof.value, String),
        },
      ],
    };
  },
});

const toMxText = ({ exchange, priority }: MxRecord) => `${priority} ${exchange.replace(/\.$/, '')}.`;

function toRecord<T>(survey: ZoneAnswers<T>, isRight: (record: T) => boolean, toText: (record: T) => string) {
  if (survey === 'none') return { zone: null, error: 'The DNS has no zone for this name.', servers: [], left_out: 0 };
  if (survey === 'unknown')
    return { zone: null, error: 'The name servers of this name could not be looked up.', servers: [], left_out: 0 };
  return {
    zone: survey.zone,
    error: null,
    servers: survey.servers.map((one) => toServer(one, isRight, toText)),
    left_out: survey.leftOut,
  };
}

/** Limits for records of foreign servers: their number, and their characters. */
const MAX_RECORDS = 10;
const MAX_SHOWN = 300;

function toServer<T>(
  { server, address, answer }: ServerAnswer<T>,
  isRight: (record: T) => boolean,
  toText: (record: T) => string,
) {
  const said = (state: State, records: readonly T[] = [], reason: string | null = null) => ({
    server,
    address,
    state,
    values: records.slice(0, MAX_RECORDS).map((record) => toText(record).slice(0, MAX_SHOWN)),
    reason,
  });
  if (answer.kind === 'failure') return said(address === null ? 'not_asked' : 'failed', [], REASONS[answer.reason]);
  if (answer.kind !== 'records') return said('missing');
  return said(answer.records.some(isRight) ? 'ok' : 'differs', answer.records);
}

const REASONS = {
  timeout: 'It does not answer.',
  unreachable: 'It cannot be reached.',
  servfail: 'It answers SERVFAIL.',
  refused: 'It refuses the query.',
  malformed: 'Its answer cannot be read.',
  budget: 'There was no time left to query it.',
  'not-authoritative': 'It does not serve this zone.',
  'no-address': 'Its name has no address.',
  'address-unknown': 'Its address could not be looked up.',
  private: 'It has a private address, which is not queried.',
} as const;

export const domainTools = [domainServers];
