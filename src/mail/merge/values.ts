/**
 * What a merge variable holds: JSON. Texts, numbers and truth values in both languages; lists and structs in
 * handlebars.
 */
export type MergeValue = string | number | boolean | null | readonly MergeValue[] | Struct;

export interface Struct {
  readonly [name: string]: MergeValue;
}

/** A value that may be missing. */
export type Maybe = MergeValue | undefined;

/** Values inside of values: as deep as the API takes JSON. */
const DEEPEST = 32;

/** Reads what JSON says; undefined when it is nested too deeply, or is no JSON. */
export function readMergeValue(value: unknown, depth = 0): Maybe {
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  if (typeof value !== 'object' || depth >= DEEPEST) return undefined;
  if (Array.isArray(value)) return readAll(value, depth);
  const names = Object.keys(value);
  const values = readAll(Object.values(value), depth);
  // Made of entries, so that a name like __proto__ is a name like any other.
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

/** Whether it stands alone, as both languages have it. */
export function isScalar(value: Maybe): value is string | number | boolean | null {
  return value !== undefined && (value === null || typeof value !== 'object');
}

/** As it is shown. Lists show the values in them that can be shown, structs nothing. */
export function toText(value: Maybe): string {
  if (isList(value)) return value.filter(isScalar).map(toText).join(',');
  return value === undefined || value === null || isStruct(value) ? '' : String(value);
}

/** What a condition makes of it: nothing, no, zero, an empty text and an empty list do not hold. */
export function isTrue(value: Maybe): boolean {
  return isList(value) ? value.length > 0 : Boolean(value);
}

/**
 * What stands under a name in a value. Only what the account gave: nothing that the language of this program adds is
 * there.
 */
export function member(value: Maybe, name: string): Maybe {
  if (isList(value)) return name === 'length' ? value.length : /^\d{1,9}$/.test(name) ? value[Number(name)] : undefined;
  return isStruct(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

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

/**
 * A text as a number, undefined when it is none. A longer text is no number that anybody counts with, and one variable
 * may be compared any number of times.
 */
export function toNumber(text: string): number | undefined {
  return text.length <= LONGEST_NUMBER && /^\s*[+-]?(?:\d+(?:\.\d*)?|\.\d+)\s*$/.test(text) ? Number(text) : undefined;
}
