import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../base/clock.ts';
import { mapConcurrently } from '../base/concurrency.ts';
import { printable } from '../base/log.ts';
import { normalizeAddress } from '../base/networks.ts';
import { retryMissing } from '../certificates/certificates.ts';
import { nameServerSettings } from '../composition/slices.ts';
import { createNameServers } from '../dns/name-servers.ts';
import type { Resolver } from '../dns/types.ts';
import { isLocal, listenersOf } from '../examination/finding.ts';
import { publicAddresses } from '../examination/published.ts';
import { type RecordGroup, type RecordNeed, type WantedRecord, wantedRecords } from '../examination/records.ts';
import { type SurveyedRecord, surveyRecord } from '../examination/survey.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { mayBeSigned } from '../sending/domains/domain-tests.ts';
import type { Settings } from '../settings.ts';
import { proveSenderDomain } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { type Command, EXIT, type Invocation, toCell, toSpan, UsageError } from './command.ts';
import { hasStore, type StoreCall, tools, withResolver, withStore } from './open.ts';

/** The uses that `--for` names, and the records that each needs. */
const USE_NAMES = ['receiving', 'sending'] as const;
const USES: Readonly<Record<(typeof USE_NAMES)[number], readonly RecordNeed[]>> = {
  receiving: ['receiving'],
  sending: ['receiving', 'sending', 'advised'],
};

/** The interval between checks of unpublished records. Milliseconds. */
const LOOK_MS = 5000;
const MINUTES = 60;
/** TTL in zone lines. Seconds. */
const TTL = 3600;

/** The option that names the addresses of this host. */
export const addressOption = {
  multiple: true,
  value: 'IP',
  help: 'a public address of this host (default: those of its name in the DNS, else those of this machine)',
} as const;

export const dns: Command = {
  args: '[DOMAIN…]',
  options: {
    zone: { help: 'print the records as lines of a zone file' },
    missing: { help: 'only records that are missing or have a wrong value' },
    for: {
      value: 'USE',
      values: USE_NAMES,
      help: 'receiving: only the records without which mail does not arrive; sending: all (default)',
    },
    address: addressOption,
    wait: { help: 'wait until all records are published, and report each one' },
    timeout: { value: 'MINUTES', help: `with --wait: give up after this time (default: ${MINUTES})` },
  },
  notes:
    'With DOMAIN, only records at or below these names. Name servers are asked directly, so that no cache hides a ' +
    'new record. --wait does not wait for advised records. Records of a sender domain are listed once it is added: ' +
    'postern sender add.\n\n' +
    '  postern dns --zone --missing > records.txt\n' +
    '  postern dns --wait',
  async run(call, io) {
    const { settings } = call.settings();
    const minutes = Number(call.text('timeout') ?? MINUTES);
    if (!(minutes > 0)) throw new UsageError('--timeout must be a number of minutes');
    const [use = 'sending'] = call.known('for', USE_NAMES);
    const needs = USES[use];
    return withDns(settings, async (tools) => {
      const look = (store: Store | undefined) => report({ call, io, settings, needs, minutes, store, ...tools });
      return hasStore(settings) ? withStore(settings, look) : look(undefined);
    });
  },
};

interface Tools {
  readonly resolver: Resolver;
  readonly survey: (record: WantedRecord) => Promise<SurveyedRecord>;
}

interface Job extends Omit<StoreCall, 'store'>, Tools {
  readonly needs: readonly RecordNeed[];
  readonly minutes: number;
  readonly store: Store | undefined;
}

/** Calls `use` with the resolver and a function that queries the name servers of a record. */
function withDns<T>(settings: Settings, use: (tools: Tools) => Promise<T>): Promise<T> {
  return withResolver(settings, (resolver) => {
    const isAlone = isLocal({ listeners: listenersOf(settings) });
    const nameServers = createNameServers(nameServerSettings(settings, isAlone), { ...tools, resolver });
    return use({ resolver, survey: (record) => surveyRecord(record, { resolver, nameServers }) });
  });
}

/** The unpublished records of this host and all its domains; `isDone`: all are published except advised ones. */
export function missingRecords({
  settings,
  store,
  addresses,
}: Pick<Job, 'settings' | 'store'> & { readonly addresses: readonly string[] }) {
  return withDns(settings, async (tools) => {
    const world = { settings, store, addresses, clock: systemClock, resolver: tools.resolver, isAsked: () => true };
    const missing = onlyMissing(await surveyAll(await Array.fromAsync(wantedRecords(world)), tools));
    return {
      zone: missing.map(toZone).join('\n'),
      records: missing.flatMap(toRecords),
      isDone: !missing.some(isPending),
    };
  });
}

