import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { Packet, type Resource } from 'dns2';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { type Cache, createCache, type Fresh } from './cache.ts';
import { type Asking, createAsking } from './query.ts';
import { type Codec, type Reply, type ReplyRecord, readReply } from './reply.ts';
import { createServers, systemServers } from './servers.ts';
import {
  type Answer,
  type Budget,
  type DnsSettings,
  isLocalhost,
  type MxRecord,
  type RecordType,
  type Resolver,
  toQuestionName,
} from './types.ts';

export interface ResolverDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly ids: Ids;
  /** The servers to ask when the settings name none; resolv.conf unless given. Read again every minute. */
  readonly systemServers?: () => readonly string[];
  /** /etc/hosts unless given. */
  readonly hostsFile?: string;
  /** Answers to keep; 0 asks anew each time, for who wants to see what changed just now. */
  readonly cacheEntries?: number;
  readonly metrics?: Metrics | undefined;
}

const MOST_RECORDS = 256; // in one packet: names made of pointers take long to read
const OPT_SIZE = 1232; // RFC 6891 section 6.2.5
const OWN_TTL_S = 3600; // of what we know without asking

/** Questions to the name servers of the settings, or of the system: every answer checked, every failure a value. */
export function createResolver(settings: DnsSettings, deps: ResolverDeps): Resolver {
  const { clock } = deps;
  const hosts = createHosts(deps.hostsFile ?? '/etc/hosts', clock);
  const newId = () => Math.floor(deps.ids.jitter() * 0x10000);
  const servers = createServers(settings.servers, deps.systemServers ?? systemServers, clock);
  const asking = createAsking({ clock, log: deps.log, metrics: deps.metrics, codec: CODEC, servers, newId }, settings);
  const entries = deps.cacheEntries ?? 10_000;
  const texts = createLookup(
    { asking, cache: createCache<string>(entries, clock), read: readText, clock },
    settings.timeoutMs,
  );
  const exchanges = createLookup(
    { asking, cache: createCache<MxRecord>(entries, clock), read: readMx, clock },
    settings.timeoutMs,
  );

  function resolve(name: string, type: 'MX', budget?: Budget): Promise<Answer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: Budget): Promise<Answer<string>>;
  function resolve(name: string, type: RecordType, budget?: Budget): Promise<Answer<MxRecord> | Answer<string>> {
    return type === 'MX' ? exchanges(name, type, budget) : texts(name, type, budget);
  }

  async function addresses(host: string, budget?: Budget): Promise<Answer<string>> {
    if (isIP(host)) return { kind: 'records', records: [host], ttl: OWN_TTL_S };
    const name = toQuestionName(host);
    if (name === undefined) return { kind: 'nxdomain' };
    if (isLocalhost(name)) return { kind: 'records', records: ['127.0.0.1', '::1'], ttl: OWN_TTL_S };
    const written = await hosts.find(name);
    if (written) return { kind: 'records', records: written, ttl: 0 };
    return joined(...(await Promise.all([resolve(name, 'A', budget), resolve(name, 'AAAA', budget)])));
  }

  return frozen({ resolve, addresses, stop: async () => asking.stop() });
}

/** Both families as one answer. One of them is enough; without any, a failure outweighs an absence. */
function joined(four: Answer<string>, six: Answer<string>): Answer<string> {
  if (four.kind === 'records' && six.kind === 'records') {
    return { kind: 'records', records: [...four.records, ...six.records], ttl: Math.min(four.ttl, six.ttl) };
  }
  const both = [four, six];
  return (
    both.find((one) => one.kind === 'records') ??
    both.find((one) => one.kind === 'failure') ??
    both.find((one) => one.kind === 'none') ??
    four
  );
}

function readText(value: string | MxRecord): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function readMx(value: string | MxRecord): MxRecord | undefined {
  return typeof value === 'string' ? undefined : value;
}

/** dns2's packets. Its clients stay unused: they ask public servers, take what comes for the answer, and know no deadline over TCP. */
const CODEC: Codec = Object.freeze({
  encode(id: number, name: string, type: RecordType, opt: boolean): Buffer {
    const packet = new Packet(new Packet.Header({ id, rd: 1 }));
    packet.questions.push(new Packet.Question(name, Packet.TYPE[type], Packet.CLASS.IN));
    if (opt) packet.additionals.push(Packet.Resource.EDNS([], { udpPayloadSize: OPT_SIZE }));
    return packet.toBuffer();
  },
  decode(bytes: Buffer): Reply | undefined {
    const count = bytes.readUInt16BE(6) + bytes.readUInt16BE(8) + bytes.readUInt16BE(10);
    if (count > MOST_RECORDS) return undefined;
    let packet: Packet;
    try {
      packet = Packet.parse(bytes);
    } catch {
      return undefined;
    }
    const truncated = packet.header.tc === 1;
    if (packet.errors.length > 0 && !truncated) return undefined; // a truncated packet may well end in the middle
    const soa = packet.authorities.find((record) => record.type === Packet.TYPE.SOA);
    const delegates = packet.authorities.some((record) => record.type === Packet.TYPE.NS);
    return {
      rcode: packet.header.rcode,
      truncated,
      records: packet.answers.map(toRecord).filter((record) => record !== undefined),
      absenceTtl: soa && Math.min(soa.ttl, soa.minimum ?? 0),
      referral: packet.header.rcode === 0 && packet.header.aa === 0 && packet.answers.length === 0 && delegates && !soa,
    };
  },
});

