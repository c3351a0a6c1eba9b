/** What surrounds a contestant while it is measured. */
export interface Conditions {
  /**
   * For each endpoint the milliseconds after which it answers a post, or `Infinity` for one that never does; mail goes
   * to them in turn. `away`: there is one, and nobody listens there. One that answers at once when not set.
   */
  readonly endpoints?: readonly number[] | 'away';
  /** Every session begins with STARTTLS, with a certificate of this kind. */
  readonly certificate?: 'RSA' | 'ECDSA';
  /**
   * The name server answers after so many milliseconds, and each message has a sender domain that it was not asked for
   * before.
   */
  readonly dnsMs?: number;
}

/** A cell is measured under each of its variants, round by round, so that they can be compared. */
export interface Variant extends Conditions {
  readonly label: string;
}

/** One table of the benchmark: a message, and how it is sent. */
export interface Cell extends Conditions {
  /** What is special about it; a cell without one is like every other but for size, sessions and signature. */
  readonly name?: string;
  /** The name in few words, for the plot. */
  readonly label?: string;
  readonly size: string;
  readonly bytes: number;
  readonly signed: boolean;
  readonly connections: number;
  /** Messages in a session before it ends; all there are when not set. */
  readonly perSession?: number;
  /**
   * Messages a second, each due at its time whether or not those before it were answered. When not set, every session
   * sends its next message when it has the answer to the last.
   */
  readonly rate?: number;
  /** At most so many are sent; who is slow gets as many as fit into `seconds`, `SECONDS` when not set. */
  readonly messages: number;
  readonly seconds?: number;
  /**
   * Sent before, so that every contestant is measured as it runs for days and not as it starts; a tenth of `messages`
   * when not set.
   */
  readonly warm?: number;
  readonly variants?: readonly Variant[];
  /** The contestants beside Postern; all when not set. */
  readonly who?: readonly string[];
  /** In the tables that the report begins with. */
  readonly lead: boolean;
  /** In a quick run. */
  readonly quick: boolean;
}

/** How long mail is sent in one measurement. */
export const SECONDS = 4;

const KB = 1000;
const UNDICI = 'by hand, undici';
const DURABLE = 'by hand, durable';
/** Those whose figures say most: the fastest by hand, one that keeps what it answered 250, and a mail server. */
const CLOSEST = [UNDICI, DURABLE, 'postfix'];

const small = { size: '5 kB', bytes: 5 * KB, signed: false, connections: 50, lead: false, quick: false };
const large = { signed: false, lead: true, quick: true, who: CLOSEST };
const fixed = (rate: number) => ({
  ...small,
  name: `${rate.toLocaleString('en')} messages/s, open loop`,
  rate,
  messages: rate * SECONDS,
  warm: 4000,
  who: [UNDICI, DURABLE],
  lead: true,
});
const CERTIFICATES = [
  { label: 'ECDSA', certificate: 'ECDSA' },
  { label: 'RSA', certificate: 'RSA' },
] as const;
const good = (count: number) => Array<number>(count).fill(0);

/** What a person can read and half an hour can hold. */
export const CELLS: readonly Cell[] = [
  { ...small, messages: 20_000, warm: 8000, lead: true, quick: true },
  {
    ...small,
    name: 'an endpoint that answers after 50 ms',
    label: 'endpoint of 50 ms',
    endpoints: [50],
    messages: 15_000,
    warm: 6000,
    who: [UNDICI, DURABLE],
    lead: true,
    quick: true,
  },
  {
    ...small,
    name: 'STARTTLS, one message per connection',
    label: 'STARTTLS, one mail each',
    perSession: 1,
    messages: 5000,
    warm: 1000,
    variants: CERTIFICATES,
    who: [...CLOSEST, 'haraka'],
    lead: true,
    quick: true,
  },
  {
    ...small,
    name: 'the endpoint is down: accepting only',
    label: 'accepting only',
    endpoints: 'away',
    messages: 25_000,
    warm: 5000,
    who: [DURABLE, 'postfix'],
    lead: true,
    quick: true,
  },
  { ...large, size: '50 kB', bytes: 50 * KB, connections: 50, messages: 4000 },
  { ...large, size: '1 MB', bytes: 1000 * KB, connections: 10, messages: 200 },
  { ...large, size: '10 MB', bytes: 10_000 * KB, connections: 10, messages: 20 },
  fixed(500),
  { ...fixed(1000), quick: true },
  fixed(1500),
  {
    ...fixed(500),
    name: '500 messages/s for 100 endpoints',
    seconds: 8,
    messages: 4000,
    variants: [
      { label: 'all answer at once', endpoints: good(100) },
      { label: 'one answers after 5 s, one never', endpoints: [...good(98), 5000, Number.POSITIVE_INFINITY] },
    ],
    who: [],
    quick: true,
  },
  {
    ...fixed(500),
    name: '500 messages/s, each from a domain not seen before',
    variants: [
      { label: 'the name server answers at once', dnsMs: 0 },
      { label: 'after 20 ms', dnsMs: 20 },
    ],
    who: [],
  },
  { ...small, connections: 1, messages: 3000, who: CLOSEST },
  { ...small, connections: 10, messages: 8000, who: CLOSEST },
  { ...small, connections: 500, messages: 10_000, who: CLOSEST },
  { ...small, perSession: 1, messages: 6000, who: [...CLOSEST, 'haraka'] },
  { ...small, signed: true, messages: 12_000, warm: 3000, who: [UNDICI, DURABLE] },
];

/** What a cell is called in the tables. */
export function titleOf({ name, size, signed, connections, perSession }: Cell): string {
  const sessions = connections === 1 ? '1 connection' : `${connections} connections`;
  const extra = name ?? (perSession === 1 ? 'one message each' : undefined);
  return `${size}${signed ? ', DKIM-signed' : ''}, ${sessions}${extra === undefined ? '' : `, ${extra}`}`;
}
