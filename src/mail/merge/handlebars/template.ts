import type { Steps } from '../../../base/steps.ts';
import { FaultyTemplate } from '../faulty-template.ts';
import { type Block, createBlock } from './block.ts';
import type { Budget } from './budget.ts';
import { type Call, helperOf, parseCall, toCall } from './call.ts';
import { type Piece, type Tag, takingApart } from './pieces.ts';
import type { Body, Node } from './program.ts';
import { trimmingPieces } from './white-space.ts';

/** Blocks in blocks. */
const DEEPEST = 64;
/** What reading a tag costs for each of its characters: tags can be written that take the parser microseconds for each. */
const STEPS_PER_CHARACTER = 5;
/** Tags between two rests, and what reading them may cost. */
const SLICE = 500;
const SLICE_STEPS = 1000;

/**
 * Reads a template, in steps of about a millisecond. Throws `FaultyTemplate`, saying in which line. What was read can be run with any
 * variables: then it can only become too long, or cost too much.
 */
export function* readingTemplate(source: string, budget: Budget): Steps<Body> {
  if (!source.includes('{{')) return [{ kind: 'text', text: source }];
  let last: Tag | undefined;
  try {
    return yield* readingPieces(yield* trimmingPieces(yield* takingApart(source)), budget, (tag) => {
      last = tag;
    });
  } catch (error) {
    throw error instanceof FaultyTemplate && last
      ? new FaultyTemplate(`line ${source.slice(0, last.at).split('\n').length}: ${error.message}`)
      : error;
  }
}

/** `note` is told of each tag before it is read. */
function* readingPieces(pieces: readonly Piece[], budget: Budget, note: (tag: Tag) => void): Steps<Body> {
  const root: Node[] = [];
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
  if (left) throw new FaultyTemplate(`the block {{#${left.name.slice(0, 100)}}} is not closed`);
  return root;
}

type Read = (inside: string) => Call;

/** The same tag is read once. */
function createReading(budget: Budget): Read {
  const known = new Map<string, Call>();
  return (inside) => {
    const found = known.get(inside);
    if (found) return found;
    budget.spend(inside.length * STEPS_PER_CHARACTER);
    const call = parseCall(inside);
    known.set(inside, call);
    return call;
  };
}

/** Follows a tag; answers where what comes next belongs. */
function take(tag: Tag, body: Node[], open: Block[], read: Read): Node[] {
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
      if (!block) throw new FaultyTemplate('an {{else}} belongs to no block');
      if (tag.inside === '') return block.toElse();
      const call = read(tag.inside);
      return block.toBranch(call) ?? begin(tag.inside, false, true, block.toElse(), open, read);
    }
    default:
      return end(tag.inside, open);
  }
}

const NAMES = /\sas\s+\|([^|]*)\|\s*$/;

function begin(inside: string, inverse: boolean, chained: boolean, body: Node[], open: Block[], read: Read): Node[] {
  if (open.length >= DEEPEST) throw new FaultyTemplate(`blocks are nested more than ${DEEPEST} deep`);
  const names = (NAMES.exec(inside)?.[1] ?? '').split(/\s+/).filter((name) => name !== '');
  const block = createBlock(read(inside.replace(NAMES, '')), { names, inverse, chained, outside: body });
  open.push(block);
  return block.body;
}

/** A block that began with an else ends with the one it belongs to. */
function end(name: string, open: Block[]): Node[] {
  let block = open.pop();
  while (block?.chained) {
    block.outside.push(block.finish());
    block = open.pop();
  }
  if (!block) throw new FaultyTemplate(`{{/${name.slice(0, 100)}}} closes no block`);
  if (block.name !== name)
    throw new FaultyTemplate(`{{/${name.slice(0, 100)}}} does not close {{#${block.name.slice(0, 100)}}}`);
  block.outside.push(block.finish());
  return block.outside;
}
