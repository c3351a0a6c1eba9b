import { namesIn } from '../../base/tables.ts';
import { VOID_ELEMENTS } from '../html-edit.ts';
import { type Box, type HiddenReason, hasDefaultStyle, ROOT_BOX, toBox, whyHidden } from './box.ts';
import type { Element, Styles } from './sheets.ts';

// Which elements are open at each position of a page, as browsers build the tree of a page whose tags do not match
// (HTML, "tree construction"), in constant time a tag.

/** An open element. */
export interface OpenElement extends Element {
  readonly box: Box;
  /** The lines that its text is part of. */
  readonly lines: Lines;
  readonly parent: OpenElement | undefined;
  previous: OpenElement | undefined;
  /** The last element in it so far. */
  last: OpenElement | undefined;
  /** Why text in it is not seen, and that text: all of it, down from the element by which it is hidden. */
  readonly hidden: HiddenText | undefined;
  /** For a table and its rows: the element of text that is in none of its cells. */
  readonly outside: OpenElement | undefined;
  /** The text in it that is not seen before it is opened; undefined if it is no closed details element. */
  readonly folded: HiddenText | undefined;
  /** Its index among the open elements. */
  readonly at: number;
  /** The index of the nearest element at or below that ends the search for what an end tag ends. */
  readonly special: number;
  /** As `special`, for list items. */
  readonly item: number;
}

/** Text that is hidden by one element. */
export interface HiddenText {
  readonly why: HiddenReason;
  readonly pieces: string[];
}

/** The lines of a block. */
export interface Lines {
  /** Whether none was ended yet. */
  isFirst: boolean;
}

interface TreeCallbacks {
  opened(node: OpenElement): void;
  closed(node: OpenElement): void;
}

/** They end an open paragraph. */
const BLOCKS = namesIn(
  'address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer header hgroup ' +
    'main menu nav ol p search section summary ul h1 h2 h3 h4 h5 h6 pre listing form plaintext xmp li dd dt hr table',
);
const HEADINGS = namesIn('h1 h2 h3 h4 h5 h6');
/** Their end tags end what is open in them. */
const ENDING = namesIn(
  'address article aside blockquote button center details dialog dir div dl fieldset figcaption figure footer header ' +
    'hgroup listing main menu nav ol pre search section summary ul form p li dd dt h1 h2 h3 h4 h5 h6 table caption ' +
    'tbody thead tfoot tr td th applet marquee object select template noscript iframe',
);
const SPECIAL = new Set([...BLOCKS, ...ENDING, ...'body html textarea'.split(' ')]);
/** Elements of text, which go on when the block ends in which they were opened. */
const FORMATTING = namesIn('a b big code em font i nobr s small strike strong tt u');
/** Their contents are separate from the surroundings. */
const SCOPES = namesIn('table td th caption applet marquee object template html');
/** Of these, those in which elements of text do not go on that were opened outside. */
const MARKING = namesIn('td th caption applet marquee object template');
const CELLS = namesIn('td th caption');
const SECTIONS = namesIn('tbody thead tfoot');
const IN_TABLE = namesIn('table tbody thead tfoot tr');

/** Elements that are opened or placed again, in the whole page, because of tags that do not match. */
const MAX_AGAIN = 20_000;
/** Elements; a mail with long tables has some ten thousand. */
const MAX_ELEMENTS = 100_000;
/** Names of elements whose boxes are kept. */
const MAX_PLAIN = 200;
/** Elements of text that are remembered in one scope. */
const MAX_FORMATTING = 64;

/** An element of text that was not ended. */
interface Formatting {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  node: OpenElement | undefined;
}

const NO_ATTRIBUTES: ReadonlyMap<string, string> = new Map();

/** Elements that are not displayed whatever style sheets say, but whose text is in the page. */
const NEVER_SHOWN = namesIn(
  'noscript template audio video canvas iframe noembed noframes datalist defs desc metadata symbol',
);

