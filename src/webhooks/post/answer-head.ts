import type { Socket } from 'node:net';
import { frozen } from '../../base/frozen.ts';

// undici's parser is strict: an unrequested 100, two equal Content-Length fields or a folded field end the connection,
// although the status says that the receiver accepted the mail. So the head of each response is read here first,
// leniently, and passed on in the syntax of RFC 9112.

/** Octets of the heads of one response that are kept; the rest is dropped (RFC 9110 section 5.4). */
const HEAD_BYTES = 64 * 1024;
/** The header limit for undici: the kept head, and our additions. */
export const MAX_HEAD_BYTES = HEAD_BYTES + 1024;

export type AnswerReading = ReturnType<typeof readHeads>;

/** Intercepts `read` of a socket to rewrite the heads of responses. */
export function readHeads(socket: Socket) {
  let head: Head | undefined = createHead();
  let status: number | undefined;
  let swallows = false;
  const read = socket.read.bind(socket);

  function pass(chunk: Buffer): Buffer | null {
    if (swallows) return null;
    if (!head) return chunk;
    const rest = head.add(chunk);
    status = head.status();
    if (rest === undefined) return null;
    swallows = rest.cut;
    head = undefined;
    return rest.bytes;
  }

  socket.read = (size?: number) => {
    // Reads on while bytes are held back, because the caller takes null for the end of the data.
    for (;;) {
      const chunk: unknown = read(size);
      if (!Buffer.isBuffer(chunk)) return chunk;
      const passed = pass(chunk);
      if (passed) return passed;
    }
  };
  return frozen({
    /** Announces a request: the next bytes are the head of its response. */
    expect() {
      head = createHead();
      status = undefined;
    },
    /** The status of the answer once its first line has come; undefined before. */
    status: () => status,
  });
}

/**
 * The bytes for the parser: the head, and the bytes after it. `cut`: the header was too long, so the bytes that follow
 * are not the body.
 */
interface Passed {
  readonly bytes: Buffer;
  readonly cut: boolean;
}

const LF = 0x0a;
const CR = 0x0d;

/** Collects the heads of one response, interim ones first. Linear in the octets. */
function createHead() {
  let held: Buffer = Buffer.alloc(0);
  let length = 0;
  let start = 0;
  let lineStart = 0;
  let seen: number | undefined;

  function keep(chunk: Buffer): void {
    if (length === 0) held = chunk;
    else if (length + chunk.length <= held.length) chunk.copy(held, length);
    else {
      const larger = Buffer.allocUnsafe(2 * (length + chunk.length));
      held.copy(larger, 0, 0, length);
      chunk.copy(larger, length);
      held = larger;
    }
    length += chunk.length;
  }

  return frozen({
    /** Undefined while more must come. */
    add(chunk: Buffer): Passed | undefined {
      let at = length;
      keep(chunk);
      for (; at < length && at < HEAD_BYTES; at++) {
        if (held[at] !== LF) continue;
        const empty = at === lineStart || (at === lineStart + 1 && held[lineStart] === CR);
        const first = lineStart === start;
        lineStart = at + 1;
        if (empty && first) start = lineStart; // before the status line (RFC 9112 section 2.2)
        if (first && !empty) {
          const code = statusOf(held.toString('latin1', start, at));
          // Not HTTP: the parser reports it.
          if (code === undefined) return { bytes: held.subarray(start, length), cut: false };
          if (!isInterim(code)) seen = code;
        }
        if (!empty || first) continue;
        if (seen === undefined)
          start = lineStart; // any number of these may come (RFC 9110 section 15.2)
        else return { bytes: withHead(held.subarray(0, length), start, lineStart), cut: false };
      }
      if (length < HEAD_BYTES) return undefined;
      if (seen === undefined) return { bytes: NOT_HTTP, cut: true };
      return {
        bytes: Buffer.from(toHead(held.toString('latin1', start, lineStart), NOTHING_FOLLOWS), 'latin1'),
        cut: true,
      };
    },
    status: () => seen,
  });
}

type Head = ReturnType<typeof createHead>;

const NOT_HTTP = Buffer.from('\0');
const NOTHING_FOLLOWS = 'content-length: 0\r\n';
const STATUS_LINE = /^HTTP\/1\.\d[ \t]+(\d{3})(?!\d)/i;

function statusOf(line: string): number | undefined {
  const code = STATUS_LINE.exec(line)?.[1];
  return code === undefined ? undefined : Number(code);
}

/** 101 ends the use of HTTP, which was not requested. */
const isInterim = (code: number) => code >= 100 && code < 200 && code !== 101;

const STRICT = /^HTTP\/1\.[01] \d{3}(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+.^_`|~\w-]+:[\t -~\x80-\xff]*\r\n)*\r\n$/;
const FRAMING = /^(?:content-length|transfer-encoding):/gim;
const LENGTHS = /^content-length:[^\r]*,/im;

/** The bytes from `start`, with the head up to `end` in strict syntax. */
function withHead(bytes: Buffer, start: number, end: number): Buffer {
  const head = bytes.toString('latin1', start, end);
  const framed = head.match(FRAMING)?.length ?? 0;
  if (STRICT.test(head) && framed < 2 && !LENGTHS.test(head)) return bytes.subarray(start);
  return Buffer.concat([Buffer.from(toHead(head, ''), 'latin1'), bytes.subarray(end)]);
}

const LINE = /\r?\n/;
const FIELD = /^([!#$%&'*+.^_`|~\w-]+)[ \t]*:[ \t]*(.*)$/;
const CONTROLS = /[^\t -~\x80-\xff]/g;

/**
 * A head in the syntax of RFC 9112: each field on one line, invalid lines dropped. If it was different, the connection
 * is not reused. `framing`, if not empty, replaces the framing fields.
 */
function toHead(head: string, framing: string): string {
  const [first = '', ...lines] = head.replace(/\r?\n[ \t]+/g, ' ').split(LINE);
  const fields: [name: string, value: string][] = [];
  for (const line of lines) {
    const [, name, value = ''] = FIELD.exec(line) ?? [];
    if (name !== undefined) fields.push([name.toLowerCase(), value.replace(CONTROLS, ' ').trim()]);
  }
  const valuesOf = (wanted: string) => fields.filter(([name]) => name === wanted).map(([, value]) => value);
  const others = fields.filter(([name]) => !['content-length', 'transfer-encoding', 'connection'].includes(name));
  const version = /^HTTP\/1\.0/i.test(first) ? '1.0' : '1.1';
  return [
    `HTTP/${version} ${statusOf(first)} \r\n`,
    ...others.map(([name, value]) => `${name}: ${value}\r\n`),
    framing || framingOf(valuesOf('transfer-encoding').join(', '), valuesOf('content-length')),
    'connection: close\r\n\r\n',
  ].join('');
}

/**
 * Equal lengths count as one (RFC 9110 section 8.6); unequal ones stay, as an error for the parser. Transfer-Encoding
 * takes precedence (RFC 9112 section 6.3).
 */
function framingOf(encoding: string, lengths: readonly string[]): string {
  if (encoding !== '') return `transfer-encoding: ${encoding}\r\n`;
  const all = lengths.flatMap((value) => value.split(',').map((one) => one.trim()));
  return [...new Set(all)].map((length) => `content-length: ${length}\r\n`).join('');
}
