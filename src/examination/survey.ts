import type { NameServers, ServerAnswer } from '../dns/name-servers.ts';
import {
  type DnsAnswer,
  type DnsBudget,
  type MxRecord,
  type RecordType,
  type Resolver,
  sameName,
} from '../dns/types.ts';
import { isSpf, type RecordVerdict, type WantedRecord } from './records.ts';

/** A record as one name server has it. */
export interface SeenRecord {
  /** The name server; null: the resolver of this host, because no name server could be found. */
  readonly server: string | null;
  /** Its values at the name; null if it did not answer. */
  readonly values: readonly string[] | null;
  readonly verdict: RecordVerdict;
  /** The error, as text. */
  readonly error: string | null;
}

/**
 * ok: every name server that answers has it · partly: some have it, so the others will soon · missing: none has any
 * record of this type and name · different: there is another record · unknown: the DNS did not answer.
 */
export type RecordState = 'ok' | 'partly' | 'missing' | 'different' | 'unknown';

export interface SurveyedRecord {
  readonly record: WantedRecord;
  readonly state: RecordState;
  readonly seen: readonly SeenRecord[];
}

interface SurveyDeps {
  readonly resolver: Resolver;
  readonly nameServers: NameServers;
}

/** Asks each name server of the record's zone, because caches would hide new records. Never throws. */
export async function surveyRecord(
  record: WantedRecord,
  { resolver, nameServers }: SurveyDeps,
): Promise<SurveyedRecord> {
  const { name, type } = record;
  const survey = type === 'MX' ? await nameServers.ask(name, type) : await nameServers.ask(name, type);
  const servers: readonly ServerAnswer<string | MxRecord>[] = typeof survey === 'string' ? [] : survey.servers;
  const asked = await Promise.all(servers.map((one) => judge(record, one, resolver)));
  const seen = asked.some(({ values }) => values !== null) ? asked : [await atResolver(record, resolver), ...asked];
  return { record, seen, state: stateOf(record, seen) };
}

async function judge(
  record: WantedRecord,
  { server, answer }: ServerAnswer<string | MxRecord>,
  resolver: Resolver,
): Promise<SeenRecord> {
  if (answer.kind === 'failure')
    return { server, values: null, verdict: 'unknown', error: `no answer (${answer.reason})` };
  return toSeen(server, answer, await record.check(withAnswer(resolver, record, answer)));
}

async function atResolver(record: WantedRecord, resolver: Resolver): Promise<SeenRecord> {
  const { name, type } = record;
  const answer = type === 'MX' ? await resolver.resolve(name, type) : await resolver.resolve(name, type);
  if (answer.kind === 'failure')
    return { server: null, values: null, verdict: 'unknown', error: `no answer (${answer.reason})` };
  return toSeen(null, answer, await record.check(resolver));
}

function toSeen(server: string | null, answer: DnsAnswer<string | MxRecord>, verdict: RecordVerdict): SeenRecord {
  const values = answer.kind === 'records' ? answer.records.map(toValue) : [];
  return { server, values, verdict, error: verdict === 'unknown' ? 'no DNS answer' : verdict.error };
}

const toValue = (record: string | MxRecord): string =>
  typeof record === 'string' ? record : `${record.priority} ${record.exchange}`;

function stateOf(record: WantedRecord, seen: readonly SeenRecord[]): RecordState {
  const judged = seen.filter(({ verdict }) => verdict !== 'unknown');
  const valid = judged.filter(({ verdict }) => verdict !== 'unknown' && verdict.valid).length;
  if (judged.length === 0) return 'unknown';
  if (valid > 0) return valid === judged.length ? 'ok' : 'partly';
  return judged.some(({ values }) => values?.some((value) => isSameKind(record, value))) ? 'different' : 'missing';
}

/** Whether a value counts for this record: a name may have TXT records of other programs, but only one for SPF. */
function isSameKind({ type, value }: WantedRecord, seen: string): boolean {
  return type !== 'TXT' || !isSpf(value) || isSpf(seen);
}

/** The resolver, with this answer for the name and type of the record. */
function withAnswer(resolver: Resolver, { name, type }: WantedRecord, answer: DnsAnswer<string | MxRecord>): Resolver {
  const isAsked = (asked: string, of: RecordType) => of === type && sameName(asked, name);
  function resolve(asked: string, of: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(asked: string, of: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  async function resolve(
    asked: string,
    of: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    if (isAsked(asked, of)) return narrow(answer, of);
    return of === 'MX' ? await resolver.resolve(asked, of, budget) : await resolver.resolve(asked, of, budget);
  }
  return { ...resolver, resolve };
}

function narrow(answer: DnsAnswer<string | MxRecord>, type: RecordType): DnsAnswer<MxRecord> | DnsAnswer<string> {
  if (answer.kind !== 'records') return answer;
  const { ttl, records } = answer;
  return type === 'MX'
    ? { kind: 'records', ttl, records: records.filter((one): one is MxRecord => typeof one !== 'string') }
    : { kind: 'records', ttl, records: records.filter((one): one is string => typeof one === 'string') };
}
