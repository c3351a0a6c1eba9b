import { isIP } from 'node:net';
import type { Resource } from 'dns2';
import { Packet } from 'dns2';
import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { createAsking } from './asking.ts';
import { createCache } from './cache.ts';
import { createHosts } from './hosts.ts';
import { createLookup } from './lookup.ts';
import { isLocalhost, toQuestionName } from './names.ts';
import type { Codec, Reply, ReplyRecord } from './reply.ts';
import { createServers, systemServers } from './servers.ts';
import type { Answer, Budget, DnsSettings, MxRecord, RecordType, Resolver } from './types.ts';

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

  return Object.freeze({ resolve, addresses, stop: async () => asking.stop() });
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
