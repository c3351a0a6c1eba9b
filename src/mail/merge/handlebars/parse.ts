import type { SlicedWork } from '../../../base/concurrency.ts';
import { TemplateError } from '../../template-errors.ts';
import { helperOf, parseCall, type TagCall, toCall } from './call.ts';
import type { Branch, Expression, Loop, TemplateBody, TemplateNode } from './program.ts';
import type { StepBudget } from './run.ts';

/** Maximum nesting of blocks. */
const DEEPEST = 64;
/** Cost of parsing a tag, per character: some tags take the parser microseconds for each. */
const STEPS_PER_CHARACTER = 5;
/** The most tags, and the most steps spent on parsing them, between two yields. */
const SLICE = 500;
const SLICE_STEPS = 1000;

/**
 * Parses a template in steps of about a millisecond. Throws `TemplateError` with the line number. A parsed template
 * can be run with any variables: it can then only become too long or exceed the budget.
 */
export function* readingTemplate(source: string, budget: StepBudget): SlicedWork<TemplateBody> {
  if (!source.includes('{{')) return [{ kind: 'text', text: source }];
  let last: Tag | undefined;
  try {
    return yield* readingPieces(yield* trimmingPieces(yield* splittingTags(source)), budget, (tag) => {
      last = tag;
    });
  } catch (error) {
    throw error instanceof TemplateError && last
      ? new TemplateError(`line ${source.slice(0, last.at).split('\n').length}: ${error.message}`)
      : error;
  }
}

/** Calls `note` with each tag before parsing it. */
function* readingPieces(
  pieces: readonly Piece[],
  budget: StepBudget,
  note: (tag: Tag) => void,
): SlicedWork<TemplateBody> {
  const root: TemplateNode[] = [];
  const open: Block[] = [];
  const read = createReading(budget);
  let body = root;
  let tags = 0;
  let rested = budget.spent();
  for (const piece of pieces) {
    if (piece.kind === 'text') {
      body.push(piece);
      continue;
    }
    note(piece);
    body = take(piece, body, open, read);
    if (++tags % SLICE === 0 || budget.spent() - rested > SLICE_STEPS) {
      rested = budget.spent();
      yield;
    }
  }
  const left = open.at(-1);
  if (left) throw new TemplateError(`the block {{#${left.name.slice(0, 100)}}} is not closed`);
  return root;
}

type Read = (inside: string) => TagCall;

/** Caches parsed tags, so that repeated ones are parsed once. */
function createReading(budget: StepBudget): Read {
  const known = new Map<string, TagCall>();
  return (inside) => {
    const found = known.get(inside);
    if (found) return found;
    budget.spend(inside.length * STEPS_PER_CHARACTER);
    const call = parseCall(inside);
    known.set(inside, call);
    return call;
  };
}

/** Processes a tag; returns the body that following nodes belong to. */
function take(tag: Tag, body: TemplateNode[], open: Block[], read: Read): TemplateNode[] {
  switch (tag.kind) {
    case 'comment':
      return body;
    case 'print': {
      const { name, target, params } = read(tag.inside);
      body.push({
        kind: 'print',
        of: params.length > 0 ? toCall(helperOf(name), name, params) : target,
        escaped: tag.escaped,
      });
      return body;
    }
    case 'open':
    case 'inverse':
      return begin(tag.inside, tag.kind === 'inverse', false, body, open, read);
    case 'else': {
      const block = open.at(-1);
      if (!block) throw new TemplateError('an {{else}} belongs to no block');
      if (tag.inside === '') return block.toElse();
      const call = read(tag.inside);
      return block.toBranch(call) ?? begin(tag.inside, false, true, block.toElse(), open, read);
    }
    default:
      return end(tag.inside, open);
  }
}

const NAMES = /\sas\s+\|([^|]*)\|\s*$/;

function begin(
  inside: string,
  inverse: boolean,
  chained: boolean,
  body: TemplateNode[],
  open: Block[],
  read: Read,
): TemplateNode[] {
  if (open.length >= DEEPEST) throw new TemplateError(`blocks are nested more than ${DEEPEST} deep`);
  const names = (NAMES.exec(inside)?.[1] ?? '').split(/\s+/).filter((name) => name !== '');
  const block = createBlock(read(inside.replace(NAMES, '')), { names, inverse, chained, outside: body });
  open.push(block);
  return block.body;
}

/** Ends a block, together with the blocks that its else tags began. */
function end(name: string, open: Block[]): TemplateNode[] {
  let block = open.pop();
  while (block?.chained) {
    block.outside.push(block.finish());
    block = open.pop();
  }
  if (!block) throw new TemplateError(`{{/${name.slice(0, 100)}}} closes no block`);
  if (block.name !== name)
    throw new TemplateError(`{{/${name.slice(0, 100)}}} does not close {{#${block.name.slice(0, 100)}}}`);
  block.outside.push(block.finish());
  return block.outside;
}

