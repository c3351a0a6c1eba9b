import type { z } from 'zod';
import { words } from '../base/schema.ts';
import { invalid } from './errors.ts';

/** More than any parameter needs; beyond it, code that walks values by recursion would run out of stack. */
export const MAX_DEPTH = 32;
/** A message to as many recipients as are allowed, each with a name, a type and some merge variables. */
const MAX_FORM_FIELDS = 20_000;

/** The parameters of a call, as they came. Null is absent. */
export interface Params {
  get(name: string): unknown;
  /** The named ones that are there, in an object without prototype. */
  of(names: readonly string[]): Record<string, unknown>;
  /** They came as a form, which knows only text. */
  readonly textOnly: boolean;
}

/** Parameters that no request carried: those of a caller in this process. */
export function paramsOf(values: object): Params {
  return toParams(new Map(Object.entries(values)), false);
}

/** The parameters in a body that was parsed: a form is a Map (`parseForm`). Throws a refusal for what is no struct. */
export function paramsOfBody(body: unknown): Params {
  if (body instanceof Map) return toParams(body, true);
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw invalid({ body: 'The body must be a JSON object that holds the parameters' });
  return paramsOf(body);
}

/** A form that no parameters are read from; its message says why. */
export class UnreadableForm extends Error {}

/** What a form holds under one name: a text, or what its brackets name. */
type FormValue = string | FormNode;

interface FormNode {
  readonly values: Map<string, FormValue>;
  /** The number that `[]` stands for, as PHP counts: one above the largest. */
  next: number;
}

/**
 * Brackets are looked for in names of so many characters: a pattern that repeats would run out of stack in one of
 * megabytes.
 */
const LONGEST_FIELD = 4096;
/** The name of a field and its brackets; what is written otherwise is a name as a whole. */
const FIELD = /^([^[\]]+)((?:\[[^[\]]*\])+)$/;

/**
 * Lists and structs are written as PHP and jQuery do it (`to[0][email]=a`), and as Ruby does
 * (`to[][email]=a&to[][name]=A`).
 */
export function parseForm(text: string): Map<string, unknown> {
  const form: FormNode = { values: new Map(), next: 0 };
  let count = 0;
  for (const [name, value] of new URLSearchParams(text)) {
    if (++count > MAX_FORM_FIELDS) throw new UnreadableForm(`The form has more than ${MAX_FORM_FIELDS} fields`);
    const [, first = name, brackets = ''] = name.length <= LONGEST_FIELD ? (FIELD.exec(name) ?? []) : [];
    const inner = brackets.slice(1, -1).split('][');
    if (inner.length >= MAX_DEPTH) throw new UnreadableForm(`The form is nested deeper than ${MAX_DEPTH} levels`);
    put(form, brackets === '' ? [first] : [first, ...inner], value);
  }
  return new Map([...form.values].map(([name, value]) => [name, toValue(value)]));
}

function put(node: FormNode, [name = '', ...inner]: readonly string[], value: string): void {
  const place = name === '' ? String(placeOf(node, inner)) : name;
  if (/^\d{1,15}$/.test(place)) node.next = Math.max(node.next, Number(place) + 1);
  const known = node.values.get(place);
  if (inner.length === 0) node.values.set(place, value);
  else if (typeof known === 'object') put(known, inner, value);
  else {
    const made: FormNode = { values: new Map(), next: 0 };
    node.values.set(place, made);
    put(made, inner, value);
  }
}

/**
 * Where `[]` puts a value: behind the last one, or into that one, when it is a struct that has no field of this name
 * yet.
 */
function placeOf({ values, next }: FormNode, [field = '']: readonly string[]): number {
  const last = values.get(String(next - 1));
  return typeof last === 'object' && field !== '' && !last.values.has(field) ? next - 1 : next;
}

/** A list when it is numbered from 0 without a gap, as PHP would say; else a struct. */
function toValue(value: FormValue): unknown {
  if (typeof value === 'string') return value;
  const fields = [...value.values].map(([name, inner]) => [name, toValue(inner)] as const);
  return fields.every(([name], n) => name === String(n))
    ? fields.map(([, inner]) => inner)
    : Object.fromEntries(fields);
}

function toParams(fields: ReadonlyMap<string, unknown>, textOnly: boolean): Params {
  const get = (name: string) => withoutNulls(fields.get(name));
  return {
    get,
    textOnly,
    of(names) {
      // Without prototype, so that a parameter named like a member of Object is absent unless it was sent.
      const found: Record<string, unknown> = Object.create(null);
      const faults: Record<string, string> = {};
      for (const name of names) {
        const value = get(name);
        if (value === undefined) continue;
        if (!isCleanText(value))
          faults[name] = 'Please enter text without NUL and without broken Unicode (lone surrogates)';
        found[name] = value;
      }
      if (Object.keys(faults).length > 0) throw invalid(faults);
      return found;
    },
  };
}

/** Null means absent everywhere: official clients send it for every parameter that is left out. */
function withoutNulls(value: unknown): unknown {
  if (value === null) return undefined;
  if (Array.isArray(value)) return value.map((item: unknown) => (item === null ? null : withoutNulls(item)));
  if (typeof value !== 'object') return value;
  const clean: Record<string, unknown> = Object.create(null);
  for (const [name, item] of Object.entries(value)) if (item !== null) clean[name] = withoutNulls(item);
  return clean;
}

