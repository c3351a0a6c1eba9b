import { createHash, hash as hashOnce } from 'node:crypto';
import { frozen } from '../../../base/frozen.ts';
import type { FieldRange, HeaderSection } from '../../../mail/mime/header-section.ts';
import type { Canonicalization, Signature } from './verify.ts';

/** A canonicalized body. */
export interface HashedBody {
  /** SHA-256 of the requested number of octets. */
  readonly hash: Buffer;
  /** Length of the whole canonicalized body in octets. */
  readonly length: number;
}

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const ROOM = 16 * 1024;

/**
 * Hashes the first `most` octets of a body that is in memory. Most bodies are already in canonical form, except for
 * empty lines at the end, and are hashed in place.
 */
export function hashBody(form: Canonicalization, body: Uint8Array, most = Infinity): HashedBody {
  const length = lengthAsItIs(form, body);
  if (length !== undefined) {
    return { hash: hashOnce('sha256', body.subarray(0, Math.min(length, most)), 'buffer'), length };
  }
  const running = createBodyHash(form, most);
  running.update(body);
  return running.digest();
}

/** How many octets of a body are hashed if it is already in canonical form; undefined if it is not. */
function lengthAsItIs(form: Canonicalization, body: Uint8Array): number | undefined {
  let end = body.length;
  while (end >= 2 && body[end - 1] === LF && body[end - 2] === CR) end -= 2;
  if (end === body.length) return undefined;
  const relaxed = form === 'relaxed';
  if (end === 0) return relaxed ? 0 : 2;
  for (let at = 0; at < end + 2; at++) {
    const byte = body[at] ?? 0;
    if (byte > SPACE) continue;
    if (byte === CR) {
      if (body[at + 1] !== LF || (relaxed && body[at - 1] === SPACE)) return undefined;
      at += 1;
    } else if (byte === LF) return undefined;
    else if (relaxed && (byte === TAB || (byte === SPACE && body[at + 1] === SPACE))) return undefined;
  }
  return end + 2;
}

/** Creates a single-pass hash for bodies of any size. A bare LF ends a line; a bare CR is ordinary text. */
export function createBodyHash(form: Canonicalization, most = Infinity) {
  const relaxed = form === 'relaxed';
  const { put, putAll, digest } = createWriter(most);
  // Line ends and white space are held back until the next character is known.
  let lines = 0;
  let space = false;
  let cr = false;
  let empty = true;

  function release(): void {
    for (; lines > 0; lines--) {
      put(CR);
      put(LF);
    }
    if (space) put(SPACE);
    if (cr) put(CR);
    space = cr = empty = false;
  }
  function take(byte: number): void {
    if (byte === LF) {
      lines += 1;
      space = cr = false;
      return;
    }
    if (cr) release();
    if (byte === CR) cr = true;
    else if (relaxed && (byte === SPACE || byte === TAB)) space = true;
    else {
      release();
      put(byte);
    }
  }
  return frozen({
    update(piece: Uint8Array): void {
      for (let at = 0; at < piece.length; ) {
        const end = cr ? at : endOfText(relaxed, piece, at);
        if (end === at) {
          take(piece[at++] ?? 0);
          continue;
        }
        release();
        putAll(piece.subarray(at, end));
        at = end;
      }
    },
    /** Ends the computation. */
    digest(): HashedBody {
      if (cr) release();
      // Empty lines at the end are ignored. A body ends with CRLF, and so does an empty one in the simple form (RFC
      // 6376 section 3.4.3).
      if (!empty || !relaxed) {
        put(CR);
        put(LF);
      }
      return digest();
    },
  });
}

/** The end of the run of bytes from `at` that is hashed unchanged and starts and ends with text; `at` if none. */
function endOfText(relaxed: boolean, piece: Uint8Array, at: number): number {
  if ((piece[at] ?? 0) <= SPACE) return at;
  let end = at;
  for (let next = at; next < piece.length; next++) {
    const byte = piece[next] ?? 0;
    if (byte > SPACE) end = next + 1;
    else if (byte === CR && piece[next + 1] === LF) next += 1;
    else if (byte === CR || byte === LF || (relaxed && byte === TAB)) break;
    else if (relaxed && byte === SPACE && (piece[next + 1] ?? SPACE) <= SPACE) break;
  }
  return end;
}