interface Opened {
  /** Block parameters. */
  readonly names: readonly string[];
  readonly inverse: boolean;
  /** Whether an else tag of another block began it. */
  readonly chained: boolean;
  /** The surrounding body. */
  readonly outside: TemplateNode[];
}

/** An open block during parsing. */
type Block = ReturnType<typeof createBlock>;

function createBlock(call: TagCall, opened: Opened) {
  const { name } = call;
  const { body, otherwise, add, finish } = branchesOf(call, opened);
  let hasElse = false;
  const refuseSecond = () => {
    if (hasElse) throw new TemplateError(`{{#${name.slice(0, 100)}}} has an {{else}} already`);
  };
  return {
    ...opened,
    /** The name required in the closing tag. */
    name,
    /** The first branch. */
    body,
    /** Begins the else branch. */
    toElse() {
      refuseSecond();
      hasElse = true;
      return otherwise;
    },
    /** Begins another branch of the same block; undefined if the block cannot have it. */
    toBranch(one: TagCall): TemplateNode[] | undefined {
      refuseSecond();
      return one.name === 'if' || one.name === 'unless' ? add?.(one) : undefined;
    },
    finish,
  };
}

/** The parts of a block while it is read. */
interface Branches {
  readonly body: TemplateNode[];
  readonly otherwise: TemplateNode[];
  /** Of blocks that may have further branches. */
  add?(call: TagCall): TemplateNode[];
  finish(): TemplateNode;
}

/** Throws `TemplateError` if there is no such block helper. */
function branchesOf(call: TagCall, opened: Opened): Branches {
  const { name } = call;
  if (name === 'if' || name === 'unless') return choiceOf(call, opened);
  if (name === 'each' || name === 'with') return loopOf(name, only(call), opened);
  if (call.params.length > 0) throw new TemplateError(`there is no block helper "${name.slice(0, 100)}"`);
  return loopOf('section', call.target, opened);
}

function only({ name, params: [value, ...others] }: TagCall): Expression {
  if (!value || others.length > 0) throw new TemplateError(`{{#${name}}} takes one value`);
  return value;
}

function choiceOf(call: TagCall, { inverse }: Opened): Branches {
  const branches: Branch[] = [];
  const otherwise: TemplateNode[] = [];
  const add = (one: TagCall, isInverse = false) => {
    const body: TemplateNode[] = [];
    branches.push({ condition: only(one), negated: (one.name === 'unless') !== isInverse, body });
    return body;
  };
  return { body: add(call, inverse), otherwise, add, finish: () => ({ kind: 'choice', branches, otherwise }) };
}

function loopOf(kind: Loop['kind'], of: Expression, { names, inverse }: Opened): Branches {
  const body: TemplateNode[] = [];
  const otherwise: TemplateNode[] = [];
  const [full, empty] = inverse ? [otherwise, body] : [body, otherwise];
  return { body, otherwise, finish: () => ({ kind, of, names, body: full, otherwise: empty }) };
}

/** Text, or a tag `{{…}}`. */
type Piece = { readonly kind: 'text'; readonly text: string } | Tag;

interface Tag {
  /** open: `{{#…}}`; inverse: `{{^…}}`; else: begins another branch, or a chained block if `inside` names one. */
  readonly kind: 'print' | 'open' | 'inverse' | 'else' | 'close' | 'comment';
  /** Without braces and signs. */
  readonly inside: string;
  /** `{{x}}`, not `{{{x}}}`. */
  readonly escaped: boolean;
  /** `~`: whether white space before or after the tag is removed. */
  readonly trims: { readonly before: boolean; readonly behind: boolean };
  /** Offset in the source. */
  readonly at: number;
}

/** Maximum characters of a tag; the longest content is a URL. */
const LONGEST_TAG = 2048;
/** Including escaped tags. */
const MAX_TAGS = 50_000;

