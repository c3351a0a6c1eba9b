import type { z } from 'zod';
import { words } from '../base/schema.ts';
import { invalid } from './errors.ts';

/** More than any parameter needs; deeper values would overflow the stack of recursive code. */
export const MAX_DEPTH = 32;
/** Enough for a message to the maximum number of recipients, each with a name, a type and some merge variables. */
const MAX_FORM_FIELDS = 20_000;

/** The parameters of a call, not yet validated. Null counts as absent. */
export interface Params {
  get(name: string): unknown;
  /** The named ones that are present, in an object without prototype. Throws a refusal for NUL and lone surrogates. */
  of(names: readonly string[]): Record<string, unknown>;
  /** Whether they came as a form, in which every value is text. */
  readonly textOnly: boolean;
}

/** Parameters from an object: a parsed JSON body, or those of a caller in this process. */
export function paramsOf(values: object): Params {
  return toParams(new Map(Object.entries(values)), false);
}

/** The parameters in a parsed body; a form is a Map (`parseForm`). Throws a refusal if the body is not an object. */
export function paramsOfBody(body: unknown): Params {
  if (body instanceof Map) return toParams(body, true);
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw invalid({ body: 'The body must be a JSON object that holds the parameters' });
  return paramsOf(body);
}

/** The form cannot be read; the message says why. */
export class UnreadableForm extends Error {}

/** The value of a form field: a text, or the fields that its brackets name. */
type FormValue = string | FormNode;

interface FormNode {
  readonly values: Map<string, FormValue>;
  /** The index that `[]` stands for, as in PHP: one above the largest. */
  next: number;
}

/** Longer field names are not searched for brackets: on megabytes, the repeating pattern would overflow the stack. */
const LONGEST_FIELD = 4096;
/** The name of a field and its brackets; any other form is a plain name. */
const FIELD = /^([^[\]]+)((?:\[[^[\]]*\])+)$/;

/**
 * Parses a form. Lists and structs are written as in PHP and jQuery (`to[0][email]=a`) or as in Ruby
 * (`to[][email]=a&to[][name]=A`). Throws UnreadableForm.
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
 * The index at which `[]` puts a value: after the last item, or that item if it is a struct without a field of this
 * name.
 */
function placeOf({ values, next }: FormNode, [field = '']: readonly string[]): number {
  const last = values.get(String(next - 1));
  return typeof last === 'object' && field !== '' && !last.values.has(field) ? next - 1 : next;
}

/** A list if it is numbered from 0 without a gap, as in PHP; otherwise a struct. */
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

/** Null means absent everywhere: official clients send it for every omitted parameter. */
function withoutNulls(value: unknown): unknown {
  if (value === null) return undefined;
  if (Array.isArray(value)) return value.map((item: unknown) => (item === null ? null : withoutNulls(item)));
  if (typeof value !== 'object') return value;
  const clean: Record<string, unknown> = Object.create(null);
  for (const [name, item] of Object.entries(value)) if (item !== null) clean[name] = withoutNulls(item);
  return clean;
}

/** Rejects NUL and lone surrogates, which do not survive a round trip through a database. */
function isCleanText(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\0');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, item]) => isCleanText(name) && isCleanText(item));
}

/** Enough for a struct in a list in a struct in the message, each of which may need another round. */
const MOST_ROUNDS = 6;

type Holder = Record<PropertyKey, unknown>;

/**
 * Parses parameters by their schema, and reads values that it refuses as what clients mean: a form has only text and no
 * empty list, PHP writes an empty struct as a list, and many clients send an empty text for an omitted value. Values
 * that the schema accepts are never reinterpreted. Changes `values` in place.
 */
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

/** Reinterprets refused values in place; returns whether any of them changed. */
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
 * Whether a parameter is an empty list: in a form such a list sends no field, and the samples of official clients have
 * an empty struct in it.
 */
function isWithoutItems(value: unknown, issue: z.core.$ZodIssue, fromForm: boolean): boolean {
  if (value === undefined) return fromForm && issue.path.length === 1 && wantedBy(issue).has('array');
  // The issue is a missing field in the only struct of the list.
  if (issue.path.length !== 3 || !Array.isArray(value) || value.length !== 1) return false;
  return isStruct(value[0]) && Object.keys(value[0]).length === 0;
}

/** The types that the schema expects here. */
function wantedBy(issue: z.core.$ZodIssue): ReadonlySet<string> {
  if (issue.code === 'invalid_type') return new Set([issue.expected]);
  if (issue.code !== 'invalid_union') return new Set();
  return new Set(
    issue.errors
      .flat()
      .flatMap((inner) => (inner.code === 'invalid_type' && inner.path.length === 0 ? [inner.expected] : [])),
  );
}

/** The value as one of the expected types; unchanged if it cannot be meant so. */
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
  // gochimp sends metadata as a list of structs; merge them.
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

/** Whether these are the keys of a PHP list that may have gaps. */
function isNumbered(names: readonly string[]): boolean {
  return names.length > 0 && names.every((name) => /^\d{1,15}$/.test(name));
}

function isStruct(value: unknown): value is Holder {
  return isHolder(value) && !Array.isArray(value);
}

function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null;
}
