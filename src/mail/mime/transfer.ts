import { createBytePasses, OVERREAD_BYTES, SET_BYTES, toByteSet } from '../../base/byte-passes.ts';

/** The transfer encoding of a body (RFC 2045 section 6). */
export type TransferEncoding = 'identity' | 'base64' | 'quoted-printable' | 'uuencode';

/** Decodes a body. */
export function decodeTransfer(body: Buffer, encoding: TransferEncoding): Buffer {
  if (encoding === 'identity') return body;
  if (encoding === 'uuencode') return decodeUuencode(body);
  return encoding === 'base64' ? decodeBase64(body.subarray(0, endOfBase64(body))) : decodeQuotedPrintable(body);
}

// Classes of bytes in a base64 body: 0 invalid, 1 alphabet, 2 line end, 3 padding.
const BASE64_CLASS = Uint8Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte);
  if (/[A-Za-z0-9+/]/.test(char)) return 1;
  if (char === '\r' || char === '\n') return 2;
  return char === '=' ? 3 : 0;
});
const SLICE = 32 * 1024;
// Memory layout of the pass: offsets.
const ALPHABET = 0;
const COUNTS = SET_BYTES;
const INPUT = 64;
const passes = createBytePasses(INPUT + SLICE + OVERREAD_BYTES);
passes.memory.set(
  toByteSet((byte) => BASE64_CLASS[byte] === 1),
  ALPHABET,
);
const counts = new Uint32Array(passes.memory.buffer, COUNTS, 2);
const HEX_VALUE = Int8Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte);
  return /[0-9A-Fa-f]/.test(char) ? Number.parseInt(char, 16) : -1;
});
// 1 for bytes that are special in quoted-printable.
const QUOTED_CLASS = Uint8Array.from({ length: 256 }, (_, byte) =>
  '=\r\n'.includes(String.fromCharCode(byte)) ? 1 : 0,
);
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const TAB = 0x09;
const EQUALS = 0x3d;

/** Whether a body is well-formed base64 (whole groups, padding only at the end), whose lines can be used unchanged. */
export function isCleanBase64(body: Uint8Array): boolean {
  let breaks = 0;
  let padding = 0;
  for (let from = 0; from < body.length; from += SLICE) {
    const slice = body.subarray(from, from + SLICE);
    passes.memory.set(slice, INPUT);
    if (passes.countBase64(INPUT, slice.length, ALPHABET, COUNTS) === 0) return false;
    breaks += counts[0] ?? 0;
    padding += counts[1] ?? 0;
  }
  return padding <= 2 && (body.length - breaks) % 4 === 0 && (padding === 0 || endsBehind(body, body.indexOf(EQUALS)));
}

/** Whether only padding and line ends follow from `padding` on. */
function endsBehind(body: Uint8Array, padding: number): boolean {
  for (let at = padding; at < body.length; at++) if (BASE64_CLASS[body[at] ?? 0] === 1) return false;
  return true;
}

const BASE64_LINE = /^[A-Za-z0-9+/]*=*$/;
/** A line of at least this number of base64 characters is data; a footer has blanks between words. */
const LONG_LINE = 40;
/** Bytes at the end of a body that are searched for a footer. */
const LONGEST_FOOTER = 64 * 1024;

/** A line at the end of a base64 body. */
interface Line {
  readonly start: number;
  readonly text: string;
  /** Characters of base64 from here to the end of the body; undefined if something else follows. */
  readonly rest: number | undefined;
}

/**
 * Where the data of a base64 body ends. Padding ends it (RFC 2045 section 6.8); so does what is no base64 behind an
 * empty line or behind whole lines: mailing lists and scanners add footers to bodies that they do not decode. Other
 * software joins bodies, so base64 may go on behind padding.
 */
function endOfBase64(body: Buffer): number {
  let [isPadded, isGap, hasData] = [false, false, false];
  for (const { start, text, rest } of lastLines(body)) {
    if (text === '') {
      isGap = true;
      continue;
    }
    const isPure = BASE64_LINE.test(text);
    if (hasData && (isPadded || isGap || (!isPure && text.includes(' ')))) {
      const goesOn = rest !== undefined && (isPadded ? rest % 4 === 0 && !isGap : true);
      return goesOn ? body.length : start;
    }
    const behind = /=+([^=].*)$/.exec(text)?.[1] ?? '';
    if (/[A-Za-z0-9+/]/.test(behind) && !BASE64_LINE.test(behind)) return start + text.length - behind.length;
    isPadded = text.includes('=') && behind === '';
    isGap = false;
    hasData = true;
  }
  return body.length;
}

/** The lines of a base64 body from the last one on that is surely data; none if what follows it is no footer. */
function lastLines(body: Buffer): Line[] {
  const lines: Line[] = [];
  let rest: number | undefined = 0;
  for (let end = body.length; end > 0; ) {
    const newline = body.lastIndexOf(LF, end - 1);
    const text = body.toString('latin1', newline + 1, Math.min(end, newline + 1 + LONGEST_LINE)).trimEnd();
    const isPure = BASE64_LINE.test(text);
    rest = rest !== undefined && isPure ? rest + text.length : undefined;
    lines.push({ start: newline + 1, text, rest });
    if (isPure && text.length >= LONG_LINE) break;
    if (body.length - newline > LONGEST_FOOTER) return [];
    end = newline;
  }
  return lines.reverse();
}

/** Characters of a line that are examined. */
const LONGEST_LINE = 1000;

