import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';
import { createElements, isVoid } from './elements.ts';
import { MAX_RENDERED, TooLong } from './too-long.ts';

/** Contents by the name of their region. */
export type Contents = ReadonlyMap<string, string>;

/** Characters read between two rests: about a millisecond of work. */
const SLICE = 32_768;
const MARK = 'mc:edit';
const SPACE = /[ \t\n\f\r]/;

/**
 * Puts contents into the regions of an HTML text: what is inside of an element that carries `mc:edit="name"` is replaced, and the
 * mark is taken off that element, as it was meant for us and is no HTML. Every other byte stays as it is. A region without content
 * keeps its mark and its default; of two regions inside one another with contents for both, the outer one is filled.
 * Elements without an inside (`<img>`, `<div/>`) are left alone. Throws `TooLong`.
 */
export function fillRegions(code: string, contents: Contents, maxLength = MAX_RENDERED): string {
  const steps = fillingRegions(code, contents, maxLength);
  for (let step = steps.next(); ; step = steps.next()) if (step.done) return step.value;
}

/** As `fillRegions`, in steps of about a millisecond, so that other work can go on in between. */
export function* fillingRegions(code: string, contents: Contents, maxLength = MAX_RENDERED): Generator<void, string> {
  if (contents.size === 0 || !/mc:edit/i.test(code)) return code;
  const edits = createEdits(code, maxLength);
  // The tokenizer alone, not the parser of the same package: that one looks through all open elements for every closing tag.
  const tokenizer = new Tokenizer({ decodeEntities: false }, createReader(code, contents, edits));
  for (let at = 0; at < code.length; at += SLICE) {
    tokenizer.write(code.slice(at, at + SLICE));
    yield;
  }
  tokenizer.end();
  return edits.finish();
}

/** The parts of the text that stay and those that are new, in order. */
interface Edits {
  replace(start: number, end: number, text: string): void;
  finish(): string;
}

function createEdits(code: string, maxLength: number): Edits {
  const parts: string[] = [];
  let kept = 0;
  let length = code.length;
  return {
    replace(start, end, text) {
      length += text.length - (end - start);
      // Replacing takes away as well: what is still to come can only make it shorter by what is left of the code.
      if (length - (code.length - end) > maxLength) throw new TooLong();
      parts.push(code.slice(kept, start), text);
      kept = end;
    },
    finish() {
      if (length > maxLength) throw new TooLong();
      return parts.join('') + code.slice(kept);
    },
  };
}

interface Tag {
  readonly name: string;
  /** Where its `<` is. */
  readonly start: number;
  mark: { readonly start: number; readonly end: number; readonly region: string } | undefined;
}

/** The region that is being filled: everything inside of it is skipped. */
interface Filling {
  readonly depth: number;
  readonly start: number;
  readonly content: string;
}

function createReader(code: string, contents: Contents, edits: Edits): TokenizerCallbacks {
  const elements = createElements();
  let tag: Tag = { name: '', start: 0, mark: undefined };
  let attribute = { start: 0, isMark: false, valueStart: -1, valueEnd: -1 };
  let filling: Filling | undefined;

  /** Elements at this depth and deeper have ended at `place`. */
  const ended = (depth: number, place: number) => {
    if (!filling || filling.depth < depth) return;
    edits.replace(filling.start, place, filling.content);
    filling = undefined;
  };
  const opened = (end: number) => {
    ended(elements.imply(tag.name), tag.start);
    if (isVoid(tag.name)) return;
    const depth = elements.open(tag.name);
    const content = filling || !tag.mark ? undefined : contents.get(tag.mark.region);
    if (content === undefined || !tag.mark) return;
    edits.replace(tag.mark.start, tag.mark.end, '');
    filling = { depth, start: end + 1, content };
  };
  return {
    onopentagname(start, end) {
      tag = { name: code.slice(start, end).toLowerCase(), start: start - 1, mark: undefined };
    },
    onattribname(start, end) {
      attribute = {
        start,
        isMark: end - start === MARK.length && code.slice(start, end).toLowerCase() === MARK,
        valueStart: -1,
        valueEnd: -1,
      };
    },
    onattribdata(start, end) {
      if (attribute.valueStart < 0) attribute.valueStart = start;
      attribute.valueEnd = end;
    },
    onattribend(_, end) {
      if (!attribute.isMark || tag.mark || attribute.valueStart < 0) return; // of two marks the first counts, as with any attribute
      tag.mark = {
        start: spaceBefore(code, attribute.start),
        end,
        region: decode(code.slice(attribute.valueStart, attribute.valueEnd)),
      };
    },
    onopentagend: opened,
    // Written by somebody who means an empty element: for HTML it would be open, and filling it would swallow what follows.
    onselfclosingtag() {
      ended(elements.imply(tag.name), tag.start);
    },
    onclosetag(start, end) {
      const depth = elements.close(code.slice(start, end).toLowerCase());
      if (depth !== undefined) ended(depth, start - '</'.length);
    },
    onend() {
      ended(0, code.length);
    },
    onattribentity: ignore,
    oncdata: ignore,
    oncomment: ignore,
    ondeclaration: ignore,
    onprocessinginstruction: ignore,
    ontext: ignore,
    ontextentity: ignore,
  } satisfies TokenizerCallbacks;
}

function ignore(): void {
  // Of no interest: only tags say where a region is.
}

function spaceBefore(code: string, place: number): number {
  let start = place;
  while (SPACE.test(code.charAt(start - 1))) start--;
  return start;
}

const NAMED: ReadonlyMap<string, string> = new Map([
  ['amp', '&'],
  ['lt', '<'],
  ['gt', '>'],
  ['quot', '"'],
  ['apos', "'"],
]);

/** The value of an attribute as it is meant. An editor may have written a quote in a name as an entity. */
function decode(value: string): string {
  return value.replace(
    /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,4}));/gi,
    (whole, decimal?: string, hex?: string, name?: string) => {
      if (name !== undefined) return NAMED.get(name) ?? whole;
      const point = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
      return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
    },
  );
}
