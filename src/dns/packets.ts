import { Packet, type Resource } from 'dns2';
import { frozen } from '../base/frozen.ts';
import type { DnsAnswer, MxRecord, RecordType } from './types.ts';

/** One record of a reply, with the fields that are used here. */
interface ReplyRecord {
  readonly owner: string;
  readonly type: string;
  readonly ttl: number;
  readonly value: string | MxRecord;
}

/** A decoded packet that answers our question. */
interface Reply {
  readonly rcode: number;
  readonly truncated: boolean;
  readonly records: readonly ReplyRecord[];
  /** How long a negative answer may be cached, in seconds (RFC 2308 section 5); undefined if the packet has no SOA. */
  readonly absenceTtl: number | undefined;
  /** Whether the server answers for its own zone. */
  readonly authoritative: boolean;
  /** Whether the server only refers to other servers, because it does no recursion. */
  readonly referral: boolean;
}

/** Encodes and decodes DNS packets. */
export interface Codec {
  /** A question, with an OPT record (RFC 6891) or without. */
  encode(id: number, name: string, type: RecordType, opt: boolean): Buffer;
  /** Undefined if a record is malformed or incomplete, unless the packet is marked as truncated. */
  decode(bytes: Buffer): Reply | undefined;
}

const MAX_RECORDS = 256; // per packet; compressed names take long to parse
const OPT_SIZE = 1232; // RFC 6891 section 6.2.5

/** Uses dns2 for packets, but not its clients: they accept any packet as the answer, and have no deadline over TCP. */
export const CODEC: Codec = frozen({
  encode: (...question: Question) => encode(1, ...question),
  decode(bytes: Buffer): Reply | undefined {
    const count = bytes.readUInt16BE(6) + bytes.readUInt16BE(8) + bytes.readUInt16BE(10);
    if (count > MAX_RECORDS) return undefined;
    let packet: Packet;
    try {
      packet = Packet.parse(bytes);
    } catch {
      return undefined;
    }
    const truncated = packet.header.tc === 1;
    // A truncated packet may end in the middle of a record.
    if (packet.errors.length > 0 && !truncated) return undefined;
    const soa = packet.authorities.find((record) => record.type === Packet.TYPE.SOA);
    const delegates = packet.authorities.some((record) => record.type === Packet.TYPE.NS);
    return {
      rcode: packet.header.rcode,
      truncated,
      records: packet.answers.map(toRecord).filter((record) => record !== undefined),
      authoritative: packet.header.aa === 1,
      absenceTtl: soa && Math.min(soa.ttl, soa.minimum ?? 0),
      referral: packet.header.rcode === 0 && packet.header.aa === 0 && packet.answers.length === 0 && delegates && !soa,
    };
  },
});

/** For the servers of a zone, which must answer from it without recursion. */
export const DIRECT_CODEC: Codec = frozen({ ...CODEC, encode: (...question: Question) => encode(0, ...question) });

type Question = Parameters<Codec['encode']>;

function encode(recursion: 0 | 1, ...[id, name, type, opt]: Question): Buffer {
  const packet = new Packet(new Packet.Header({ id, rd: recursion }));
  packet.questions.push(new Packet.Question(name, Packet.TYPE[type], Packet.CLASS.IN));
  if (opt) packet.additionals.push(Packet.Resource.EDNS([], { udpPayloadSize: OPT_SIZE }));
  return packet.toBuffer();
}

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

export type DnsFailure = 'timeout' | 'servfail' | 'refused' | 'malformed' | 'unreachable';
export type QuestionOutcome =
  | { readonly kind: 'reply'; readonly reply: Reply }
  | { readonly kind: 'failure'; readonly reason: DnsFailure };

const RCODE_REASONS = new Map<number, DnsFailure>([
  [1, 'malformed'],
  [2, 'servfail'],
  [5, 'refused'],
]);

/** Whether the server gave no answer at all. */
export const gaveNoAnswer = (outcome: QuestionOutcome): boolean =>
  outcome.kind === 'failure' && (outcome.reason === 'timeout' || outcome.reason === 'unreachable');

