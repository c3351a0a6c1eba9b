import type { TokenizerCallbacks } from 'htmlparser2';
import { namesIn } from '../../base/tables.ts';
import { createEdits, createTokenizer, type Edits, VOID_ELEMENTS } from '../html-edit.ts';
import { MAX_RENDERED } from '../template-errors.ts';

/** Contents by region name. */
export type RegionContents = ReadonlyMap<string, string>;

/** Characters between two yields: about a millisecond of work. */
const SLICE = 32_768;
const MARK = 'mc:edit';
const SPACE = /[ \t\n\f\r]/;

/**
 * Fills the regions of an HTML text: replaces the content of each element with `mc:edit="name"` and removes that
 * attribute, which is not HTML. Every other byte stays unchanged. A region without content keeps its attribute and its
 * default; of two nested regions with contents for both, the outer one is filled. Elements without content (`<img>`,
 * `<div/>`) are left unchanged. Works in steps of about a millisecond, so that other work can run in between. Throws
 * `RenderedTooLong`.
 */
export function* fillingRegions(
  code: string,
  contents: RegionContents,
  maxLength = MAX_RENDERED,
): Generator<void, string> {
  if (contents.size === 0 || !/mc:edit/i.test(code)) return code;
  const output = createEdits(code, maxLength);
  const tokenizer = createTokenizer(createReader(code, contents, output));
  for (let at = 0; at < code.length; at += SLICE) {
    tokenizer.write(code.slice(at, at + SLICE));
    yield;
  }
  tokenizer.end();
  return output.finish('', code.length);
}

interface Tag {
  readonly name: string;
  /** Offset of its `<`. */
  readonly start: number;
  mark: { readonly start: number; readonly end: number; readonly region: string } | undefined;
}

/** The region being filled: everything inside it is skipped. */
interface Filling {
  readonly depth: number;
  readonly start: number;
  readonly content: string;
}

function createReader(code: string, contents: RegionContents, output: Edits): Partial<TokenizerCallbacks> {
  const elements = createElements();
  let tag: Tag = { name: '', start: 0, mark: undefined };
  /** Where the attribute starts, and the pieces of its value; undefined if it marks no region. */
  let mark: { readonly start: number; readonly region: string[] } | undefined;
  let filling: Filling | undefined;

  /** Called when elements at this depth and deeper end at `offset`. */
  const endElements = (depth: number, offset: number) => {
    if (!filling || filling.depth < depth) return;
    output.replace(filling.start, offset, filling.content);
    filling = undefined;
  };
  const openElement = (end: number) => {
    endElements(elements.imply(tag.name), tag.start);
    if (NO_CONTENT.has(tag.name)) return;
    const depth = elements.open(tag.name);
    const content = filling || !tag.mark ? undefined : contents.get(tag.mark.region);
    if (content === undefined || !tag.mark) return;
    output.replace(tag.mark.start, tag.mark.end, '');
    filling = { depth, start: end + 1, content };
  };
  return {
    onopentagname(start, end) {
      tag = { name: code.slice(start, end).toLowerCase(), start: start - 1, mark: undefined };
    },
    onattribname(start, end) {
      // of two such attributes the first counts, as with any attribute
      const isMark = !tag.mark && end - start === MARK.length && code.slice(start, end).toLowerCase() === MARK;
      mark = isMark ? { start, region: [] } : undefined;
    },
    onattribdata(start, end) {
      mark?.region.push(code.slice(start, end));
    },
    onattribentity(point) {
      mark?.region.push(String.fromCodePoint(point));
    },
    onattribend(_, end) {
      if (mark && mark.region.length > 0)
        tag.mark = { start: spaceBefore(code, mark.start), end, region: mark.region.join('') };
    },
    onopentagend: openElement,
    // The author means an empty element; HTML would treat it as open, and filling it would swallow what follows.
    onselfclosingtag() {
      endElements(elements.imply(tag.name), tag.start);
    },
    onclosetag(start, end) {
      const depth = elements.close(code.slice(start, end).toLowerCase());
      if (depth !== undefined) endElements(depth, start - '</'.length);
    },
    onend() {
      endElements(0, code.length);
    },
  };
}

function spaceBefore(code: string, offset: number): number {
  let start = offset;
  while (SPACE.test(code.charAt(start - 1))) start--;
  return start;
}

/** Elements without content, and names of such that browsers no longer know. */
const NO_CONTENT = new Set([...VOID_ELEMENTS, 'command', 'image', 'isindex']);

const BLOCKS = namesIn(
  'address article aside blockquote center details dir div dl fieldset figcaption figure footer form h1 h2 ' +
    'h3 h4 h5 h6 header hr main menu nav ol p pre section table ul',
);
const GROUPS = ['tbody', 'thead', 'tfoot'];

/** Which open elements a tag closes implicitly (HTML, section 13.1.2.4, optional tags). */
const ENDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ...[...BLOCKS].map((name) => [name, new Set(['p'])] as const),
  ['li', new Set(['li', 'p'])],
  ['dt', new Set(['dt', 'dd', 'p'])],
  ['dd', new Set(['dt', 'dd', 'p'])],
  ['td', new Set(['td', 'th', 'p'])],
  ['th', new Set(['td', 'th', 'p'])],
  ['tr', new Set(['td', 'th', 'tr', 'p'])],
  ...GROUPS.map((name) => [name, new Set(['td', 'th', 'tr', 'caption', 'colgroup', ...GROUPS])] as const),
  ['option', new Set(['option'])],
  ['optgroup', new Set(['option', 'optgroup'])],
  ['body', new Set(['head'])],
]);

/**
 * The open elements at one position, as far as they determine where an element ends.
 *
 * Only the innermost element is checked for implicit closing, and counts show which names are open: the work is linear
 * for any text.
 */
function createElements() {
  const names: string[] = [];
  const counts = new Map<string, number>();
  const pop = () => {
    const name = names.pop() ?? '';
    counts.set(name, (counts.get(name) ?? 0) - 1);
    return name;
  };
  return {
    /** Closes the elements that this opening tag closes implicitly; returns the remaining depth. */
    imply(name: string): number {
      const ends = ENDS.get(name);
      while (ends?.has(names.at(-1) ?? '')) pop();
      return names.length;
    },
    /** Closes elements up to and including the named one; returns the remaining depth, or undefined if none is open. */
    close(name: string): number | undefined {
      if (!counts.get(name)) return undefined;
      while (pop() !== name);
      return names.length;
    },
    /** Opens an element; returns its depth, 0 for the outermost. */
    open(name: string): number {
      counts.set(name, (counts.get(name) ?? 0) + 1);
      return names.push(name) - 1;
    },
  };
}
