import { FaultyTemplate } from '../faulty-template.ts';
import type { Call } from './call.ts';
import type { Branch, Expression, Loop, Node } from './program.ts';

/** A block that is open while its template is read. */
export interface Block {
  /** As the tag that closes it must say it. */
  readonly name: string;
  /** Whether it began with the else of another one. */
  readonly chained: boolean;
  /** Where it stands. */
  readonly outside: Node[];
  /** Where its first part goes. */
  readonly body: Node[];
  /** Begins what is shown otherwise. */
  toElse(): Node[];
  /** Begins another branch of the same block; undefined when it has none of that kind. */
  toBranch(call: Call): Node[] | undefined;
  finish(): Node;
}

interface Opened {
  readonly names: readonly string[];
  readonly inverse: boolean;
  readonly chained: boolean;
  readonly outside: Node[];
}

/** Opens the block that a tag begins. Throws `FaultyTemplate` when there is none of that name. */
export function createBlock(call: Call, opened: Opened): Block {
  const { name } = call;
  if (name === 'if' || name === 'unless') return createChoice(call, opened);
  if (name === 'each' || name === 'with') return createLoop(name, only(call), opened, name);
  if (call.params.length > 0) throw new FaultyTemplate(`there is no block helper "${name.slice(0, 100)}"`);
  return createLoop('section', call.target, opened, name);
}

function only({ name, params: [value, ...others] }: Call): Expression {
  if (!value || others.length > 0) throw new FaultyTemplate(`{{#${name}}} takes one value`);
  return value;
}

function createChoice(call: Call, { chained, outside, inverse }: Opened): Block {
  const branches: (Branch & { readonly body: Node[] })[] = [];
  const otherwise: Node[] = [];
  let last = false;
  const add = (one: Call, negated: boolean) => {
    const branch = { condition: only(one), negated, body: [] };
    branches.push(branch);
    return branch.body;
  };
  const body = add(call, (call.name === 'unless') !== inverse);
  const refuseSecond = () => {
    if (last) throw new FaultyTemplate(`{{#${call.name}}} has an {{else}} already`);
  };
  return {
    name: call.name,
    chained,
    outside,
    body,
    toElse() {
      refuseSecond();
      last = true;
      return otherwise;
    },
    toBranch(one) {
      refuseSecond();
      return one.name === 'if' || one.name === 'unless' ? add(one, one.name === 'unless') : undefined;
    },
    finish: () => ({ kind: 'choice', branches, otherwise }),
  };
}

function createLoop(
  kind: Loop['kind'],
  of: Expression,
  { names, inverse, chained, outside }: Opened,
  name: string,
): Block {
  const first: Node[] = [];
  const second: Node[] = [];
  let last = false;
  return {
    name,
    chained,
    outside,
    body: first,
    toElse() {
      if (last) throw new FaultyTemplate(`{{#${name.slice(0, 100)}}} has an {{else}} already`);
      last = true;
      return second;
    },
    toBranch: () => undefined,
    finish: () => ({ kind, of, names, body: inverse ? second : first, otherwise: inverse ? first : second }),
  };
}