/** A group of records, with the state of each. */
interface SurveyedGroup {
  readonly title: string;
  readonly records: readonly SurveyedRecord[];
}

async function report(job: Job): Promise<number> {
  const { call, io } = job;
  const wanted = await wantedGroups(job);
  let groups = await surveyAll(wanted, job);
  if (call.flag('wait') && groups.some(isPending)) {
    if (call.format === 'text') io.out(`${toText(groups)}\n`);
    groups = await waitFor(groups, job);
  }
  const shown = call.flag('missing') ? onlyMissing(groups) : groups;
  const done = !groups.some(isPending);
  if (call.flag('wait') && done) await goOn(job);
  call.print(shown.flatMap(toRecords), () => {
    if (call.flag('zone')) return shown.map(toZone).join('\n');
    return call.flag('wait') && done ? 'All records are published.\n' : `${toText(shown)}\n${nextStep(groups, job)}`;
  });
  return done ? EXIT.ok : EXIT.failed;
}

/** The records of the requested names. */
async function wantedGroups(job: Job): Promise<RecordGroup[]> {
  const { call, settings, resolver, store, needs } = job;
  const { isBelow, isAsked } = askedNames(call);
  const addresses = await addressesOf(call, settings, resolver);
  if (addresses.length === 0)
    throw new UsageError(
      `no public address found for ${settings.hostname}, neither in the DNS nor on this machine; pass it: --address IP`,
    );
  const groups: RecordGroup[] = [];
  const world = { settings, resolver, clock: systemClock, store, addresses, isAsked };
  for await (const { title, records } of wantedRecords(world)) {
    const left = records.filter(({ name, need }) => needs.includes(need) && isBelow(name));
    if (left.length > 0) groups.push({ title, records: left });
  }
  if (groups.length === 0)
    throw new UsageError(
      `no records for ${call.words.join(', ')}. Add it first: postern domain add, or postern sender add`,
    );
  return groups;
}

/** The names and domains in the arguments; without arguments, all. */
function askedNames(call: Invocation) {
  const below = call.words.map((word) => {
    const domain = toAsciiDomain(word.trim());
    if (domain === undefined) throw new UsageError(`"${word}" is not a domain name`);
    return `.${domain}`;
  });
  const isBelow = (name: string) => below.length === 0 || below.some((end) => `.${name}`.endsWith(end));
  const isAsked = (domain: string) => isBelow(domain) || below.some((name) => name.endsWith(`.${domain}`));
  return { isBelow, isAsked };
}

/** The public addresses of this host: as given, else of its name in the DNS, else of its network interfaces. */
export async function addressesOf(
  call: Invocation,
  { hostname }: Pick<Settings, 'hostname'>,
  resolver: Resolver,
): Promise<readonly string[]> {
  const given = call.texts('address').map((text) => {
    const address = normalizeAddress(text);
    if (address === undefined) throw new UsageError(`"${text}" is not an IP address`);
    return address;
  });
  return given.length > 0 ? given : publicAddresses(resolver, hostname);
}

async function surveyAll(groups: readonly RecordGroup[], { survey }: Tools): Promise<SurveyedGroup[]> {
  const surveyed: SurveyedGroup[] = [];
  for (const { title, records } of groups) surveyed.push({ title, records: await mapConcurrently(records, survey) });
  return surveyed;
}

const isOpen = ({ state, record }: SurveyedRecord) => state !== 'ok' && record.need !== 'advised';
const isPending = ({ records }: SurveyedGroup) => records.some(isOpen);

function onlyMissing(groups: readonly SurveyedGroup[]): SurveyedGroup[] {
  return groups
    .map(({ title, records }) => ({ title, records: records.filter(({ state }) => state !== 'ok') }))
    .filter(({ records }) => records.length > 0);
}

/** Repeats the checks until all are published, the time is over, or a signal ends it. */
async function waitFor(groups: readonly SurveyedGroup[], job: Job): Promise<SurveyedGroup[]> {
  const { call, io, minutes, survey } = job;
  const ending = new AbortController();
  io.onSignal(() => ending.abort());
  const began = systemClock.monotonic();
  const passed = () => systemClock.monotonic() - began;
  const say = (text: string) => {
    if (call.format === 'text') io.out(text);
  };
  const count = groups.flatMap(({ records }) => records).filter(isOpen).length;
  say(`Waiting for ${count} ${count === 1 ? 'record' : 'records'}, at most ${minutes} minutes; Ctrl-C ends it.\n`);
  let now = [...groups];
  while (now.some(isPending) && passed() < minutes * 60_000 && !ending.signal.aborted) {
    const left = minutes * 60_000 - passed();
    await pause(Math.min(LOOK_MS, left), undefined, { signal: ending.signal }).catch(() => undefined);
    if (ending.signal.aborted) break;
    const look = async (known: SurveyedRecord) => {
      if (!isOpen(known)) return known;
      const after = await survey(known.record);
      const { name, type } = after.record;
      if (!isOpen(after)) say(`ok         ${name}  ${type}  after ${toSpan(passed())}\n`);
      return after;
    };
    now = await mapConcurrently(now, async ({ title, records }) => ({
      title,
      records: await mapConcurrently(records, look),
    }));
  }
  return now;
}

