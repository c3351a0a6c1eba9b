import { domainToASCII } from 'node:url';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';

export type RecordType = 'A' | 'AAAA' | 'MX' | 'TXT' | 'CNAME' | 'PTR' | 'NS';

export interface MxRecord {
  readonly exchange: string;
  readonly priority: number;
}

/** The answer to one question: records with the smallest TTL (seconds) among them, or why there are none. */
export type DnsAnswer<T> =
  | { readonly kind: 'records'; readonly records: readonly T[]; readonly ttl: number }
  /** nxdomain: the name does not exist; none: the name exists but has no records of this type. */
  | { readonly kind: 'nxdomain' | 'none' }
  /** The lookup failed and may be retried later. */
  | {
      readonly kind: 'failure';
      readonly reason: 'timeout' | 'servfail' | 'refused' | 'malformed' | 'budget' | 'unreachable';
    };

/** The DNS budget of one message: a number of questions, and a time for all of them. */
export interface DnsBudget {
  /** Uses one question; false if none is left. */
  take(): boolean;
  /** Milliseconds left for all questions. */
  left(): number;
}

/**
 * Creates a DNS budget: at most `questions` queries, all within `ms` milliseconds from now. Queries answered from the
 * cache count too, so that the result does not depend on earlier lookups.
 */
export function createDnsBudget(questions: number, ms: number, clock: Clock): DnsBudget {
  const end = clock.monotonic() + ms;
  let asked = 0;
  return frozen({
    take: () => asked < questions && ++asked > 0,
    left: () => Math.max(0, end - clock.monotonic()),
  });
}

/**
 * Looks up records. Answers of type A, AAAA, TXT (with its strings joined), CNAME, PTR and NS are strings. Names are
 * accepted in any case, with or without a final dot.
 */
export interface Resolver {
  resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  /** The IPv4 and IPv6 addresses of a host; the hosts file comes first (RFC 6761: localhost is always loopback). */
  addresses(host: string, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  stop(): Promise<void>;
}

export interface DnsSettings {
  /** `ip:port` or `[ip6]:port`; if empty, the servers of the system. */
  readonly servers: readonly string[];
  /** Milliseconds for one question, all retries included. */
  readonly timeoutMs: number;
  readonly questionsPerMessage: number;
  readonly budgetMs: number;
}

const LONGEST_NAME = 253; // 255 octets on the wire (RFC 1035 section 2.3.4)
const LONGEST_LABEL = 63;

/**
 * The form in which a name is looked up: lower case, A-labels, no final dot. Undefined if the name cannot exist in the
 * DNS: an empty or overlong label, an overlong name, or a character outside ASCII that IDNA rejects. Every printable
 * ASCII character is allowed, because SPF macros produce names with unusual characters.
 */
export function toQuestionName(name: string): string | undefined {
  const bare = name.endsWith('.') ? name.slice(0, -1) : name;
  // domainToASCII would silently drop line breaks
  if (bare.length > 4 * LONGEST_NAME || /[\x00-\x1f\x7f]/.test(bare)) return undefined;
  const ascii = /^[\x20-\x7e]*$/.test(bare) ? bare.toLowerCase() : domainToASCII(bare);
  if (ascii.length === 0 || ascii.length > LONGEST_NAME) return undefined;
  for (const label of ascii.split('.')) {
    if (label.length === 0 || label.length > LONGEST_LABEL) return undefined;
  }
  return ascii;
}

/** Whether two names are equal, ignoring case, a final dot, and the difference between U-labels and A-labels. */
export function sameName(a: string, b: string): boolean {
  const name = toQuestionName(a);
  return name !== undefined && name === toQuestionName(b);
}

/** Whether a name is localhost or below it: always this machine, never looked up (RFC 6761 section 6.3). */
export function isLocalhost(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}
