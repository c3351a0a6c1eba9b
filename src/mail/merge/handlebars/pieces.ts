import type { Steps } from '../../../base/steps.ts';
import { FaultyTemplate } from '../faulty-template.ts';

/** A text, or a tag: `{{…}}`. */
export type Piece = { readonly kind: 'text'; readonly text: string } | Tag;

export interface Tag {
  /** open: `{{#…}}` · inverse: `{{^…}}` · else: what follows is another branch, of the block that `inside` names if it does. */
  readonly kind: 'print' | 'open' | 'inverse' | 'else' | 'close' | 'comment';
  /** Without brackets and signs. */
  readonly inside: string;
  /** `{{x}}`, not `{{{x}}}`. */
  readonly escaped: boolean;
  /** `~`: white space before or behind it goes. */
  readonly trims: { readonly before: boolean; readonly behind: boolean };
  /** Where it begins in the source. */
  readonly at: number;
}

/** Characters of a tag; a URL in one is the longest thing there is. */
const LONGEST_TAG = 2048;
/** Escaped ones too. */
const MOST_TAGS = 50_000;

/** Tags, and brackets that are none, that are looked at between two rests. */
const SLICE = 500;

/** Takes a template apart, in one pass. Throws `FaultyTemplate` for what is begun and not ended, and for what is not supported. */
export function* takingApart(source: string): Steps<Piece[]> {
  const pieces: Piece[] = [];
  let texts: string[] = [];
  let done = 0; // everything before is in a piece, or in `texts`
  let tags = 0;
  const endText = (end: number) => {
    texts.push(source.slice(done, end));
    const text = texts.join('');
    if (text !== '') pieces.push({ kind: 'text', text });
    texts = [];
  };
  for (let open = source.indexOf('{{'); open >= 0; open = source.indexOf('{{', open)) {
    if (++tags > MOST_TAGS) throw new FaultyTemplate(`it has more than ${MOST_TAGS} tags`);
    if (tags % SLICE === 0) yield;
    const escaped = open > done && source[open - 1] === '\\';
    const doubled = escaped && open - 1 > done && source[open - 2] === '\\';
    if (escaped && !doubled) {
      texts.push(source.slice(done, open - 1), '{{');
      open = done = open + 2;
      continue;
    }
    const { tag, end } = readTag(source, open);
    endText(doubled ? open - 1 : open); // of two backslashes, one stays
    pieces.push(tag);
    open = done = end;
  }
  endText(source.length);
  return pieces;
}

function readTag(source: string, at: number): { readonly tag: Tag; readonly end: number } {
  let from = at + 2;
  const before = source[from] === '~';
  if (before) from++;
  if (source[from] === '!') return readComment(source, at, from, before);
  const triple = source[from] === '{';
  if (triple) from++;
  if (triple && source[from] === '{') throw new FaultyTemplate('raw blocks ({{{{…}}}}) are not supported');
  const close = endOf(source, from, triple);
  if (close === undefined)
    throw new FaultyTemplate(
      `the tag ${source.slice(at, at + 40)} is not closed, or longer than ${LONGEST_TAG} characters`,
    );
  const behind = source[close.at] === '~' || (triple && source[close.at + 1] === '~');
  const content = source.slice(from, close.at);
  const kind = triple ? undefined : signOf(content);
  const inside = kind === undefined ? content.replace(/^&/, '') : content.slice(1);
  return {
    tag: { ...sorted(kind, inside), escaped: !triple && !content.startsWith('&'), trims: { before, behind }, at },
    end: close.end,
  };
}

function signOf(content: string): '#' | '/' | '^' | undefined {
  const sign = content[0];
  if (sign === '>' || /^#\s*>/.test(content)) throw new FaultyTemplate('partials ({{> …}}) are not supported');
  if (sign === '*' || /^#\s*\*/.test(content)) throw new FaultyTemplate('decorators ({{* …}}) are not supported');
  return sign === '#' || sign === '/' || sign === '^' ? sign : undefined;
}

const ELSE = /^\s*else(?:\s*$|(?=if[\s`(])|\s+)/;

function sorted(sign: '#' | '/' | '^' | undefined, inside: string): Pick<Tag, 'kind' | 'inside'> {
  if (sign === '#') return { kind: 'open', inside };
  if (sign === '/') return { kind: 'close', inside: inside.trim() };
  if (sign === '^') return inside.trim() === '' ? { kind: 'else', inside: '' } : { kind: 'inverse', inside };
  return ELSE.test(inside) ? { kind: 'else', inside: inside.replace(ELSE, '').trim() } : { kind: 'print', inside };
}

function readComment(
  source: string,
  at: number,
  from: number,
  before: boolean,
): { readonly tag: Tag; readonly end: number } {
  const mark = source.startsWith('!--', from) ? /--(~)?\}\}/g : /(~)?\}\}/g;
  mark.lastIndex = from + 1;
  const found = mark.exec(source);
  if (!found) throw new FaultyTemplate('a comment is not closed');
  return {
    tag: { kind: 'comment', inside: '', escaped: false, trims: { before, behind: found[1] === '~' }, at },
    end: mark.lastIndex,
  };
}

const QUOTES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  [`'`, `'`],
  ['`', '`'],
  ['[', ']'],
]);

/** Where the tag ends; what stands in quotes, backticks and brackets does not end it. */
function endOf(
  source: string,
  from: number,
  triple: boolean,
): { readonly at: number; readonly end: number } | undefined {
  const mark = triple ? /\}~?\}\}/y : /~?\}\}/y;
  const last = Math.min(source.length, from + LONGEST_TAG);
  let quote: string | undefined;
  for (let at = from; at < last; at++) {
    const char = source[at] ?? '';
    if (quote !== undefined) {
      if (char === '\\') at++;
      else if (char === quote) quote = undefined;
      continue;
    }
    mark.lastIndex = at;
    if ((char === '~' || char === '}') && mark.test(source)) return { at, end: mark.lastIndex };
    quote = QUOTES.get(char);
  }
  return undefined;
}
