import type { z } from 'zod';
import { words } from '../base/schema.ts';
import { invalid } from './errors.ts';

/** The parameters of a call, not yet validated. Null counts as absent. */
export interface Params {
  get(name: string): unknown;
  /** The named ones that are present, in an object without prototype. Throws a refusal for NUL and lone surrogates. */
  of(names: readonly string[]): Record<string, unknown>;
  /** Whether they came as a form, in which every value is text. */
  readonly textOnly: boolean;
}

/** Parameters from an object: a parsed JSON body, or those of a caller in this process; or from a form, which is a Map. */
export function paramsOf(values: object): Params {
  return toParams(() => toFields(values), values instanceof Map);
}

/** Parameters of which only the key is at hand; `unpack` is called once, when another is needed. */
export function paramsOfPacked(key: unknown, unpack: () => object, textOnly: boolean): Params {
  let fields: ReadonlyMap<string, unknown> | undefined;
  const params = toParams(() => (fields ??= toFields(unpack())), textOnly);
  return { ...params, get: (name) => (name === 'key' ? key : params.get(name)) };
}

function toFields(values: object): ReadonlyMap<string, unknown> {
  return values instanceof Map ? values : new Map(Object.entries(values));
}

function toParams(fields: () => ReadonlyMap<string, unknown>, textOnly: boolean): Params {
  return {
    textOnly,
    get: (name) => fields().get(name) ?? undefined,
    of(names) {
      // Without prototype, so that a parameter named like a member of Object is absent unless it was sent.
      const found: Record<string, unknown> = Object.create(null);
      const faults: Record<string, string> = {};
      for (const name of names) {
        const value = fields().get(name) ?? undefined;
        if (value === undefined) continue;
        const text = { isClean: true };
        found[name] = toCopy(value, text);
        if (!text.isClean)
          faults[name] = 'Please enter text without NUL and without broken Unicode (lone surrogates)';
      }
      if (Object.keys(faults).length > 0) throw invalid(faults);
      return found;
    },
  };
}

/**
 * A copy without members that are null: null means absent everywhere, and official clients send it for every omitted
 * parameter. Notes in `text` whether there is NUL or a lone surrogate, which do not survive a round trip through a
 * database.
 */
function toCopy(value: unknown, text: { isClean: boolean }): unknown {
  if (typeof value === 'string') {
    if (!value.isWellFormed() || value.includes('\0')) text.isClean = false;
    return value;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item: unknown) => toCopy(item, text));
  const copy: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value)) {
    if (item === null) continue;
    toCopy(name, text);
    // Assigned, it would become the prototype.
    if (name === '__proto__') Object.defineProperty(copy, name, { ...OWN, value: toCopy(item, text) });
    else copy[name] = toCopy(item, text);
  }
  return copy;
}

const OWN = { enumerable: true, writable: true, configurable: true };

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