function createWriter(most: number) {
  const hash = createHash('sha256');
  const room = Buffer.allocUnsafeSlow(ROOM);
  let used = 0;
  let length = 0;
  let left = most;
  const write = (bytes: Uint8Array): void => {
    length += bytes.length;
    if (left > 0) hash.update(bytes.length > left ? bytes.subarray(0, left) : bytes);
    left -= bytes.length;
  };
  const flush = (): void => {
    write(room.subarray(0, used));
    used = 0;
  };
  const put = (byte: number): void => {
    if (used === ROOM) flush();
    room[used++] = byte;
  };
  return {
    put,
    putAll(bytes: Uint8Array): void {
      if (used + bytes.length > ROOM) flush();
      if (bytes.length > ROOM) write(bytes);
      else {
        room.set(bytes, used);
        used += bytes.length;
      }
    },
    digest(): HashedBody {
      flush();
      return { hash: hash.digest(), length };
    },
  };
}

const UNEVEN = /\t| {2}/;
const BARE_LINE_FEED = /(?<!\r)\n/g;

/** The header octets that signatures cover, for one message. */
export function createSignedHeader({ text, fields }: Pick<HeaderSection, 'text' | 'fields'>) {
  const byName = new Map<string, FieldRange[]>();
  for (const field of fields) {
    const before = byName.get(field.name);
    if (before) before.push(field);
    else byName.set(field.name, [field]);
  }
  return frozen({
    /** The header octets covered by the signature in `field` (RFC 6376 section 3.7). */
    octets(field: FieldRange, { headerForm, names }: Pick<Signature, 'headerForm' | 'names'>): Buffer {
      const left = new Map<string, Iterator<FieldRange>>();
      const own = toForm(text, field, headerForm);
      let all = '';
      for (const name of names) {
        // Fields of the same name are taken from the bottom up; a missing one is the null string (section 5.4.2). h=
        // never refers to the signature itself (section 3.5).
        const others = left.get(name) ?? othersThan(field, byName.get(name) ?? []);
        left.set(name, others);
        const { value: signed, done } = others.next();
        if (done !== true) all += `${toForm(text, signed, headerForm)}\r\n`;
      }
      return Buffer.from(all + withoutSignature(own), 'latin1');
    },
  });
}

function othersThan(field: FieldRange, fields: readonly FieldRange[]): Iterator<FieldRange> {
  return fields
    .toReversed()
    .filter((other) => other !== field)
    .values();
}

/** A field in canonical form, without its final CRLF (sections 3.4.1 and 3.4.2). */
function toForm(text: string, { name, start, end }: FieldRange, form: Canonicalization): string {
  const written = text.slice(start, end).replace(BARE_LINE_FEED, '\r\n');
  const line = written.endsWith('\r\n') ? written.slice(0, -2) : written;
  if (form === 'simple') return line;
  const value = line.slice(line.indexOf(':') + 1).replaceAll('\r\n', '');
  const even = UNEVEN.test(value) ? value.replace(/[ \t]+/g, ' ') : value;
  const from = even.startsWith(' ') ? 1 : 0;
  return `${name}:${even.slice(from, Math.max(from, even.length - (even.endsWith(' ') ? 1 : 0)))}`;
}

/** Empties b=, as a signature covers its own field. The tag list was validated, so there is exactly one b=. */
function withoutSignature(line: string): string {
  const colon = line.indexOf(':') + 1;
  const pieces = line.slice(colon).split(';');
  const emptied = pieces.map((piece) => {
    const equals = piece.indexOf('=');
    return equals > 0 && piece.slice(0, equals).trim() === 'b' ? piece.slice(0, equals + 1) : piece;
  });
  return line.slice(0, colon) + emptied.join(';');
}
