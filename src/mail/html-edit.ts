import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';
import { namesIn } from '../base/tables.ts';
import { RenderedTooLong } from './template-errors.ts';

// In-place editing of HTML: everything that is not replaced stays as written.

/**
 * Calls back for each token of an HTML text. Uses only the tokenizer, not the parser of the same package, which
 * searches all open elements for every closing tag.
 */
export function readTokens(html: string, callbacks: Partial<TokenizerCallbacks>): void {
  const tokenizer = createTokenizer(callbacks);
  tokenizer.write(html);
  tokenizer.end();
}

/**
 * Callbacks for the content of an HTML text, in order. Names are in lower case; of two attributes of the same name the
 * first counts.
 */
interface ElementCallbacks {
  /** `isClosed`: the tag ends with a slash, which means something in svg and math only. */
  open(name: string, attributes: ReadonlyMap<string, string>, isClosed: boolean): void;
  close(name: string): void;
  /** A piece of text, with its entities decoded. */
  text(text: string): void;
  comment?(text: string): void;
}

/** As `readTokens`, with whole tags. */
export function readElements(html: string, { open, close, text, comment }: ElementCallbacks): void {
  let name = '';
  let attribute = '';
  let value: string[] = [];
  let attributes = new Map<string, string>();
  readTokens(html, {
    onopentagname(start, end) {
      name = html.slice(start, end).toLowerCase();
      attributes = new Map();
    },
    onattribname(start, end) {
      attribute = html.slice(start, end).toLowerCase();
      value = [];
    },
    onattribdata(start, end) {
      value.push(html.slice(start, end));
    },
    onattribentity(code) {
      value.push(String.fromCodePoint(code));
    },
    onattribend() {
      if (!attributes.has(attribute)) attributes.set(attribute, value.join(''));
    },
    onopentagend: () => open(name, attributes, false),
    onselfclosingtag: () => open(name, attributes, true),
    onclosetag: (start, end) => close(html.slice(start, end).toLowerCase()),
    ontext: (start, end) => text(html.slice(start, end)),
    ontextentity: (code) => text(String.fromCodePoint(code)),
    ...(comment && { oncomment: (start: number, end: number) => comment(html.slice(start, end)) }),
  });
}

/** Creates a tokenizer for reading in slices. */
export function createTokenizer(callbacks: Partial<TokenizerCallbacks>): Tokenizer {
  return new Tokenizer({ decodeEntities: true }, { ...IGNORE_ALL, ...callbacks });
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

/** The start of an attribute value, quote included: after the name, the `=` and the white space around it. */
export function valueStart(html: string, nameEnd: number): number {
  let at = nameEnd;
  while (SPACE.test(html.charAt(at))) at++;
  at++;
  while (SPACE.test(html.charAt(at))) at++;
  return at;
}

/** Replaces pieces of a text; calls must be in order of position. */
export type Edits = ReturnType<typeof createEdits>;

/** Throws `RenderedTooLong` as soon as it is certain that the result exceeds `maxLength`. */
export function createEdits(source: string, maxLength: number) {
  const pieces: { readonly start: number; readonly end: number; readonly text: string }[] = [];
  let length = source.length;
  /** `left`: how much of the source later replacements may remove. */
  const grow = (by: number, left: number) => {
    length += by;
    if (length - left > maxLength) throw new RenderedTooLong();
  };
  return {
    replace(start: number, end: number, text: string) {
      grow(text.length - (end - start), source.length - end);
      pieces.push({ start, end, text });
    },
    /** Returns the result, with `insert` at position `at` of the source, after all replacements before it. */
    finish(insert: string, at: number): string {
      grow(insert.length, 0);
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

/** Elements with an empty line above and below. */
export const PARAGRAPH_ELEMENTS = namesIn('p h1 h2 h3 h4 h5 h6 blockquote pre ul ol dl hr table');

/** Elements without content (HTML, section 13.1.2). */
export const VOID_ELEMENTS = namesIn(
  'area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr',
);

/**
 * Collapses white space to single spaces. An unbounded pattern would need a backtracking position for each character;
 * with two million of them the stack of the interpreted pattern overflows. Two passes handle runs of 67 million.
 */
export function collapseSpaces(text: string): string {
  if (!/[^\S ]| {2}/.test(text)) return text;
  return text.replace(/\s{1,8192}/g, ' ').replace(/ {2,8192}/g, ' ');
}
