import { TooLong } from '../../too-long.ts';
import { isList, isStruct, isTrue, type Maybe, member, toText } from '../value.ts';
import type { Budget } from './budget.ts';
import { compare } from './compare.ts';
import type { Surroundings } from './helpers.ts';
import type { Body, Choice, Expression, Loop, Path } from './program.ts';
import type { Variables } from './variables.ts';

export interface RunOptions extends Surroundings {
  readonly variables: Variables;
  /** Whether values are put in as HTML: `<` as `&lt;`. */
  readonly escapes: boolean;
  /** In characters. */
  readonly maxLength: number;
  readonly budget: Budget;
}

/** Where a loop is. */
interface Place {
  readonly index: number;
  readonly key: string | number;
  readonly first: boolean;
  readonly last: boolean;
}

/** What names mean at one point of a template, and what they mean around it. */
interface Frame {
  readonly value: Maybe;
  readonly around: Frame | undefined;
  readonly place: Place | undefined;
  readonly named: ReadonlyMap<string, Maybe>;
}

const NOTHING: ReadonlyMap<string, Maybe> = new Map();
/** Characters that are looked at for one step. */
const CHARACTERS_PER_STEP = 50;

/** Runs a template. Throws `TooLong`, and `FaultyTemplate` when it costs more than the budget has. */
export function runTemplate(body: Body, options: RunOptions): string {
  const { maxLength, budget, escapes } = options;
  const evaluate = createEvaluate(options);
  const parts: string[] = [];
  let length = 0;
  const put = (part: string) => {
    length += part.length;
    if (length > maxLength) throw new TooLong();
    parts.push(part);
  };
  const run = (nodes: Body, frame: Frame): void => {
    for (const node of nodes) {
      budget.spend(1);
      switch (node.kind) {
        case 'text': put(node.text); break;
        case 'print': {
          const text = toText(evaluate(node.of, frame));
          put(escapes && node.escaped ? escapeHtml(text) : text);
          break;
        }
        case 'choice': run(choose(node, frame), frame); break;
        default: loop(node, frame);
      }
    }
  };
  const choose = ({ branches, otherwise }: Choice, frame: Frame): Body =>
    branches.find(({ condition, negated }) => isTrue(evaluate(condition, frame)) !== negated)?.body ?? otherwise;

  const loop = ({ kind, of, names, body: inside, otherwise }: Loop, frame: Frame): void => {
    const value = evaluate(of, frame);
    if (!isTrue(value)) run(otherwise, frame);
    else if (kind === 'section' && value === true) run(inside, frame);
    else if (kind === 'with' || (kind === 'section' && !isList(value))) run(inside, enter(frame, value, undefined, names));
    else if (!isList(value) && !isStruct(value)) run(otherwise, frame);
    else if (!each(value, names, inside, frame)) run(otherwise, frame);
  };
  /** False when there was nothing to do it for. */
  const each = (value: Maybe, names: readonly string[], inside: Body, frame: Frame): boolean => {
    const keys = isStruct(value) ? Object.keys(value) : undefined;
    budget.spend(keys?.length ?? 0);
    const count = keys?.length ?? (isList(value) ? value.length : 0);
    for (let index = 0; index < count; index++) {
      budget.spend(1);
      const key = keys?.[index] ?? index;
      run(inside, enter(frame, member(value, String(key)), { index, key, first: index === 0, last: index === count - 1 }, names));
    }
    return count > 0;
  };
  run(body, { value: options.variables.all, around: undefined, place: undefined, named: NOTHING });
  return parts.join('');
}

function enter(around: Frame, value: Maybe, place: Place | undefined, [name, placeName]: readonly string[]): Frame {
  const named = new Map<string, Maybe>();
  if (name !== undefined) named.set(name, value);
  if (placeName !== undefined) named.set(placeName, place?.key);
  return { value, around, place, named: named.size > 0 ? named : NOTHING };
}

function createEvaluate({ variables, budget, now, onUnsub }: RunOptions): (expression: Expression, frame: Frame) => Maybe {
  /** What looks at all of a value costs what it is long. */
  const weigh = (value: Maybe): Maybe => {
    if (typeof value === 'string') budget.spend(Math.ceil(value.length / CHARACTERS_PER_STEP));
    else if (isList(value)) budget.spend(value.length);
    return value;
  };
  const evaluate = (expression: Expression, frame: Frame): Maybe => {
    budget.spend(1);
    switch (expression.kind) {
      case 'value': return expression.value;
      case 'path': return weigh(find(expression, frame, variables) ?? expression.otherwise?.run([], { now, onUnsub }));
      case 'call': return expression.helper.run(expression.params.map((param) => weigh(evaluate(param, frame))), { now, onUnsub });
      case 'not': return !isTrue(evaluate(expression.of, frame));
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

/** What a path leads to. */
function find({ up, data, scoped, parts }: Path, frame: Frame, variables: Variables): Maybe {
  const [name = '', ...rest] = parts;
  if (data) return name === 'root' ? follow(variables.all, rest, variables) : rest.length > 0 ? undefined : placeOf(frame, up, name);
  if (up === 0 && !scoped) {
    for (let at: Frame | undefined = frame; at; at = at.around) if (at.named.has(name)) return rest.reduce(member, at.named.get(name));
  }
  let at: Frame | undefined = frame;
  for (let left = up; left > 0 && at; left--) at = at.around;
  return follow(at?.value, parts, variables);
}

/** Names of variables count in any case, those inside of values as they are. */
function follow(from: Maybe, [name, ...rest]: readonly string[], variables: Variables): Maybe {
  if (name === undefined) return from;
  return rest.reduce(member, from === variables.all ? variables.find(name) : member(from, name));
}

function placeOf(frame: Frame, up: number, name: string): Maybe {
  let left = up;
  for (let at: Frame | undefined = frame; at; at = at.around) {
    if (at.place && left-- === 0) return name === 'index' || name === 'key' || name === 'first' || name === 'last' ? at.place[name] : undefined;
  }
  return undefined;
}

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\'': '&#39;' };

/** What text and quoted attributes need. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}