/** Decodes base64. Invalid characters are ignored (RFC 2045 section 6.8), and more groups may follow padding. */
export function decodeBase64(body: Buffer): Buffer {
  const out = Buffer.allocUnsafe(Math.ceil(body.length * 0.75) + 3);
  const group = Buffer.allocUnsafe(4 * 1024);
  let used = 0;
  let length = 0;
  const flush = (): void => {
    length += out.write(group.toString('latin1', 0, used), length, 'base64');
    used = 0;
  };
  for (let at = 0; at < body.length; at++) {
    const byte = body[at] ?? 0;
    const kind = BASE64_CLASS[byte];
    if (kind === 1) {
      group[used++] = byte;
      if (used === group.length) flush();
    } else if (kind === 3 && used > 0) flush();
  }
  flush();
  return out.subarray(0, length);
}

/**
 * Decodes quoted-printable in one pass (RFC 2045 section 6.7). Removes white space at line ends, which was added in
 * transit; keeps a `=` that begins no escape.
 */
function decodeQuotedPrintable(body: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(body.length);
  let length = 0;
  // White space before this offset comes from an escape or an earlier line, and is kept.
  let fixed = 0;
  for (let at = 0; at < body.length; at++) {
    // The hot loop: a branch for each kind of byte takes twice as long.
    while (at < body.length && QUOTED_CLASS[body[at] ?? 0] === 0) out[length++] = body[at++] ?? 0;
    if (at === body.length) break;
    const byte = body[at] ?? 0;
    if (byte !== EQUALS) {
      length = withoutPadding(out, length, fixed);
      out[length++] = byte;
    } else {
      const high = HEX_VALUE[body[at + 1] ?? 0] ?? -1;
      const low = HEX_VALUE[body[at + 2] ?? 0] ?? -1;
      if (high >= 0 && low >= 0) {
        out[length++] = high * 16 + low;
        at += 2;
      } else {
        const next = endOfSoftBreak(body, at + 1);
        if (next === -1) out[length++] = byte;
        else at = next - 1;
      }
    }
    fixed = length;
  }
  return out.subarray(0, withoutPadding(out, length, fixed));
}

/** The length of the output without trailing white space. */
function withoutPadding(out: Uint8Array, length: number, fixed: number): number {
  while (length > fixed && (out[length - 1] === SPACE || out[length - 1] === TAB)) length -= 1;
  return length;
}

// More white space than this after `=` was not added in transit. Without a limit, the scan would take quadratic time.
const LONGEST_PADDING = 1000;

/** The offset after a soft line break whose `=` is just before `at`; -1 if it is none. */
function endOfSoftBreak(body: Uint8Array, at: number): number {
  const end = at + LONGEST_PADDING;
  while (at < end && (body[at] === SPACE || body[at] === TAB)) at += 1;
  if (at >= body.length) return at;
  if (body[at] === LF) return at + 1;
  return body[at] === CR && body[at + 1] === LF ? at + 2 : -1;
}

const UU_BEGIN = /^begin [0-7]{3,4} [^\r\n]*\r?\n/m;
/** A line: a character for its length, of at most 63 bytes, and four for each three bytes of them. */
const UU_LONGEST = 85;
const GRAVE = 0x60;
/** Bytes searched for the `begin` line, which text may precede. */
const UU_LEAD = 64 * 1024;
/**
 * Lines that lost the trailing blanks that stand for zeros decode to more bytes than they have. A body that grows by
 * more than this factor is truncated: it is an attack.
 */
const UU_GROWTH = 4;

/**
 * Decodes uuencode (POSIX.1, the utility of that name). The first character of a line is the number of its bytes, and
 * each four characters after it are three bytes. Ends at the first line with 0 bytes, or that has other characters,
 * such as `end`. Without a `begin` line, returns the body unchanged.
 */
function decodeUuencode(body: Buffer): Buffer {
  const begin = UU_BEGIN.exec(body.toString('latin1', 0, UU_LEAD));
  if (!begin) return body;
  const out = Buffer.allocUnsafe(UU_GROWTH * body.length);
  let length = 0;
  // Trailing blanks, which are zeros, may have been lost in transit.
  const valueAt = (at: number, end: number): number => (at < end ? ((body[at] ?? 0) - SPACE) & 0x3f : 0);
  for (let at = begin.index + begin[0].length; at < body.length && length < out.length; ) {
    const newline = body.indexOf(LF, at);
    const next = newline === -1 ? body.length : newline + 1;
    const end = newline === -1 ? next : newline - (body[newline - 1] === CR ? 1 : 0);
    const wanted = valueAt(at, end);
    if (wanted === 0 || !isUuLine(body.subarray(at, Math.min(end, at + UU_LONGEST)))) break;
    const until = length + wanted;
    for (let from = at + 1; length < until; from += 4) {
      const [a, b, c, d] = [valueAt(from, end), valueAt(from + 1, end), valueAt(from + 2, end), valueAt(from + 3, end)];
      out[length++] = (a << 2) | (b >> 4);
      if (length < until) out[length++] = (b << 4) | (c >> 2);
      if (length < until) out[length++] = (c << 6) | d;
    }
    at = next;
  }
  return out.subarray(0, length);
}

function isUuLine(line: Uint8Array): boolean {
  for (let at = 0; at < line.length; at++) {
    const byte = line[at] ?? 0;
    if (byte < SPACE || byte > GRAVE) return false;
  }
  return true;
}