/** Decides what a reply means: one to read, or a failure for which to ask another server. */
export function outcomeOfReply(reply: Reply | undefined): QuestionOutcome {
  if (!reply || reply.truncated) return { kind: 'failure', reason: 'malformed' };
  if (reply.rcode === 0 || reply.rcode === 3)
    return reply.referral ? { kind: 'failure', reason: 'refused' } : { kind: 'reply', reply };
  return { kind: 'failure', reason: RCODE_REASONS.get(reply.rcode) ?? 'refused' };
}

/**
 * Whether a packet is the reply to our query: the same id, the response bit set, and the same question, in any case
 * (RFC 5452 section 9.1). An error reply may omit the question.
 */
export function isReplyTo(query: Buffer, bytes: Buffer): boolean {
  if (bytes.length < 12 || bytes.readUInt16BE(0) !== query.readUInt16BE(0)) return false;
  const flags = bytes.readUInt16BE(2);
  if ((flags & 0xf800) !== 0x8000) return false; // a response, with opcode QUERY
  const rcode = flags & 0xf;
  if (bytes.readUInt16BE(4) === 0) return rcode !== 0 && rcode !== 3;
  const length = questionLength(query);
  if (bytes.readUInt16BE(4) !== 1 || bytes.length < 12 + length) return false;
  const text = (packet: Buffer) => packet.toString('latin1', 12, 12 + length).toLowerCase();
  return text(query) === text(bytes);
}

function questionLength(query: Buffer): number {
  let at = 12;
  while (at < query.length && query[at] !== 0) at += 1 + (query[at] ?? 0);
  return at + 5 - 12;
}

/** Reads the records that are texts. */
export function toTextRecord(value: string | MxRecord): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function readMx(value: string | MxRecord): MxRecord | undefined {
  return typeof value === 'string' ? undefined : value;
}

/** The result of reading a reply: an answer, or the target of an alias that must be looked up next. */
type Reading<T> =
  | { readonly kind: 'answer'; readonly answer: DnsAnswer<T>; readonly ttl: number }
  | { readonly kind: 'alias'; readonly target: string; readonly ttl: number };

const LONGEST_CHAIN = 16;

/**
 * Follows the aliases inside the reply from `name` to the records of `type`. Records of other owners are ignored: a
 * server may add any. `ttl` is the smallest seen so far; a negative answer is cached as long as its SOA allows, without
 * a SOA not at all.
 */
export function readReply<T>(
  reply: Reply,
  name: string,
  type: RecordType,
  ttl: number,
  read: (value: string | MxRecord) => T | undefined,
): Reading<T> {
  let owner = name;
  for (let links = 0; links < LONGEST_CHAIN; links++) {
    const mine = reply.records.filter((record) => record.owner === owner);
    const wanted = mine.filter((record) => record.type === type);
    if (wanted.length > 0) {
      const smallest = Math.min(ttl, ...wanted.map((record) => record.ttl));
      const records = wanted.map((record) => read(record.value)).filter((value) => value !== undefined);
      return { kind: 'answer', answer: { kind: 'records', records, ttl: smallest }, ttl: smallest };
    }
    const alias = mine.find((record) => record.type === 'CNAME');
    if (typeof alias?.value !== 'string') return endOfChain(reply, owner === name ? undefined : owner, ttl);
    owner = alias.value.toLowerCase();
    ttl = Math.min(ttl, alias.ttl);
  }
  return { kind: 'answer', answer: { kind: 'failure', reason: 'malformed' }, ttl: 0 }; // most likely an alias loop
}

/** Reads a chain that ends without records: the last name has none (RFC 6604), or the alias was not followed. */
function endOfChain(reply: Reply, alias: string | undefined, ttl: number): Reading<never> {
  const absent = Math.min(ttl, reply.absenceTtl ?? 0);
  if (reply.rcode === 3) return { kind: 'answer', answer: { kind: 'nxdomain' }, ttl: absent };
  if (alias !== undefined && reply.absenceTtl === undefined) return { kind: 'alias', target: alias, ttl };
  return { kind: 'answer', answer: { kind: 'none' }, ttl: absent };
}
