import type { Steps } from '../../../base/steps.ts';
import { TooLong } from '../../too-long.ts';
import { isList, isStruct, isTrue, member, toText } from '../value.ts';
import type { Budget } from './budget.ts';
import { createEvaluate } from './evaluate.ts';
import { enter, type Frame, toFrame } from './frame.ts';
import type { Surroundings } from './helpers.ts';
import type { Body, Loop, Node } from './program.ts';
import type { Variables } from './variables.ts';

export interface RunOptions extends Surroundings {
  readonly variables: Variables;
  /** Whether values are put in as HTML: `<` as `&lt;`. */
  readonly escapes: boolean;
  /** In characters. */
  readonly maxLength: number;
  readonly budget: Budget;
}

/** Steps of the budget between two rests. */
const SLICE = 5000;

/** A body that is being run, and where. */
interface Cursor {
  readonly body: Body;
  readonly frame: Frame;
  at: number;
  /** What comes after the body: the next turn of a loop. */
  readonly next: (() => Cursor | undefined) | undefined;
}

/**
 * Runs a template, in steps of about a millisecond. Throws `TooLong`, and `FaultyTemplate` when it costs more than the budget has.
 * Blocks in blocks are a list here and no recursion, so that it can rest in the middle of any of them.
 */
export function* runningTemplate(body: Body, options: RunOptions): Steps<string> {
  const { budget, variables } = options;
  const output = createOutput(options);
  const open: Cursor[] = [{ body, frame: toFrame(variables), at: 0, next: undefined }];
  let rested = budget.spent();
  for (let cursor = open.at(-1); cursor; cursor = open.at(-1)) {
    const node = cursor.body[cursor.at++];
    if (node) {
      budget.spend(1);
      const inner = output.take(node, cursor.frame);
      if (inner) open.push(inner);
    } else {
      open.pop();
      const turn = cursor.next?.();
      if (turn) open.push(turn);
    }
    if (budget.spent() - rested > SLICE) {
      rested = budget.spent();
      yield;
    }
  }
  return output.finish();
}

interface Output {
  /** Puts out what the node shows, or answers what is to be run for it. */
  take(node: Node, frame: Frame): Cursor | undefined;
  finish(): string;
}

function createOutput(options: RunOptions): Output {
  const { maxLength, escapes, budget } = options;
  const evaluate = createEvaluate(options);
  const parts: string[] = [];
  let length = 0;
  const put = (part: string) => {
    length += part.length;
    if (length > maxLength) throw new TooLong();
    parts.push(part);
    return undefined;
  };
  return {
    take(node, frame) {
      switch (node.kind) {
        case 'text':
          return put(node.text);
        case 'print': {
          const text = toText(evaluate(node.of, frame));
          return put(escapes && node.escaped ? escapeHtml(text) : text);
        }
        case 'choice': {
          const branch = node.branches.find(({ condition, negated }) => isTrue(evaluate(condition, frame)) !== negated);
          return toCursor(branch?.body ?? node.otherwise, frame);
        }
        default:
          return loop(node, evaluate(node.of, frame), frame, budget);
      }
    },
    finish: () => parts.join(''),
  };
}

function toCursor(body: Body, frame: Frame, next?: Cursor['next']): Cursor {
  return { body, frame, at: 0, next };
}

function loop(node: Loop, value: ReturnType<typeof member>, frame: Frame, budget: Budget): Cursor | undefined {
  const { kind, names, body, otherwise } = node;
  if (!isTrue(value)) return toCursor(otherwise, frame);
  if (kind === 'section' && value === true) return toCursor(body, frame);
  if (kind === 'with' || (kind === 'section' && !isList(value)))
    return toCursor(body, enter(frame, value, undefined, names));
  const keys = isStruct(value) ? Object.keys(value) : undefined;
  budget.spend(keys?.length ?? 0);
  const count = keys?.length ?? (isList(value) ? value.length : 0);
  const turn = (index: number): Cursor | undefined => {
    if (index >= count) return undefined;
    budget.spend(1);
    const key = keys?.[index] ?? index;
    const place = { index, key, first: index === 0, last: index === count - 1 };
    return toCursor(body, enter(frame, member(value, String(key)), place, names), () => turn(index + 1));
  };
  return turn(0) ?? toCursor(otherwise, frame);
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** What text and quoted attributes need. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}
