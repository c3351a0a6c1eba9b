import type { Bytes } from '../../base/bytes.ts';
import { type DetailText, type Header, type HttpDetail, httpDetailText } from '../../queue/detail.ts';

/** One HTTP request. */
export interface Request {
  readonly method: 'POST' | 'HEAD';
  /** The Host header. */
  readonly host: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Bytes | null;
  readonly secure: boolean;
}

/** A connection at the time it was opened. Times in milliseconds. */
export interface OpenedConnection {
  /** IP address and port. */
  readonly address: string;
  /** `TLSv1.3`; undefined without TLS. */
  readonly tls: string | undefined;
  readonly connectMs: number;
  readonly tlsMs: number | undefined;
}

/** Notes of an attempt while it is made, with times of the monotonic clock. */
export interface AttemptNotes {
  readonly now: () => number;
  lookedUp?: number;
  /** IP addresses with their port. */
  tried: readonly string[];
  request?: Request;
  /** The size of the body in bytes; the body is freed after sending. */
  size: number;
  reused: boolean;
  opened?: OpenedConnection | undefined;
  sentAt?: number | undefined;
  firstByte?: number | undefined;
  response?: HeaderValues | undefined;
}

type HeaderValues = Readonly<Record<string, string | string[] | undefined>>;

/** Maximum number of addresses in the detail. */
const MAX_TRIED = 8;

export function createNotes(now: () => number): AttemptNotes {
  return { now, tried: [], size: 0, reused: false };
}

/** The detail of an attempt, built on demand: a successful first attempt has no headers in it. */
export function toDetailText(notes: AttemptNotes): DetailText {
  return (brief) => {
    const { lookedUp, tried, reused, opened, sentAt, firstByte, response } = notes;
    const facts: HttpDetail = {
      address: opened?.address ?? (tried.length > 0 ? tried.slice(0, MAX_TRIED).join(', ') : undefined),
      tls: opened?.tls,
      reused: reused || undefined,
      ms: {
        dns: rounded(lookedUp),
        // Without the time of an earlier request on the connection.
        connect: reused ? undefined : rounded(opened?.connectMs),
        tls: reused ? undefined : rounded(opened?.tlsMs),
        firstByte: firstByte === undefined || sentAt === undefined ? undefined : rounded(firstByte - sentAt),
      },
    };
    if (brief || sentAt === undefined) return httpDetailText(facts);
    return httpDetailText({ ...facts, request: sentFields(notes), response: response && receivedFields(response) });
  };
}

const rounded = (ms: number | undefined) => (ms === undefined ? undefined : Math.round(ms * 10) / 10);

/** The header fields as undici sends them, with secrets masked. */
function sentFields({ request, size }: AttemptNotes): readonly Header[] {
  if (!request) return [];
  const { method, host, headers } = request;
  return [
    ['host', host],
    ['connection', method === 'HEAD' ? 'close' : 'keep-alive'],
    ...Object.entries(headers).map(([name, value]): Header => [name, withoutSecret(name, value)]),
    ...(method === 'HEAD' ? [] : [['content-length', String(size)] as const]),
  ];
}

/** Characters of a signature that are shown: enough to compare, too few to use. */
const SIGNATURE_SHOWN = 8;

function withoutSecret(name: string, value: string): string {
  if (/^authorization$/i.test(name)) return `${value.split(' ', 1)[0]} …`;
  if (!/signature$/i.test(name)) return value;
  // Several keys give several signatures, each behind its version: `v1,… v1,…`.
  return value
    .split(' ')
    .map((one) => {
      const start = one.lastIndexOf(',') + 1;
      return `${one.slice(0, start + SIGNATURE_SHOWN)}…`;
    })
    .join(' ');
}

/** A cookie may be a credential: only its name is shown. */
function receivedFields(headers: HeaderValues): readonly Header[] {
  return Object.entries(headers).flatMap(([name, values]) =>
    [values ?? []].flat().map((value): Header => [name, name === 'set-cookie' ? value.replace(/=[^;]*/, '=…') : value]),
  );
}
