import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';
import { TooLong } from './faults.ts';

// HTML that is changed in place: what is not replaced stays as it was written, whatever a parser would make of it.

/**
 * Calls back for the tokens of an HTML text. The tokenizer alone, not the parser of the same package: that one looks
 * through all open elements for every closing tag.
 */
export function readTokens(html: string, callbacks: Partial<TokenizerCallbacks>): void {
  const tokenizer = createTokenizer(callbacks, true);
  tokenizer.write(html);
  tokenizer.end();
}

/** The same for who reads in slices. Without decoding, entities are text like any other. */
export function createTokenizer(callbacks: Partial<TokenizerCallbacks>, decodeEntities: boolean): Tokenizer {
  return new Tokenizer({ decodeEntities }, { ...IGNORE_ALL, ...callbacks });
}

function ignore(): void {}

const IGNORE_ALL: TokenizerCallbacks = {
  onattribdata: ignore,
  onattribend: ignore,
  onattribentity: ignore,
  onattribname: ignore,
  oncdata: ignore,
  onclosetag: ignore,
  oncomment: ignore,
  ondeclaration: ignore,
  onend: ignore,
  onopentagend: ignore,
  onopentagname: ignore,
  onprocessinginstruction: ignore,
  onselfclosingtag: ignore,
  ontext: ignore,
  ontextentity: ignore,
};

const SPACE = /[ \t\n\f\r]/;

/** Where the value of an attribute begins, with its quote: behind the name, the `=` and the white space around it. */
export function valueStart(html: string, nameEnd: number): number {
  let at = nameEnd;
  while (SPACE.test(html.charAt(at))) at++;
  at++;
  while (SPACE.test(html.charAt(at))) at++;
  return at;
}

/** A text with pieces of it replaced, from the first to the last. */
export interface Output {
  replace(start: number, end: number, text: string): void;
  /** The whole; `insert` stands at the place `at` of the old text, behind everything that was replaced before it. */
  finish(insert: string, at: number): string;
}

/** Throws `TooLong` as soon as the whole would be longer than `maxLength`. */
export function createOutput(source: string, maxLength: number): Output {
  const pieces: { readonly start: number; readonly end: number; readonly text: string }[] = [];
  let length = source.length;
  const grow = (by: number) => {
    length += by;
    if (length > maxLength) throw new TooLong();
  };
  return {
    replace(start, end, text) {
      grow(text.length - (end - start));
      pieces.push({ start, end, text });
    },
    finish(insert, at) {
      grow(insert.length);
      if (pieces.length === 0 && insert === '') return source;
      const parts: string[] = [];
      let kept = 0;
      const put = (start: number, end: number, text: string) => {
        parts.push(source.slice(kept, start), text);
        kept = end;
      };
      let inserted = insert === '';
      for (const piece of pieces) {
        if (!inserted && piece.start >= at) {
          put(at, at, insert);
          inserted = true;
        }
        put(piece.start, piece.end, piece.text);
      }
      if (!inserted) put(at, at, insert);
      return parts.join('') + source.slice(kept);
    },
  };
}