export function createTree(styles: Styles, isQuirky: boolean, { opened, closed }: TreeCallbacks) {
  const stack: OpenElement[] = [];
  /** The indexes of each name on the stack. */
  const indexes = new Map<string, number[]>();
  /** The index of the scope, and the elements of text that were opened in it. */
  const scopes: { readonly base: number; readonly formatting: Formatting[] }[] = [{ base: 0, formatting: [] }];
  let elementsLeft = MAX_ELEMENTS;
  let againLeft = MAX_AGAIN;
  let foreign = 0;

  const top = (): OpenElement => stack.at(-1) ?? html;
  const scope = () => scopes.at(-1) ?? { base: 0, formatting: [] };
  const lastOf = (name: string): number => indexes.get(name)?.at(-1) ?? -1;
  const isOpen = (name: string): boolean => lastOf(name) > scope().base || (lastOf(name) >= 0 && SCOPES.has(name));
  const hostOf = (node: OpenElement): OpenElement => node.outside ?? node;

  function push(name: string, attributes: ReadonlyMap<string, string>): OpenElement {
    const at = stack.length;
    const above = stack.at(-1);
    elementsLeft--;
    // A browser moves what may not be in a table in front of it.
    const parent = above && !IN_TABLE.has(name) && !CELLS.has(name) && name !== 'colgroup' ? hostOf(above) : above;
    const node = create(name, attributes, parent, above, at);
    stack.push(node);
    const others = indexes.get(name);
    if (others) others.push(at);
    else indexes.set(name, [at]);
    if (SCOPES.has(name)) scopes.push({ base: at, formatting: MARKING.has(name) ? [] : scope().formatting });
    if (name === 'svg' || name === 'math') foreign++;
    opened(node);
    return node;
  }

  function create(
    name: string,
    attributes: ReadonlyMap<string, string>,
    parent: OpenElement | undefined,
    above: OpenElement | undefined,
    at: number,
  ): OpenElement {
    const previous = parent?.last;
    const element = { name, attributes, parent, previous };
    const box = boxOf(element, parent);
    const isSpecial = SPECIAL.has(name);
    const isItem = isSpecial && name !== 'address' && name !== 'div' && name !== 'p';
    const why = whyHidden(box);
    const node: OpenElement = {
      ...element,
      box,
      lines: box.display === 'inline' && parent ? parent.lines : { isFirst: true },
      last: undefined,
      hidden: why && hiddenBy(why, parent),
      outside: name === 'table' ? parent : IN_TABLE.has(name) ? above?.outside : undefined,
      folded: name === 'details' && !attributes.has('open') ? { why: 'details', pieces: [] } : undefined,
      at,
      special: isSpecial ? at : (above?.special ?? 0),
      item: isItem ? at : (above?.item ?? 0),
    };
    if (parent) parent.last = node;
    if (previous) previous.previous = undefined;
    return node;
  }

  /** Boxes of elements without a style of their own, by the box they are in. */
  const plain = new WeakMap<Box, Map<string, Box>>();

  function plainBox(name: string, above: Box): Box {
    if (above.display === 'inline' && !above.isItem && !hasDefaultStyle(name)) return above;
    const known = plain.get(above) ?? new Map<string, Box>();
    plain.set(above, known);
    const box = known.get(name) ?? toBox(name, NO_ATTRIBUTES, above, [], isQuirky);
    if (known.size < MAX_PLAIN) known.set(name, box);
    return box;
  }

  function boxOf(element: Omit<Element, 'parent'>, parent: OpenElement | undefined): Box {
    const { name, attributes } = element;
    const above = parent?.box ?? ROOT_BOX;
    const declared = styles.of({ ...element, parent });
    const isPlain = declared.length === 0 && attributes.size === 0;
    const box = isPlain ? plainBox(name, above) : toBox(name, attributes, above, declared, isQuirky);
    if (box.lost) return box;
    const lost = lostBy(name, attributes, parent);
    return lost ? { ...box, lost } : box;
  }

  function pop(): void {
    const node = stack.pop();
    if (!node) return;
    indexes.get(node.name)?.pop();
    if (SCOPES.has(node.name) && scopes.length > 1) scopes.pop();
    if (FORMATTING.has(node.name)) {
      const own = scope().formatting.findLast((one) => one.node === node);
      if (own) own.node = undefined;
    }
    if (node.name === 'svg' || node.name === 'math') foreign--;
    closed(node);
  }

  function popTo(length: number): void {
    while (stack.length > Math.max(2, length)) pop();
  }

  const endParagraph = (): void => {
    if (isOpen('p') && lastOf('p') > lastOf('button')) popTo(lastOf('p'));
  };

  /** Opens the elements of text again that a block ended before their own end tag. */
  function reopen(): void {
    for (const one of scope().formatting) {
      if (one.node) continue;
      if (againLeft-- <= 0) return;
      one.node = push(one.name, one.attributes);
    }
  }

  function openFormatting(name: string, attributes: ReadonlyMap<string, string>): void {
    if (name === 'a' && scope().formatting.some((one) => one.name === 'a')) endFormatting('a');
    reopen();
    const { formatting } = scope();
    const node = push(name, attributes);
    const same = formatting.filter((one) => one.name === name && sameAttributes(one.attributes, attributes));
    // Browsers keep three of the same.
    if (same.length >= 3 || formatting.length >= MAX_FORMATTING)
      formatting.splice(same[0] ? formatting.indexOf(same[0]) : 0, 1);
    formatting.push({ name, attributes, node });
  }

  function endFormatting(name: string): void {
    const { formatting, base } = scope();
    const at = formatting.findLastIndex((one) => one.name === name);
    if (at === -1) return endOther(name);
    const index = formatting[at]?.node?.at;
    if (index !== undefined && index <= base) return;
    formatting.splice(at, 1);
    if (index === undefined) return;
    const inside = stack.slice(index + 1);
    popTo(index);
    // Blocks that were opened in it go on without it.
    if (!inside.some((node) => SPECIAL.has(node.name))) return;
    for (const node of inside) {
      if (againLeft-- <= 0) return;
      const again = push(node.name, node.attributes);
      const entry = formatting.find((one) => FORMATTING.has(node.name) && one.name === node.name && !one.node);
      if (entry) entry.node = again;
    }
  }

  function endOther(name: string): void {
    const at = lastOf(name);
    if (at >= top().special && at > scope().base) popTo(at);
  }

  /** Opens a part of a table. Outside of one its tag means nothing. */
  function openInTable(name: string, attributes: ReadonlyMap<string, string>): void {
    const table = lastOf('table');
    if (table === -1) return;
    const scoped = CELLS.has(top().name) || CELLS.has(stack[scope().base]?.name ?? '');
    if (scoped && scope().base > table) popTo(scope().base);
    if (scope().base !== lastOf('table')) return;
    const keep = (names: ReadonlySet<string>) => {
      while (stack.length > lastOf('table') + 1 && !names.has(top().name)) pop();
    };
    if (CELLS.has(name) && name !== 'caption') {
      keep(new Set(['tr', ...SECTIONS]));
      if (top().name === 'table') push('tbody', NO_ATTRIBUTES);
      if (top().name !== 'tr') push('tr', NO_ATTRIBUTES);
    } else if (name === 'tr') {
      keep(SECTIONS);
      if (top().name === 'table') push('tbody', NO_ATTRIBUTES);
    } else keep(new Set());
    push(name, attributes);
  }

  function endInTable(name: string): void {
    const at = lastOf(name);
    if (at > lastOf('table') && lastOf('table') !== -1) popTo(at);
  }

  /** A second html or body tag adds its attributes to the first. */
  function restyle(at: 0 | 1, attributes: ReadonlyMap<string, string>): void {
    const before = stack[at];
    if (!before || attributes.size === 0) return;
    const merged = new Map([...attributes, ...before.attributes]);
    const made = create(before.name, merged, stack[at - 1], stack[at - 1], at);
    if (stack.length === at + 1) stack[at] = made;
    else if (at === 0 && stack.length === 2) {
      stack[0] = made;
      stack[1] = create('body', stack[1]?.attributes ?? NO_ATTRIBUTES, made, made, 1);
    }
  }

  const html = create('html', NO_ATTRIBUTES, undefined, undefined, 0);
  stack.push(html);
  const body = create('body', NO_ATTRIBUTES, html, html, 1);
  stack.push(body);

  return {
    open(name: string, attributes: ReadonlyMap<string, string>, isClosed: boolean): void {
      if (name === 'html' || name === 'body') return restyle(name === 'html' ? 0 : 1, attributes);
      if (name === 'head' || name === 'frameset' || (name === 'form' && lastOf('form') !== -1)) return;
      if (foreign > 0) {
        const node = push(name, attributes);
        if (isClosed && top() === node) pop();
        return;
      }
      if (name === 'image') return this.open('img', attributes, isClosed);
      if (BLOCKS.has(name) && !(name === 'table' && isQuirky)) endParagraph();
      if (HEADINGS.has(name) && HEADINGS.has(top().name)) pop();
      const item = stack[top().item]?.name;
      if ((name === 'li' && item === 'li') || ((name === 'dd' || name === 'dt') && (item === 'dd' || item === 'dt')))
        popTo(top().item);
      if ((name === 'option' || name === 'optgroup') && top().name === 'option') pop();
      if (IN_TABLE.has(name) && name === 'table' && IN_TABLE.has(top().name)) popTo(lastOf('table'));
      if ((IN_TABLE.has(name) && name !== 'table') || CELLS.has(name) || name === 'colgroup')
        return openInTable(name, attributes);
      if (VOID_ELEMENTS.has(name)) {
        const node = push(name, attributes);
        if (top() === node) pop();
        return;
      }
      if (FORMATTING.has(name)) return openFormatting(name, attributes);
      if (!BLOCKS.has(name)) reopen();
      const node = push(name, attributes);
      if (isClosed && (name === 'svg' || name === 'math') && top() === node) pop();
    },
    close(name: string) {
      if (name === 'br') return this.open('br', NO_ATTRIBUTES, false);
      if (name === 'body' || name === 'html' || name === 'head') return;
      if (name === 'li' && lastOf('li') < Math.max(lastOf('ul'), lastOf('ol'))) return;
      if (name === 'p' && !isOpen('p')) push('p', NO_ATTRIBUTES);
      if (FORMATTING.has(name)) endFormatting(name);
      else if (HEADINGS.has(name)) {
        const at = Math.max(...[...HEADINGS].map(lastOf));
        if (at > scope().base) popTo(at);
      } else if (IN_TABLE.has(name) || CELLS.has(name)) {
        if (name !== 'table') endInTable(name);
        else if (lastOf('table') !== -1) popTo(lastOf('table'));
      } else if (ENDING.has(name)) {
        if (isOpen(name)) popTo(lastOf(name));
      } else endOther(name);
    },
    /** The element that contains the next text. */
    parentOfText(isBlank: boolean): OpenElement {
      if (!isBlank) reopen();
      return hostOf(top());
    },
    finish() {
      while (stack.length > 0) pop();
    },
    /** Whether there are too many elements: the rest of the page is ignored. */
    isFull: (): boolean => elementsLeft <= 0,
    /** Whether elements are left out. */
    isCut: (): boolean => againLeft <= 0 || elementsLeft <= 0,
  };
}

function lostBy(
  name: string,
  attributes: ReadonlyMap<string, string>,
  parent: OpenElement | undefined,
): HiddenReason | undefined {
  if (NEVER_SHOWN.has(name)) return 'element';
  if (name === 'dialog' && !attributes.has('open')) return 'display';
  return parent?.folded && !(name === 'summary' && !parent.last) ? 'details' : undefined;
}

/** Text that is hidden for the reason of its parent belongs to it. */
function hiddenBy(why: HiddenReason, parent: OpenElement | undefined): HiddenText {
  const known = [parent?.hidden, parent?.folded].find((one) => one?.why === why);
  return known ?? { why, pieces: [] };
}

function sameAttributes(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  return a.size === b.size && [...a].every(([name, value]) => b.get(name) === value);
}
