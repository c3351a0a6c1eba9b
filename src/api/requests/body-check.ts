import { invalid } from '../errors.ts';
import { MAX_DEPTH, MAX_FORM_FIELDS, tooManyFields } from './forms.ts';

// Checks a body while it arrives, before anything is parsed: that its text is valid, and how much work it asks of a
// parser. JSON.parse accepts 200,000 levels, and turns each three bytes of `{},` into an object.

/** The first character of a JSON body, regardless of its content type. */
export const JSON_OPENING = /^[[{]$/;

/** Checks a body chunk by chunk. `maxValues`: values that JSON may hold. */
export function createBodyCheck(maxValues: number) {
  const utf8 = new TextDecoder('utf-8', { fatal: true });
  const json = createJsonCheck(maxValues);
  const form = createFormCheck();
  let opening = '';
  return {
    /** The first character that is not space; '' if there was none yet. */
    opening: () => opening,
    /** About how many values there are so far. */
    count: () => json.count() + form.count(),
    /** The fault of the next chunk, if it has one; `undefined` stands for the end of the body. */
    faultOf(chunk: Buffer | undefined) {
      try {
        const text = utf8.decode(chunk, { stream: chunk !== undefined });
        if (opening === '') opening = /[^ \t\r\n]/.exec(text)?.[0] ?? '';
      } catch {
        return invalid({ body: 'The body is not valid UTF-8' });
      }
      const fault = chunk && (JSON_OPENING.test(opening) ? json.faultOf(chunk) : form.faultOf(chunk));
      return fault === undefined ? null : invalid({ body: fault });
    },
  };
}

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACE = 0x7d;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const AMPERSAND = 0x26;

/** Counts nesting levels and values outside of strings: each `{`, `[` and `,` begins one. */
function createJsonCheck(maxValues: number) {
  const string = createStringSkip();
  let depth = 0;
  let values = 0;
  let inString = false;
  const faultOf = (chunk: Buffer) => {
    for (let at = 0; at < chunk.length; at++) {
      if (inString) {
        at = string.skip(chunk, at);
        inString = at >= chunk.length;
        continue;
      }
      const byte = chunk[at];
      if (byte === QUOTE) inString = true;
      else if (byte === COMMA) values++;
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        values++;
        if (++depth > MAX_DEPTH) return `The JSON is nested deeper than ${MAX_DEPTH} levels`;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth--;
      if (values > maxValues) return `The JSON holds more than ${maxValues} values`;
    }
    return undefined;
  };
  return { count: () => values, faultOf };
}

/** Bytes of a string that are read one by one before a search, because starting one costs as much. */
const NEAR = 64;

/**
 * Finds the ends of JSON strings. Long ones are skipped by byte search, so a message of megabytes costs next to
 * nothing; one full of escaped quotes costs no more than its bytes.
 */
function createStringSkip() {
  /** Whether a backslash escapes the next byte, which may be in the next chunk. */
  let escaped = false;
  return {
    /** The index of the quote that ends the string; the end of the chunk if the string continues. */
    skip(chunk: Buffer, from: number): number {
      for (let at = from; at < chunk.length; ) {
        for (const near = Math.min(at + NEAR, chunk.length); at < near; at++) {
          const byte = chunk[at];
          if (byte === QUOTE && !escaped) return at;
          escaped = byte === BACKSLASH && !escaped;
        }
        const quote = chunk.indexOf(QUOTE, at);
        const end = quote < 0 ? chunk.length : quote;
        let slashes = end;
        while (slashes > at && chunk[slashes - 1] === BACKSLASH) slashes--;
        escaped = (end - slashes + Number(escaped && slashes === at)) % 2 === 1;
        at = end;
      }
      return chunk.length;
    },
  };
}

function createFormCheck() {
  let separators = 0;
  const faultOf = (chunk: Buffer) => {
    for (let at = chunk.indexOf(AMPERSAND); at >= 0; at = chunk.indexOf(AMPERSAND, at + 1))
      if (++separators > MAX_FORM_FIELDS) return tooManyFields().message;
    return undefined;
  };
  return { count: () => separators, faultOf };
}
