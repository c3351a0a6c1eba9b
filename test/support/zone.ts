import { isIP } from 'node:net';
import type { DnsAnswer, DnsBudget, MxRecord, RecordType, Resolver } from '../../src/dns/types.ts';
import type { Behaviour } from './dns-server.ts';
import { startNameServer } from './dns-server.ts';

export type { Behaviour } from './dns-server.ts';

/** What stands at one name. A type that is not given is NODATA; a name that is not given is NXDOMAIN. */
export interface ZoneNode {
  readonly A?: readonly string[] | (() => readonly string[]);
  readonly AAAA?: readonly string[] | (() => readonly string[]);
  /** An array inside the array is one record of several strings. */
  readonly TXT?: readonly (string | readonly string[])[];
  readonly MX?: readonly MxRecord[];
  readonly PTR?: readonly string[];
  readonly NS?: readonly string[];
  readonly CNAME?: string;
  /** Seconds; 300 unless given. */
  readonly ttl?: number;
  /** Every question for this name, or for these types of it, goes wrong in this way. */
  readonly fails?: 'timeout' | 'servfail' | { readonly [type in RecordType]?: 'timeout' | 'servfail' };
}

/** A zone as an object literal: names (in any case, no final dot) to what stands there. */
export type ZoneRecords = Readonly<Record<string, ZoneNode>>;

export interface Question {
  readonly name: string;
  readonly type: string;
}

/** A name server on 127.0.0.1, on UDP and TCP, that misbehaves on request. */
export interface Zone {
  /** `127.0.0.1:port`, as the settings want it. */
  readonly server: string;
  readonly port: number;
  /** Every question that arrived, in order; those over TCP have `TCP` in front of the type. */
  readonly questions: Question[];
  set(records: ZoneRecords): void;
  /** How to answer from now on: to every question, or to those for one name. */
  behave(how: Behaviour, name?: string): void;
  stop(): Promise<void>;
}

export type Looked =
  | {
      readonly kind: 'records';
      readonly strings: readonly (string | readonly string[] | MxRecord)[];
      readonly ttl: number;
    }
  | { readonly kind: 'cname'; readonly target: string; readonly ttl: number }
  | { readonly kind: 'nxdomain' | 'none' | 'timeout' | 'servfail' };

/** A zone with its names in lower case, so that they are found in any case. */
export function createLookup(records: ZoneRecords): (name: string, type: string) => Looked {
  const nodes = new Map(Object.entries(records).map(([name, node]) => [name.toLowerCase().replace(/\.$/, ''), node]));
  const inner = new Set<string>();
  for (const name of nodes.keys()) {
    const labels = name.split('.');
    for (let i = 1; i < labels.length; i++) inner.add(labels.slice(i).join('.'));
  }
  return (name, type) => {
    const key = name.toLowerCase().replace(/\.$/, '');
    const node = nodes.get(key);
    if (!node) return { kind: inner.has(key) ? 'none' : 'nxdomain' }; // an empty non-terminal exists (RFC 8020)
    return lookAt(node, type);
  };
}

function lookAt(node: ZoneNode, type: string): Looked {
  const fails =
    typeof node.fails === 'object' ? Object.entries(node.fails).find(([of]) => of === type)?.[1] : node.fails;
  if (fails) return { kind: fails };
  const ttl = node.ttl ?? 300;
  if (node.CNAME !== undefined && type !== 'CNAME') return { kind: 'cname', target: node.CNAME, ttl };
  const strings = valuesOf(node, type);
  return strings.length > 0 ? { kind: 'records', strings, ttl } : { kind: 'none' };
}

function valuesOf(node: ZoneNode, type: string): readonly (string | readonly string[] | MxRecord)[] {
  switch (type) {
    case 'A':
      return typeof node.A === 'function' ? node.A() : (node.A ?? []);
    case 'AAAA':
      return typeof node.AAAA === 'function' ? node.AAAA() : (node.AAAA ?? []);
    case 'TXT':
      return node.TXT ?? [];
    case 'MX':
      return node.MX ?? [];
    case 'PTR':
      return node.PTR ?? [];
    case 'NS':
      return node.NS ?? [];
    case 'CNAME':
      return node.CNAME === undefined ? [] : [node.CNAME];
    default:
      return [];
  }
}

function absence(kind: 'nxdomain' | 'none' | 'timeout' | 'servfail'): DnsAnswer<never> {
  return kind === 'nxdomain' || kind === 'none' ? { kind } : { kind: 'failure', reason: kind };
}

/** Starts a real name server for these records. */
export async function startZone(
  records: ZoneRecords,
  address?: { readonly host: string; readonly port: number },
): Promise<Zone> {
  let lookup = createLookup(records);
  const running = await startNameServer((name, type) => lookup(name, type), address);
  return {
    server: running.server,
    port: running.port,
    questions: running.questions,
    set(next) {
      lookup = createLookup(next);
    },
    behave: running.behave,
    stop: running.stop,
  };
}

/** The port of the resolver over the same records, without any network; `questions` are those that were asked. */
export function zoneResolver(records: ZoneRecords): Resolver & { readonly questions: Question[] } {
  const lookup = createLookup(records);
  const questions: Question[] = [];

  function ask<T>(
    name: string,
    type: RecordType,
    read: (value: string | readonly string[] | MxRecord) => T | undefined,
    budget?: DnsBudget,
  ): DnsAnswer<T> {
    if (budget && (!budget.take() || budget.left() <= 0)) return { kind: 'failure', reason: 'budget' };
    questions.push({ name, type });
    let target = name;
    let ttl = Infinity;
    for (let hops = 0; hops < 9; hops++) {
      const found = lookup(target, type);
      if (found.kind === 'records') {
        return {
          kind: 'records',
          records: found.strings.map(read).filter((value) => value !== undefined),
          ttl: Math.min(ttl, found.ttl),
        };
      } else if (found.kind === 'cname') {
        ttl = Math.min(ttl, found.ttl);
        target = found.target;
      } else {
        return absence(found.kind);
      }
    }
    return { kind: 'failure', reason: 'servfail' };
  }
  const text = (value: string | readonly string[] | MxRecord) =>
    typeof value === 'string' ? value : 'exchange' in value ? undefined : value.join('');
  const mx = (value: string | readonly string[] | MxRecord) =>
    typeof value === 'object' && 'exchange' in value ? value : undefined;

  function resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  async function resolve(
    name: string,
    type: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    return type === 'MX' ? ask(name, type, mx, budget) : ask(name, type, text, budget);
  }

  async function addresses(host: string, budget?: DnsBudget): Promise<DnsAnswer<string>> {
    const bare = host.toLowerCase().replace(/\.$/, '');
    if (isIP(bare)) return { kind: 'records', records: [bare], ttl: 0 };
    if (bare === 'localhost' || bare.endsWith('.localhost'))
      return { kind: 'records', records: ['127.0.0.1', '::1'], ttl: 0 };
    const [four, six] = [ask(bare, 'A', text, budget), ask(bare, 'AAAA', text, budget)];
    if (four.kind === 'records' && six.kind === 'records') {
      return { kind: 'records', records: [...four.records, ...six.records], ttl: Math.min(four.ttl, six.ttl) };
    }
    if (four.kind === 'records' || six.kind === 'failure') return four.kind === 'records' ? four : six;
    if (six.kind === 'records' || four.kind === 'failure') return six.kind === 'records' ? six : four;
    return four.kind === 'nxdomain' ? four : six;
  }
  return { questions, resolve, addresses, stop: async () => {} };
}
