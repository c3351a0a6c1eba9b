/** Values by the lower-case name of their variable. */
export type Vars = ReadonlyMap<string, string>;

/** What stands behind `IF:`. */
export interface Condition {
  /** Lower case. */
  readonly name: string;
  /** Undefined: whether the variable has a value at all. */
  readonly comparison: { readonly operator: string; readonly value: string } | undefined;
}

// In HTML, an editor writes < and > as entities.
const COMPARISON = /^([\p{L}\p{N}_.-]+) *(!=|>=|<=|&gt;=|&lt;=|=|>|<|&gt;|&lt;)/u;
const NAME = /^[\p{L}\p{N}_.-]+$/u;

/** A name as tags and variables have it: letters, digits and `_ . -`, in any case. */
export function isName(text: string): boolean {
  return NAME.test(text);
}

/** Reads a condition; undefined when it is none, which never holds. */
export function parseCondition(text: string): Condition | undefined {
  const trimmed = text.trim();
  if (NAME.test(trimmed)) return { name: trimmed.toLowerCase(), comparison: undefined };
  const [whole = '', name = '', operator = ''] = COMPARISON.exec(trimmed) ?? [];
  if (name === '') return undefined;
  const value = trimmed.slice(whole.length).trim();
  return {
    name: name.toLowerCase(),
    comparison: { operator: operator.replace('&gt;', '>').replace('&lt;', '<'), value },
  };
}

/** Whether a condition holds. A variable without a value makes every comparison false. */
export function holds(condition: Condition | undefined, vars: Vars): boolean {
  const value = condition && vars.get(condition.name);
  if (value === undefined || value === '') return false;
  return (
    condition?.comparison === undefined || compare(value, condition.comparison.operator, condition.comparison.value)
  );
}

/** Texts are the same or not; order is that of the numbers when both are numbers, else that of the texts. */
function compare(left: string, operator: string, right: string): boolean {
  if (operator === '=') return left === right;
  if (operator === '!=') return left !== right;
  const [a, b] = [toNumber(left), toNumber(right)];
  const order = a !== undefined && b !== undefined ? Math.sign(a - b) : left < right ? -1 : left > right ? 1 : 0;
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

const LONGEST_NUMBER = 64;

/** A text as a number, undefined when it is none. A longer text is no number that anybody counts with, and one variable may be compared any number of times. */
export function toNumber(text: string): number | undefined {
  return text.length <= LONGEST_NUMBER && /^\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)\s*$/.test(text) ? Number(text) : undefined;
}