function toRecord(record: Resource): ReplyRecord | undefined {
  if (record.class !== Packet.CLASS.IN) return undefined;
  const type = Packet.typeName(record.type);
  const value = toValue(record, type);
  return value === undefined ? undefined : { owner: record.name.toLowerCase(), type, ttl: record.ttl, value };
}

function toValue(record: Resource, type: string): string | MxRecord | undefined {
  switch (type) {
    case 'A':
    case 'AAAA':
      return record.address;
    case 'CNAME':
    case 'PTR':
      return record.domain;
    case 'NS':
      return record.ns;
    case 'TXT':
      return Array.isArray(record.data) ? record.data.join('') : undefined;
    case 'MX':
      return record.exchange === undefined ? undefined : { exchange: record.exchange, priority: record.priority ?? 0 };
    default:
      return undefined;
  }
}

/** One question with everything around it: the name checked, the budget charged, the cache looked at, aliases followed. */
export type Lookup<T> = (name: string, type: RecordType, budget?: Budget) => Promise<Answer<T>>;

interface Deps<T> {
  readonly asking: Asking;
  readonly cache: Cache<T>;
  readonly read: (value: string | MxRecord) => T | undefined;
  readonly clock: Clock;
}

const LONGEST_ALIAS_CHAIN = 8;
const MOST_KEPT_S = 3600;
const MOST_KEPT_ABSENCE_S = 300;
const KEPT_FAILURE_MS = 5000; // RFC 9520 section 3.2: at least a second, at most five minutes

/** Look-ups of records of one form. `timeoutMs` is for one question, its aliases included. */
export function createLookup<T>({ asking, cache, read, clock }: Deps<T>, timeoutMs: number): Lookup<T> {
  async function look(name: string, type: RecordType): Promise<Fresh<T>> {
    const deadline = clock.monotonic() + timeoutMs;
    let target = name;
    let ttl = Number.MAX_SAFE_INTEGER; // who asks sees all of it; only the keeping is bounded
    for (let aliases = 0; aliases < LONGEST_ALIAS_CHAIN; aliases++) {
      const heard = await asking.ask(target, type, deadline);
      if (heard.kind === 'failure') return { answer: heard, keepMs: KEPT_FAILURE_MS };
      const reading = readReply(heard.reply, target, type, ttl, read);
      if (reading.kind === 'answer') return { answer: reading.answer, keepMs: keepMs(reading.answer, reading.ttl) };
      target = reading.target;
      ttl = reading.ttl;
    }
    return { answer: { kind: 'failure', reason: 'malformed' }, keepMs: KEPT_FAILURE_MS }; // aliases in a circle
  }

  return async (name, type, budget) => {
    if (budget && !budget.take()) return { kind: 'failure', reason: 'budget' };
    const asked = toQuestionName(name);
    if (asked === undefined) return { kind: 'nxdomain' }; // what cannot be asked does not exist
    const key = `${type} ${asked}`;
    const known = cache.find(key);
    if (known) return known;
    if (budget && budget.left() <= 0) return { kind: 'failure', reason: 'budget' };
    const answer = cache.ask(key, () => look(asked, type));
    return budget ? within(answer, budget, clock) : answer;
  };
}

function keepMs(answer: Answer<unknown>, ttl: number): number {
  return Math.min(ttl, answer.kind === 'records' ? MOST_KEPT_S : MOST_KEPT_ABSENCE_S) * 1000;
}

/** The answer, or `budget` when the asker's time is over first. The question itself goes on, for others and for the cache. */
function within<T>(answer: Promise<Answer<T>>, budget: Budget, clock: Clock): Promise<Answer<T>> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(budget.left(), () => resolve({ kind: 'failure', reason: 'budget' }));
    answer.then(resolve, reject).finally(cancel);
  });
}

/** The names that the operator wrote into the hosts file. */
export interface Hosts {
  /** The addresses of a name in question form; undefined when the file does not have it. */
  find(name: string): Promise<readonly string[] | undefined>;
}

const KEPT_MS = 10_000;

/** Parses the text of a hosts(5) file: name in lower case to its addresses, in the order of the file. */
export function parseHosts(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (address === undefined || !isIP(address)) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      const addresses = found.get(key);
      if (addresses) addresses.push(address);
      else found.set(key, [address]);
    }
  }
  return found;
}

/** The hosts file at `path`, read again when it was last read more than ten seconds ago. Missing is empty. */
export function createHosts(path: string, clock: Clock): Hosts {
  let table: Promise<Map<string, string[]>> | undefined;
  let readAt = 0;
  return frozen({
    async find(name) {
      if (!table || clock.monotonic() - readAt > KEPT_MS) {
        readAt = clock.monotonic();
        table = readFile(path, 'utf8').then(parseHosts, () => new Map<string, string[]>());
      }
      return (await table).get(name);
    },
  });
}
