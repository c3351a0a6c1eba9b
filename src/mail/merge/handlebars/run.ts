import type { SlicedWork } from '../../../base/concurrency.ts';
import { frozen } from '../../../base/frozen.ts';
import { escapeHtml } from '../../../base/html.ts';
import { RenderedTooLong, TemplateError } from '../../template-errors.ts';
import {
  isList,
  isOrdered,
  isStruct,
  isTrue,
  type Maybe,
  type MergeValue,
  member,
  textOfValue,
  toNumber,
} from '../values.ts';
import type {
  Expression,
  HelperContext,
  Loop,
  Operator,
  PathExpression,
  TemplateBody,
  TemplateNode,
} from './program.ts';

interface RunOptions extends HelperContext {
  readonly variables: Variables;
  /** Whether values are escaped for HTML: `<` as `&lt;`. */
  readonly escapes: boolean;
  /** In characters. */
  readonly maxLength: number;
  readonly budget: StepBudget;
}

/** Budget steps between two yields. */
const SLICE = 5000;

/** The position in a body that is being run. */
interface Cursor {
  readonly body: TemplateBody;
  readonly frame: Frame;
  at: number;
  /** Returns what to run after the body: the next iteration of a loop. */
  readonly next: (() => Cursor | undefined) | undefined;
}

/**
 * Runs a template in steps of about a millisecond. Throws `RenderedTooLong`, and `TemplateError` if it exceeds the
 * budget. Nested blocks are kept in a list instead of recursion, so that it can yield inside any of them.
 */