/** Triggers the work that waited for the records: first certificates, and tests of sender domains. */
async function goOn({ call, store, needs }: Job): Promise<void> {
  if (!store) return;
  await retryMissing(store, systemClock);
  if (!needs.includes('sending')) return;
  const { isAsked } = askedNames(call);
  const now = new Date(systemClock.now());
  const verified = await store.senderDomains.many({ verifiedAt: { range: { lte: now } } });
  for (const row of verified.filter(({ domain }) => isAsked(domain)))
    if (!mayBeSigned(row, now)) await proveSenderDomain(store, row.account, row.domain, now);
}

const toRecords = ({ title, records }: SurveyedGroup): object[] =>
  records.map(({ record, state, seen }) => ({
    group: title,
    name: record.name,
    type: record.type,
    value: record.value,
    need: record.need,
    purpose: record.purpose,
    state,
    seen: seen.map(({ server, values, error }) => ({ server, values, error })),
  }));

function toText(groups: readonly SurveyedGroup[]): string {
  const all = groups.flatMap(({ records }) => records);
  const width = Math.min(50, Math.max(0, ...all.map(({ record }) => record.name.length)));
  return groups
    .map(({ title, records }) => `${title}\n${records.map((one) => toLines(one, width)).join('')}`)
    .join('\n');
}

const INDENT = ' '.repeat(11);

function toLines({ record, state, seen }: SurveyedRecord, width: number): string {
  const { name, type, value, purpose, need } = record;
  const isOk = state === 'ok';
  const line = `${state.padEnd(9)}  ${name.padEnd(width)}  ${type.padEnd(4)}  ${isOk ? toCell(value) : value}\n`;
  if (isOk) return line;
  const advised = need === 'advised' ? 'advised: ' : '';
  const errors =
    state === 'missing' ? [] : seen.map(({ server, error }) => `${server ?? 'resolver'}: ${error ?? 'ok'}`);
  return [line, ...[advised + purpose, ...errors].map((text) => `${INDENT}${printable(text)}\n`)].join('');
}

/** Lines for a zone file; reverse zones as comments, because they belong to the provider of the address. */
function toZone({ title, records }: SurveyedGroup): string {
  const lines = records.map(({ record: { name, type, value, purpose } }, at) => {
    const line = `${`${name}.`.padEnd(40)} ${TTL} IN ${type.padEnd(4)} ${type === 'TXT' ? toStrings(value) : value}\n`;
    const comment = purpose === records[at - 1]?.record.purpose ? '' : `; ${purpose}\n`;
    return type === 'PTR' ? `${comment}; ${line}` : `${comment}${line}`;
  });
  return `; ${title}\n${lines.join('')}`;
}

/** A TXT record consists of strings of at most 255 octets (RFC 1035 section 3.3). */
function toStrings(text: string): string {
  const quoted = (text.match(/.{1,255}/gs) ?? ['']).map((part) => `"${part.replaceAll(/(["\\])/g, '\\$1')}"`);
  return quoted.length === 1 ? (quoted[0] ?? '') : `( ${quoted.join(' ')} )`;
}

function nextStep(groups: readonly SurveyedGroup[], { call, store }: Job): string {
  const records = groups.flatMap((group) => group.records);
  const open = records.filter(isOpen).length;
  const given = call
    .texts('address')
    .map((address) => ` --address ${address}`)
    .join('');
  if (open > 0)
    return (
      `next: publish the ${open === 1 ? 'record' : `${open} records`} above that ${open === 1 ? 'is' : 'are'} not ok ` +
      `(postern dns --zone --missing${given}), then run postern dns --wait${given}\n`
    );
  const advised = records.filter(({ state }) => state !== 'ok').length;
  const done = advised === 0 ? 'All records are published.' : `All records are published, except ${advised} advised.`;
  const start = 'start the daemon, then run postern dns again, which then lists the DKIM key too';
  return `${done}\nnext: ${store ? 'postern doctor' : start}\n`;
}