/** Splits a template into pieces, in one pass. Throws `TemplateError` for unclosed tags and unsupported syntax. */
function* splittingTags(source: string): SlicedWork<Piece[]> {
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
    if (++tags > MAX_TAGS) throw new TemplateError(`it has more than ${MAX_TAGS} tags`);
    if (tags % SLICE === 0) yield;
    const escaped = open > done && source[open - 1] === '\\';
    const doubled = escaped && open - 1 > done && source[open - 2] === '\\';
    if (escaped && !doubled) {
      texts.push(source.slice(done, open - 1), '{{');
      open = done = open + 2;
      continue;
    }
    const { tag, end } = readTag(source, open);
    endText(doubled ? open - 1 : open); // one of two backslashes stays
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
  if (triple && source[from] === '{') throw new TemplateError('raw blocks ({{{{…}}}}) are not supported');
  const close = endOf(source, from, triple);
  if (close === undefined)
    throw new TemplateError(
      `the tag ${source.slice(at, at + 40)} is not closed, or longer than ${LONGEST_TAG} characters`,
    );
  const behind = source[close.at] === '~' || (triple && source[close.at + 1] === '~');
  const content = source.slice(from, close.at);
  const kind = triple ? undefined : signOf(content);
  const inside = kind === undefined ? content.replace(/^&/, '') : content.slice(1);
  return {
    tag: { ...classify(kind, inside), escaped: !triple && !content.startsWith('&'), trims: { before, behind }, at },
    end: close.end,
  };
}

function signOf(content: string): '#' | '/' | '^' | undefined {
  const sign = content[0];
  if (sign === '>' || /^#\s*>/.test(content)) throw new TemplateError('partials ({{> …}}) are not supported');
  if (sign === '*' || /^#\s*\*/.test(content)) throw new TemplateError('decorators ({{* …}}) are not supported');
  return sign === '#' || sign === '/' || sign === '^' ? sign : undefined;
}

const ELSE = /^\s*else(?:\s*$|(?=if[\s`(])|\s+)/;

function classify(sign: '#' | '/' | '^' | undefined, inside: string): Pick<Tag, 'kind' | 'inside'> {
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
  if (!found) throw new TemplateError('a comment is not closed');
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

/** The end of a tag. End marks inside quotes, backticks and square brackets are ignored. */
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

// Tags without output: if one is alone on a line, the line is removed, as in all implementations of the language.
const STANDALONE = new Set<Piece['kind']>(['open', 'inverse', 'else', 'close', 'comment']);

/** Pieces between two yields. */
const PIECES_PER_SLICE = 1000;

/** Removes white space that only formats the source: lines with only a block tag, and white space next to `~`. */
function* trimmingPieces(pieces: readonly Piece[]): SlicedWork<Piece[]> {
  const cuts = pieces.map(() => ({ start: 0, end: 0 }));
  for (const [at, piece] of pieces.entries()) {
    if (at % PIECES_PER_SLICE === 0) yield;
    if (piece.kind === 'text') continue;
    const before = pieces[at - 1];
    const behind = pieces[at + 1];
    const blanksBefore = STANDALONE.has(piece.kind) ? lineBefore(before, at === 1) : undefined;
    const blanksBehind = STANDALONE.has(piece.kind) ? lineBehind(behind, at === pieces.length - 2) : undefined;
    const alone = blanksBefore !== undefined && blanksBehind !== undefined;
    const ends = piece.trims.before && before?.kind === 'text' ? before.text.length - before.text.trimEnd().length : 0;
    const starts =
      piece.trims.behind && behind?.kind === 'text' ? behind.text.length - behind.text.trimStart().length : 0;
    const left = cuts[at - 1];
    const right = cuts[at + 1];
    if (left) left.end = Math.max(left.end, ends, alone ? blanksBefore : 0);
    if (right) right.start = Math.max(right.start, starts, alone ? blanksBehind : 0);
  }
  return pieces.map((piece, at) => {
    const { start, end } = cuts[at] ?? { start: 0, end: 0 };
    return piece.kind === 'text' && start + end > 0
      ? { kind: 'text', text: piece.text.slice(start, Math.max(start, piece.text.length - end)) }
      : piece;
  });
}

/** Number of blanks at the end of a piece, if nothing else is on that line; else undefined. */
function lineBefore(piece: Piece | undefined, isFirst: boolean): number | undefined {
  if (piece === undefined) return 0;
  if (piece.kind !== 'text') return undefined;
  const { text } = piece;
  let at = text.length;
  while (at > 0 && isBlank(text[at - 1])) at--;
  // Text that is all blanks follows a tag, unless it is the start of the template.
  return (at === 0 ? isFirst : text[at - 1] === '\n') ? text.length - at : undefined;
}

/** Number of blanks up to and including the line end; undefined if the line contains anything else. */
function lineBehind(piece: Piece | undefined, isLast: boolean): number | undefined {
  if (piece === undefined) return 0;
  if (piece.kind !== 'text') return undefined;
  const { text } = piece;
  let at = 0;
  while (at < text.length && isBlank(text[at])) at++;
  if (at === text.length) return isLast ? at : undefined;
  if (text.startsWith('\r\n', at)) return at + 2;
  return text[at] === '\n' ? at + 1 : undefined;
}

function isBlank(char: string | undefined): boolean {
  return char === ' ' || char === '\t';
}
