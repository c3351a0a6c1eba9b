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

/** Every answer of type A, AAAA, TXT (its strings joined), CNAME, PTR and NS is a string. Names are taken in any case, without a final dot. */
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
