import { toNumber } from '../condition.ts';
import { type Maybe, toText } from '../value.ts';
import type { Operator } from './program.ts';

/**
 * Values come as texts more often than not, so texts that are numbers are compared as numbers, and 1 is the same as "1". What is
 * missing is the same as nothing, and neither smaller nor larger than anything.
 */
export function compare(left: Maybe, operator: Exclude<Operator, 'and' | 'or'>, right: Maybe): boolean {
  const [a, b] = [toText(left), toText(right)];
  const [m, n] = [toNumber(a), toNumber(b)];
  const numbers = m !== undefined && n !== undefined;
  if (operator === '==') return numbers ? m === n : a === b;
  if (operator === '!=') return numbers ? m !== n : a !== b;
  if (a === '' || b === '') return false;
  const order = numbers ? Math.sign(m - n) : a < b ? -1 : a > b ? 1 : 0;
  switch (operator) {
    case '>':
      return order > 0;
    case '<':
      return order < 0;
    case '>=':
      return order >= 0;
    default:
      return order <= 0;
  }
}
