import type { z } from 'zod';
import { words } from '../base/schema.ts';

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