export function* runningTemplate(body: TemplateBody, options: RunOptions): SlicedWork<string> {
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

function createOutput(options: RunOptions) {
  const { maxLength, escapes, budget } = options;
  const evaluate = createEvaluate(options);
  const parts: string[] = [];
  let length = 0;
  const put = (part: string) => {
    length += part.length;
    if (length > maxLength) throw new RenderedTooLong();
    parts.push(part);
    return undefined;
  };
  return {
    /** Outputs a node, or returns the body to run for it. */
    take(node: TemplateNode, frame: Frame): Cursor | undefined {
      switch (node.kind) {
        case 'text':
          return put(node.text);
        case 'print': {
          const text = textOfValue(evaluate(node.of, frame));
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
    finish: (): string => parts.join(''),
  };
}

function toCursor(body: TemplateBody, frame: Frame, next?: Cursor['next']): Cursor {
  return { body, frame, at: 0, next };
}

function loop(node: Loop, value: ReturnType<typeof member>, frame: Frame, budget: StepBudget): Cursor | undefined {
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
    const iteration = { index, key, first: index === 0, last: index === count - 1 };
    return toCursor(body, enter(frame, member(value, String(key)), iteration, names), () => turn(index + 1));
  };
  return turn(0) ?? toCursor(otherwise, frame);
}

/** Characters processed per step. */
const CHARACTERS_PER_STEP = 50;

/** Creates the function that evaluates expressions. */
function createEvaluate({
  variables,
  budget,
  now,
  onUnsub,
}: RunOptions): (expression: Expression, frame: Frame) => Maybe {
  const surroundings = { now, onUnsub };
  /** Charges the budget for the length of a value. */
  const weigh = (value: Maybe): Maybe => {
    if (typeof value === 'string') budget.spend(Math.ceil(value.length / CHARACTERS_PER_STEP));
    else if (isList(value))
      for (const one of value)
        budget.spend(typeof one === 'string' ? 1 + Math.floor(one.length / CHARACTERS_PER_STEP) : 1);
    return value;
  };
  const evaluate = (expression: Expression, frame: Frame): Maybe => {
    budget.spend(1);
    switch (expression.kind) {
      case 'value':
        return expression.value;
      case 'path':
        return weigh(find(expression, frame, variables) ?? expression.otherwise?.run([], surroundings));
      case 'call':
        return weigh(
          expression.helper.run(
            expression.params.map((param) => evaluate(param, frame)),
            surroundings,
          ),
        );
      case 'not':
        return !isTrue(evaluate(expression.of, frame));
      default: {
        const { operator, left, right } = expression;
        const value = evaluate(left, frame);
        if (operator === 'and') return isTrue(value) ? evaluate(right, frame) : value;
        if (operator === 'or') return isTrue(value) ? value : evaluate(right, frame);
        return compare(value, operator, evaluate(right, frame));
      }
    }
  };
  return evaluate;
}

/**
 * Compares two values. Values are often strings, so numeric texts are compared as numbers, and 1 equals "1". A missing
 * value equals an empty one and is neither smaller nor larger than any other.
 */
function compare(left: Maybe, operator: Exclude<Operator, 'and' | 'or'>, right: Maybe): boolean {
  const [a, b] = [textOfValue(left), textOfValue(right)];
  const [m, n] = [toNumber(a), toNumber(b)];
  const numbers = m !== undefined && n !== undefined;
  if (operator === '==') return numbers ? m === n : a === b;
  if (operator === '!=') return numbers ? m !== n : a !== b;
  if (a === '' || b === '') return false;
  return isOrdered(a, operator, b);
}

/** The current iteration of a loop. */
interface Iteration {
  readonly index: number;
  readonly key: string | number;
  readonly first: boolean;
  readonly last: boolean;
}

/** The scope at one point of a template. */
interface Frame {
  readonly value: Maybe;
  readonly around: Frame | undefined;
  readonly iteration: Iteration | undefined;
  readonly named: ReadonlyMap<string, Maybe>;
}

const NOTHING: ReadonlyMap<string, Maybe> = new Map();

/** The outermost scope: names refer to variables. */
function toFrame({ all }: Variables): Frame {
  return { value: all, around: undefined, iteration: undefined, named: NOTHING };
}

/** The scope inside a block: names are members of the value; block parameters name the value and its key or index. */
function enter(
  around: Frame,
  value: Maybe,
  iteration: Iteration | undefined,
  [name, keyName]: readonly string[],
): Frame {
  const named = new Map<string, Maybe>();
  if (name !== undefined) named.set(name, value);
  if (keyName !== undefined) named.set(keyName, iteration?.key);
  return { value, around, iteration, named: named.size > 0 ? named : NOTHING };
}

/** Resolves a path. */
function find({ up, data, scoped, parts }: PathExpression, frame: Frame, variables: Variables): Maybe {
  const [name = '', ...rest] = parts;
  if (data)
    return name === 'root'
      ? follow(variables.all, rest, variables)
      : rest.length > 0
        ? undefined
        : dataVariable(frame, up, name);
  if (up === 0 && !scoped) {
    for (let at: Frame | undefined = frame; at; at = at.around)
      if (at.named.has(name)) return rest.reduce(member, at.named.get(name));
  }
  let at: Frame | undefined = frame;
  for (let left = up; left > 0 && at; left--) at = at.around;
  return follow(at?.value, parts, variables);
}

/** Names of variables are case-insensitive, names of members are not. */
function follow(from: Maybe, [name, ...rest]: readonly string[], variables: Variables): Maybe {
  if (name === undefined) return from;
  return rest.reduce(member, from === variables.all ? variables.find(name) : member(from, name));
}

function dataVariable(frame: Frame, up: number, name: string): Maybe {
  let left = up;
  for (let at: Frame | undefined = frame; at; at = at.around) {
    if (at.iteration && left-- === 0)
      return name === 'index' || name === 'key' || name === 'first' || name === 'last' ? at.iteration[name] : undefined;
  }
  return undefined;
}

/** The variables of one recipient. */
type Variables = ReturnType<typeof toVariables>;

/** If a name is repeated, in any case, the last one wins. */
export function toVariables(list: Iterable<{ readonly name: string; readonly content: MergeValue }>) {
  const known = new Map<string, { readonly name: string; readonly content: MergeValue }>();
  for (const variable of list) known.set(variable.name.toLowerCase(), variable);
  const all = Object.fromEntries([...known.values()].map(({ name, content }) => [name, content]));
  return frozen({
    /** All variables, under the names as given. */
    all,
    /** Case-insensitive, as in the mailchimp language. */
    find: (name: string): Maybe => known.get(name.toLowerCase())?.content,
  });
}

/** Maximum work per message, for parsing and running its templates: about half a second at worst. */
const MAX_STEPS = 1_000_000;

/** The remaining work. All texts of a message share it, so that many small ones cost no more than one large one. */
export type StepBudget = ReturnType<typeof createStepBudget>;

export function createStepBudget(steps = MAX_STEPS) {
  let spent = 0;
  return frozen({
    /** Throws `TemplateError` if less is left. */
    spend(asked: number) {
      spent += asked;
      if (spent > steps) throw new TemplateError(`it takes more than ${steps} steps`);
    },
    /** Steps spent so far. */
    spent: (): number => spent,
  });
}