/** Neither would survive the way through a database and back. */
function isCleanText(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\0');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, item]) => isCleanText(name) && isCleanText(item));
}

/**
 * Reads parameters by their schema, and what it refuses by what clients mean: a form knows only text and no empty
 * list, PHP writes an empty struct as a list, and many clients send an empty text for what was not given. What the
 * schema takes is never read in another way.
 */

/** A struct in a list in a struct in the message, each of which may have to be read anew. */
const MOST_ROUNDS = 6;

type Holder = Record<PropertyKey, unknown>;

/** What parsing answers; the values are changed in place. */
export function parseMeant<S extends z.ZodObject>(
  schema: S,
  values: Holder,
  fromForm: boolean,
): z.ZodSafeParseResult<z.output<S>> {
  for (let round = 1; ; round++) {
    const read = schema.safeParse(values, { error: words });
    if (read.success || round === MOST_ROUNDS || !mend(values, read.error.issues, fromForm)) return read;
  }
}

/** Whether anything could be read in another way. */
function mend(values: Holder, issues: readonly z.core.$ZodIssue[], fromForm: boolean): boolean {
  const emptied = new Set<unknown[]>();
  let mended = false;
  for (const issue of issues) {
    const [parameter = ''] = issue.path;
    if (isWithoutItems(values[parameter], issue, fromForm)) {
      values[parameter] = [];
      mended = true;
      continue;
    }
    const name = issue.path.at(-1);
    const holder = issue.path
      .slice(0, -1)
      .reduce<unknown>((inner, step) => (isHolder(inner) ? inner[step] : undefined), values);
    if (name === undefined || !isHolder(holder) || holder[name] === undefined) continue;
    const value = holder[name];
    const isItem = Array.isArray(holder);
    if (value === '') {
      // In JSON an empty item is a mistake; a form writes an empty list as `tags[]=`.
      if (isItem && !fromForm) continue;
      if (isItem) emptied.add(holder);
      holder[name] = undefined;
      mended = true;
      continue;
    }
    const meant = meaningOf(value, wantedBy(issue), fromForm, isItem);
    mended ||= meant !== value;
    holder[name] = meant;
  }
  for (const list of emptied) list.splice(0, list.length, ...list.filter((item) => item !== undefined));
  return mended;
}

/**
 * Whether a parameter is a list without items: in a form such a list leaves no trace, and the samples of official
 * clients have an empty struct in it.
 */
function isWithoutItems(value: unknown, issue: z.core.$ZodIssue, fromForm: boolean): boolean {
  if (value === undefined) return fromForm && issue.path.length === 1 && wantedBy(issue).has('array');
  // A field is missed in a struct of the list, which has no other.
  if (issue.path.length !== 3 || !Array.isArray(value) || value.length !== 1) return false;
  return isStruct(value[0]) && Object.keys(value[0]).length === 0;
}

/** Types that would do instead. */
function wantedBy(issue: z.core.$ZodIssue): ReadonlySet<string> {
  if (issue.code === 'invalid_type') return new Set([issue.expected]);
  if (issue.code !== 'invalid_union') return new Set();
  return new Set(
    issue.errors
      .flat()
      .flatMap((inner) => (inner.code === 'invalid_type' && inner.path.length === 0 ? [inner.expected] : [])),
  );
}

/** The value as one of the types that are wanted; itself when it cannot be meant so. */
function meaningOf(value: unknown, wanted: ReadonlySet<string>, fromForm: boolean, isItem: boolean): unknown {
  if (wanted.has('boolean'))
    return (
      TRUTH.get(typeof value === 'number' ? String(value) : typeof value === 'string' ? value.toLowerCase() : '') ??
      value
    );
  if (wanted.has('number') || wanted.has('int'))
    return typeof value === 'string' && NUMBER.test(value) ? Number(value) : value;
  if (wanted.has('array') && isHolder(value) && isNumbered(Object.keys(value))) return Object.values(value);
  if (wanted.has('array') && fromForm && typeof value === 'string') return [value];
  // gochimp has a list of structs for metadata; one says as much.
  if (wanted.has('record') && Array.isArray(value) && value.length > 0 && value.every(isStruct))
    return Object.fromEntries(value.flatMap((struct) => Object.entries(struct)));
  const isList = Array.isArray(value) && (fromForm || (value.length === 0 && !isItem));
  if (isList && (wanted.has('object') || wanted.has('record'))) return Object.fromEntries(value.entries());
  return value;
}

const TRUTH: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['1', true],
  ['on', true],
  ['yes', true],
  ['false', false],
  ['0', false],
  ['off', false],
  ['no', false],
]);
const NUMBER = /^-?\d{1,15}(?:\.\d{1,15})?$/;

/** A list of PHP that lost some of its items. */
function isNumbered(names: readonly string[]): boolean {
  return names.length > 0 && names.every((name) => /^\d{1,15}$/.test(name));
}

function isStruct(value: unknown): value is Holder {
  return isHolder(value) && !Array.isArray(value);
}

function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null;
}
