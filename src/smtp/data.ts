/** What a chunk of DATA was: content without its dot-stuffing, and how it goes on. */
export interface Scanned {
  readonly pieces: readonly Buffer[];
  /** more: no end yet · end: CRLF.CRLF came · bare: a bare CR, a bare LF or a NUL came, nothing behind it may be believed. */
  readonly state: 'more' | 'end' | 'bare';
  /** What came behind the end. */
  readonly rest: Buffer;
}

/** Reads the bytes between 354 and CRLF.CRLF, in whatever chunks they come. */
export interface DataScanner {
  scan(chunk: Buffer): Scanned;
}

const NUL = 0;
const LF = 10;
const CR = 13;
const DOT = 46;
const EMPTY: Buffer = Buffer.alloc(0);

/**
 * Only CRLF.CRLF ends a message, and only CRLF ends a line: whoever reads "LF.LF" as an end sees two messages where the
 * sender's server saw one (SMTP smuggling). One pass over the bytes; a chunk that holds no dot at the start of a line
 * comes out as it went in, uncopied.
 */
export function createDataScanner(): DataScanner {
  // Where the last chunk ended: within a line, behind its CR, at the start of one, behind a dot there, or behind dot and CR.
  let at: 'line' | 'cr' | 'start' | 'dot' | 'dotcr' = 'start';

  function scan(chunk: Buffer): Scanned {
    const length = chunk.length;
    const pieces: Buffer[] = [];
    let from = 0;
    let i = 0;
    const keep = (end: number) => { if (end > from) pieces.push(chunk.subarray(from, end)); };
    const done = (state: Scanned['state'], rest = EMPTY): Scanned => ({ pieces, state, rest });
    while (i < length) {
      if (at === 'line') {
        // The hot loop: everything above CR is content, whatever it is.
        while (i < length && (chunk[i] ?? 0) > CR) i++;
        if (i === length) break;
      }
      const byte = chunk[i] ?? 0;
      if (at === 'line') {
        if (byte === NUL || byte === LF) return done('bare');
        if (byte === CR) at = 'cr';
        i++;
      } else if (at === 'cr') {
        if (byte !== LF) return done('bare');
        at = 'start';
        i++;
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
        return byte === LF ? done('end', chunk.subarray(i + 1)) : done('bare');
      }
    }
    keep(length);
    return done('more');
  }

  return Object.freeze({ scan });
}
