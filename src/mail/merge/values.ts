/** A value to merge, as JSON. Both languages take strings, numbers and booleans; handlebars lists and structs too. */
export type MergeValue = string | number | boolean | null | readonly MergeValue[] | Struct;

export interface Struct {
  readonly [name: string]: MergeValue;
}

/** A value that may be missing. */
export type Maybe = MergeValue | undefined;

/** Maximum nesting depth, as for JSON in the API. */
const DEEPEST = 32;

/** Checks a JSON value; undefined if it is nested too deeply or not JSON. */
export function readMergeValue(value: unknown, depth = 0): Maybe {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  if (typeof value !== 'object' || depth >= DEEPEST) return undefined;
  if (Array.isArray(value)) return readAll(value, depth);
  const names = Object.keys(value);
  const values = readAll(Object.values(value), depth);
  // Object.fromEntries treats names such as __proto__ like any other.
  return values && Object.fromEntries(values.map((one, at) => [names[at] ?? '', one]));
}

function readAll(values: readonly unknown[], depth: number): readonly MergeValue[] | undefined {
  const read = values.map((value) => readMergeValue(value, depth + 1));
  return read.every((value) => value !== undefined) ? read : undefined;
}

export function isList(value: Maybe): value is readonly MergeValue[] {
  return Array.isArray(value);
}

export function isStruct(value: Maybe): value is Struct {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether it is a scalar, as supported by both languages. */
export function isScalar(value: Maybe): value is string | number | boolean | null {
  return value !== undefined && (value === null || typeof value !== 'object');
}

/** Converts a value to text. Lists show their scalar items, structs nothing. */
export function textOfValue(value: Maybe): string {
  if (isList(value)) return value.filter(isScalar).map(textOfValue).join(',');
  return value === undefined || value === null || isStruct(value) ? '' : String(value);
}

/** The truth of a value: null, false, zero, an empty text and an empty list are false. */
export function isTrue(value: Maybe): boolean {
  return isList(value) ? value.length > 0 : Boolean(value);
}

/** Looks up a name in a value. Only own properties are found, none that JavaScript adds. */
export function member(value: Maybe, name: string): Maybe {
  if (isList(value)) return name === 'length' ? value.length : /^\d{1,9}$/.test(name) ? value[Number(name)] : undefined;
  return isStruct(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

/** Values by the lower-case name of the variable. */
export type Vars = ReadonlyMap<string, string>;

/** The condition after `IF:`. */
export interface Condition {
  /** Lower case. */
  readonly name: string;
  /** Undefined: tests whether the variable has a value. */
  readonly comparison: { readonly operator: string; readonly value: string } | undefined;
}

// In HTML, an editor writes < and > as entities.
const COMPARISON = /^([\p{L}\p{N}_.-]+) *(!=|>=|<=|&gt;=|&lt;=|=|>|<|&gt;|&lt;)/u;
const NAME = /^[\p{L}\p{N}_.-]+$/u;

/** Whether a text is a name of a tag or variable: letters, digits and `_ . -`, in any case. */
export function isName(text: string): boolean {
  return NAME.test(text);
}

/** Parses a condition; undefined if it is invalid, and then it never holds. */
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

/** Whether a condition holds. Any comparison with a variable without a value is false. */
export function conditionHolds(condition: Condition | undefined, vars: Vars): boolean {
  const value = condition && vars.get(condition.name);
  if (value === undefined || value === '') return false;
  return (
    condition?.comparison === undefined || compare(value, condition.comparison.operator, condition.comparison.value)
  );
}

/** Equality compares texts; order compares numbers if both are numbers, else texts. */
function compare(left: string, operator: string, right: string): boolean {
  if (operator === '=') return left === right;
  if (operator === '!=') return left !== right;
  return isOrdered(left, operator, right);
}

/** Whether `>`, `<`, `>=` or `<=` holds: of numbers if both are numbers, else of texts. */
export function isOrdered(left: string, operator: string, right: string): boolean {
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

/**
 * Converts a text to a number; undefined if it is not one. Overlong texts are rejected, because one variable may be
 * compared any number of times.
 */
export function toNumber(text: string): number | undefined {
  return text.length <= LONGEST_NUMBER && /^\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)\s*$/.test(text) ? Number(text) : undefined;
}
