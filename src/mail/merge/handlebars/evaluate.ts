import { isList, isTrue, type Maybe } from '../value.ts';
import { compare } from './compare.ts';
import { type Frame, find } from './frame.ts';
import type { Expression } from './program.ts';
import type { RunOptions } from './run.ts';

/** Characters that are looked at for one step. */
const CHARACTERS_PER_STEP = 50;

/** What expressions say at some point of a template. */
export function createEvaluate({
  variables,
  budget,
  now,
  onUnsub,
}: RunOptions): (expression: Expression, frame: Frame) => Maybe {
  const surroundings = { now, onUnsub };
  /** What looks at all of a value costs what it is long. */
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
