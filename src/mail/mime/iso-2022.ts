import { TextDecoder } from 'node:util';

// Charsets that shift between character sets within a text: ISO-2022, by escape sequences, and HZ.

/** Decodes bytes to text. May be called for successive pieces of one text, with `final` for the last. */
export type Decode = (bytes: Buffer, final: boolean) => string;

const ISO_2022 = /\x1b(?:\$[@AB]|\$[()][@-D]|\([IJ])/;

/** Whether a text of ASCII has escape sequences of ISO-2022, behind which characters of more bytes follow. */
export function hasEscapes(text: string): boolean {
  return ISO_2022.test(text);
}

/** The decoder of a charset that shifts between sets; undefined for others. `name` is in lower case. */
export function shiftingDecoder(name: string): Decode | undefined {
  if (/^(?:cs)?iso-?2022-?jp|^jis$/.test(name)) return createIso2022Decoder('euc-jp');
  if (/^(?:cs)?iso-?2022-?kr/.test(name)) return createIso2022Decoder('euc-kr');
  if (/^(?:cs)?iso-?2022-?cn/.test(name)) return createIso2022Decoder('gbk');
  return /^hz(?:-?gb-?2312)?$/.test(name) ? createHzDecoder() : undefined;
}

/** A character set that a text can shift to, described by the multibyte charset that has it in its upper half. */
interface Plane {
  /** The WHATWG label of the charset. */
  readonly label: string;
  readonly bytes: 1 | 2;
  /** The byte to put in front of each character. */
  readonly prefix?: number;
}

const ASCII: Plane = { label: '', bytes: 1 };
/** JIS X 0201: ASCII except for the yen sign and the overline. */
const ROMAN: Plane = { label: 'roman', bytes: 1 };
const KANA: Plane = { label: 'euc-jp', bytes: 1, prefix: 0x8e };
const JIS_X_0208: Plane = { label: 'euc-jp', bytes: 2 };
const JIS_X_0212: Plane = { label: 'euc-jp', bytes: 2, prefix: 0x8f };
const GB_2312: Plane = { label: 'gbk', bytes: 2 };
const KS_X_1001: Plane = { label: 'euc-kr', bytes: 2 };
const LATIN1: Plane = { label: 'windows-1252', bytes: 1 };
const GREEK: Plane = { label: 'iso-8859-7', bytes: 1 };

// The sets that the escape sequences of RFC 1468 (JP), RFC 1554 (JP-2), RFC 1557 (KR) and RFC 1922 (CN) designate.
const ESCAPES: ReadonlyMap<string, readonly ['g0' | 'g1' | 'g2', Plane]> = new Map([
  ['(B', ['g0', ASCII]],
  ['(J', ['g0', ROMAN]],
  ['(I', ['g0', KANA]],
  ['$@', ['g0', JIS_X_0208]],
  ['$B', ['g0', JIS_X_0208]],
  ['$(@', ['g0', JIS_X_0208]],
  ['$(B', ['g0', JIS_X_0208]],
  ['$(D', ['g0', JIS_X_0212]],
  ['$A', ['g0', GB_2312]],
  ['$(A', ['g0', GB_2312]],
  ['$(C', ['g0', KS_X_1001]],
  ['$)A', ['g1', GB_2312]],
  ['$)C', ['g1', KS_X_1001]],
  ['.A', ['g2', LATIN1]],
  ['.F', ['g2', GREEK]],
]);
const LONGEST_ESCAPE = 4;
const ESC = 0x1b;
const SHIFT_OUT = 0x0e;
const SHIFT_IN = 0x0f;
const SINGLE_SHIFT = 0x4e;
const LF = 0x0a;
const TILDE = 0x7e;

/**
 * Creates a decoder for the ISO-2022 charsets, which shift between character sets by escape sequences. The decoder of
 * the encoding standard does not suit mail: it outputs U+FFFD where two sequences meet, which happens wherever lines or
 * encoded words were joined. Bytes of the upper half are decoded as `upper`: text in EUC-KR is often labelled
 * ISO-2022-KR.
 */
function createIso2022Decoder(upper: 'euc-jp' | 'euc-kr' | 'gbk'): Decode {
  const sets = { g0: ASCII, g1: upper === 'gbk' ? GB_2312 : KS_X_1001, g2: LATIN1 };
  let out = false;
  let held = Buffer.alloc(0);
  return (bytes, final) => {
    const input = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
    const runs = createRuns(input.length);
    let at = 0;
    while (at < input.length) {
      const byte = input[at] ?? 0;
      const plane = out ? sets.g1 : sets.g0;
      if (byte === ESC) {
        if (!final && input.length - at < LONGEST_ESCAPE) break;
        if (input[at + 1] === SINGLE_SHIFT && at + 2 < input.length) {
          runs.add(sets.g2, input[at + 2] ?? 0);
          at += 3;
          continue;
        }
        const escape = escapeAt(input, at + 1);
        const found = ESCAPES.get(escape);
        if (found) sets[found[0]] = found[1];
        else runs.say('\ufffd');
        at += 1 + (found ? escape.length : 0);
      } else if (byte === SHIFT_OUT || byte === SHIFT_IN) {
        out = byte === SHIFT_OUT;
        at += 1;
      } else if (byte <= 0x20 || byte >= 0x7f) {
        // Blanks and controls are the same in every set, and SHIFT OUT ends with the line (RFC 1557).
        if (byte === LF) out = false;
        runs.pass(byte, upper);
        at += 1;
      } else if (plane.bytes === 2 && at + 1 >= input.length && !final) {
        break;
      } else {
        at += runs.addAt(plane, input, at);
      }
    }
    held = Buffer.from(input.subarray(at));
    return runs.text();
  };
}

/** The escape sequence after an ESC: `$` and a letter, or one of `(`, `)`, `.`, `$(`, `$)` and a letter. */
function escapeAt(input: Buffer, at: number): string {
  const text = input.toString('latin1', at, at + LONGEST_ESCAPE - 1);
  return /^(?:\$[()]?|[().])./.exec(text)?.[0] ?? '';
}

/** Creates a decoder for HZ (RFC 1843): GB 2312 between `~{` and `~}` or the end of the line. */
function createHzDecoder(): Decode {
  let plane = ASCII;
  let held = Buffer.alloc(0);
  return (bytes, final) => {
    const input = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
    const runs = createRuns(input.length);
    let at = 0;
    while (at < input.length) {
      const byte = input[at] ?? 0;
      const alone = at + 1 >= input.length;
      if (alone && !final && (byte === TILDE || plane === GB_2312)) break;
      const escape = byte === TILDE && !alone ? input.toString('latin1', at + 1, at + 2) : '';
      if (escape === '{' || escape === '}') {
        plane = escape === '{' ? GB_2312 : ASCII;
        at += 2;
      } else if (plane === ASCII && (escape === '~' || escape === '\n')) {
        if (escape === '~') runs.add(ASCII, TILDE);
        at += 2;
      } else if (byte <= 0x20 || byte >= 0x7f) {
        if (byte === LF) plane = ASCII;
        runs.pass(byte, 'gbk');
        at += 1;
      } else {
        at += runs.addAt(plane, input, at);
      }
    }
    held = Buffer.from(input.subarray(at));
    return runs.text();
  };
}

/** Collects runs of bytes in one charset: text that shifts often costs about as much as text that does not. */
function createRuns(size: number) {
  // At most two output bytes per input byte: a three-byte character comes from two, a two-byte one from one.
  const run = Buffer.allocUnsafe(2 * size);
  const decoders = new Map<string, TextDecoder>();
  let used = 0;
  let label = '';
  let text = '';
  const flush = (): void => {
    const decoder = decoders.get(label) ?? new TextDecoder(label === '' ? 'utf-8' : label, { ignoreBOM: true });
    decoders.set(label, decoder);
    text += decoder.decode(run.subarray(0, used));
    used = 0;
    label = '';
  };
  const enter = (next: string): void => {
    if (label !== '' && label !== next) flush();
    label = next;
  };
  const say = (char: string): void => {
    if (used > 0) flush();
    text += char;
  };
  const add = (plane: Plane, byte: number): void => {
    if (plane === ROMAN && (byte === 0x5c || byte === TILDE)) return say(byte === TILDE ? '\u203e' : '\u00a5');
    const upper = plane !== ASCII && plane !== ROMAN;
    if (upper) enter(plane.label);
    if (plane.prefix !== undefined) run[used++] = plane.prefix;
    run[used++] = upper ? byte | 0x80 : byte;
  };
  return {
    say,
    add,
    /** Adds a byte that no set contains; one above ASCII belongs to the charset with the same characters there. */
    pass(byte: number, upper: string): void {
      if (byte >= 0x80) enter(upper);
      run[used++] = byte;
    },
    /** Adds the character of a plane at `at`; returns its length in bytes. */
    addAt(plane: Plane, input: Buffer, at: number): number {
      add(plane, input[at] ?? 0);
      const second = input[at + 1] ?? 0;
      if (plane.bytes === 1 || second <= 0x20 || second >= 0x7f) return 1;
      run[used++] = second | 0x80;
      return 2;
    },
    text(): string {
      if (used > 0) flush();
      return text;
    },
  };
}
