/** What a chunk of DATA was: content without its dot-stuffing, and how it goes on. */
export interface Scanned {
  readonly pieces: readonly Buffer[];
  /** more: no end yet · end: CRLF.CRLF came · bare: a NUL came, or a bare CR or LF that is not taken; nothing behind it may be believed. */
  readonly state: 'more' | 'end' | 'bare';
  /** What came behind the end. */
  readonly rest: Buffer;
}

/** Reads the bytes between 354 and CRLF.CRLF, in whatever chunks they come. */
export interface DataScanner {
  scan(chunk: Buffer): Scanned;
}

/** What becomes of a CR or LF that is not part of a CRLF: the message is refused, or it ends a line and is kept as CRLF. */
export type BareNewline = 'reject' | 'normalize';

const NUL = 0;
const LF = 10;
const CR = 13;
const DOT = 46;
const EMPTY: Buffer = Buffer.alloc(0);
// Slices of the slab that Node keeps for short texts: whoever frees the memory of a chunk behind him leaves that alone.
const ONE_CR: Buffer = Buffer.from('\r');
const ONE_LF: Buffer = Buffer.from('\n');
const CRLF: Buffer = Buffer.from('\r\n');

/**
 * Only CRLF.CRLF ends a message: whoever reads "LF.LF" as an end sees two messages where the sender's server saw one (SMTP
 * smuggling). That holds too where bare line ends are taken: they end lines of the content, and a dot behind one is content, or
 * the stuffing of a client that knows no other line ends. One pass over the bytes; a chunk that holds no dot at the start of a
 * line and no bare line end comes out as it went in, uncopied.
 */
export function createDataScanner(bareNewline: BareNewline): DataScanner {
  const refuses = bareNewline === 'reject';
  // Where the last chunk ended: within a line, behind its CR, at the start of one, behind a dot there, or behind dot and CR.
  let at: 'line' | 'cr' | 'start' | 'dot' | 'dotcr' = 'start';
  // Whether the present line began behind CRLF. No other can be the end.
  let proper = true;

  function scan(chunk: Buffer): Scanned {
    const length = chunk.length;
    const pieces: Buffer[] = [];
    let from = 0;
    let i = 0;
    const keep = (end: number) => {
      if (end > from) pieces.push(chunk.subarray(from, end));
    };
    /** Keeps what was read, and then these bytes, which were not sent so. */
    const insert = (bytes: Buffer) => {
      keep(i);
      pieces.push(bytes);
      from = i;
    };
    const startLine = (behindCrlf: boolean) => {
      at = 'start';
      proper = behindCrlf;
    };
    const done = (state: Scanned['state'], rest = EMPTY): Scanned => ({ pieces, state, rest });
    while (i < length) {
      if (at === 'line') {
        // The hot loop: everything above CR is content, whatever it is.
        while (i < length && (chunk[i] ?? 0) > CR) i++;
        if (i === length) break;
      }
      const byte = chunk[i] ?? 0;
      if (at === 'line') {
        if (byte === NUL || (byte === LF && refuses)) return done('bare');
        if (byte === CR) at = 'cr';
        if (byte === LF) {
          insert(ONE_CR);
          startLine(false);
        }
        i++;
      } else if (at === 'cr') {
        if (byte === LF) {
          startLine(true);
          i++;
        } else {
          if (refuses) return done('bare');
          insert(ONE_LF);
          startLine(false);
        }
      } else if (at === 'start') {
        if (byte === DOT) {
          keep(i);
          from = ++i;
          at = 'dot';
        } else at = 'line';
      } else if (at === 'dot') {
        // Only the first dot of a line is taken away (RFC 5321 section 4.5.2), whatever comes behind it.
        if (byte === CR) {
          from = ++i;
          at = 'dotcr';
        } else at = 'line';
      } else {
        if (byte === LF && proper) return done('end', chunk.subarray(i + 1));
        if (refuses) return done('bare');
        if (byte === LF) from = ++i;
        insert(CRLF);
        startLine(byte === LF);
      }
    }
    keep(length);
    return done('more');
  }

  return Object.freeze({ scan });
}
