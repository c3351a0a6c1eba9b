import { domainToASCII } from 'node:url';

export type RecordType = 'A' | 'AAAA' | 'MX' | 'TXT' | 'CNAME' | 'PTR' | 'NS';

export interface MxRecord {
  readonly exchange: string;
  readonly priority: number;
}

/** One question, one answer: records with the smallest TTL (seconds) among them, or a typed absence. */
export type Answer<T> =
  | { readonly kind: 'records'; readonly records: readonly T[]; readonly ttl: number }
  /** nxdomain: no such name · none: the name is there, records of this type are not. */
  | { readonly kind: 'nxdomain' | 'none' }
  /** Nobody knows: try later. */
  | {
      readonly kind: 'failure';
      readonly reason: 'timeout' | 'servfail' | 'refused' | 'malformed' | 'budget' | 'unreachable';
    };

/** What one message may ask: a count of questions and a time for all of them. */
export interface Budget {
  /** False when it is used up; else takes one. */
  take(): boolean;
  /** Milliseconds left for everything. */
  left(): number;
}

/**
 * Every answer of type A, AAAA, TXT (its strings joined), CNAME, PTR and NS is a string. Names are taken in any case,
 * without a final dot.
 */
export interface Resolver {
  resolve(name: string, type: 'MX', budget?: Budget): Promise<Answer<MxRecord>>;
  resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: Budget): Promise<Answer<string>>;
  /** IPv4 and IPv6 addresses of a host, the hosts file first (RFC 6761: localhost is always loopback). */
  addresses(host: string, budget?: Budget): Promise<Answer<string>>;
  stop(): Promise<void>;
}

export interface DnsSettings {
  /** `ip:port` or `[ip6]:port`; empty: the system's. */
  readonly servers: readonly string[];
  /** Milliseconds for one question, all retries included. */
  readonly timeoutMs: number;
  readonly questionsPerMessage: number;
  readonly budgetMs: number;
}

const LONGEST_NAME = 253; // 255 octets on the wire (RFC 1035 section 2.3.4)
const LONGEST_LABEL = 63;

/**
 * The form in which a name is asked: lower case, A-labels, no final dot.
 * Undefined for what cannot stand in the DNS (an empty or overlong label, an overlong name, a character outside ASCII
 * that IDNA refuses). SPF macros make names of unusual characters, so every printable one is let through.
 */
export function toQuestionName(name: string): string | undefined {
  const bare = name.endsWith('.') ? name.slice(0, -1) : name;
  // a URL parser would drop a line end silently
  if (bare.length > 4 * LONGEST_NAME || /[\x00-\x1f\x7f]/.test(bare)) return undefined;
  const ascii = /^[\x20-\x7e]*$/.test(bare) ? bare.toLowerCase() : domainToASCII(bare);
  if (ascii.length === 0 || ascii.length > LONGEST_NAME) return undefined;
  for (const label of ascii.split('.')) {
    if (label.length === 0 || label.length > LONGEST_LABEL) return undefined;
  }
  return ascii;
}

/** Whether two names are the same one, whatever their case, final dot or script. */
export function sameName(a: string, b: string): boolean {
  const name = toQuestionName(a);
  return name !== undefined && name === toQuestionName(b);
}

/** localhost and everything below it is this machine and is never asked for (RFC 6761 section 6.3). */
export function isLocalhost(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}
