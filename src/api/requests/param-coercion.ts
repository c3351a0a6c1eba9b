import { z } from 'zod';
import type { SlicedWork } from '../../base/concurrency.ts';
import { issueText } from '../../base/schema.ts';
import { boundsOf } from './bounds.ts';
import { type Holder, isHolder, longLists, valueAt } from './long-lists.ts';

// Reads parameters by their schema. Values that the schema refuses are reinterpreted as clients mean them: a form has
// only text and no empty list, PHP writes an empty struct as a list, and many clients send an empty text for an omitted
// value. Values that the schema accepts are never reinterpreted.

/** A fault of a parameter. */
export interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

type Read<T> =
  | { readonly success: true; readonly data: T }
  | { readonly success: false; readonly issues: readonly Issue[] };

/** Enough for a struct in a list in a struct in the message, each of which may need another round. */
const MAX_ROUNDS = 6;

/**
 * Creates the reading of parameters by a schema, in steps. It changes `values` in place. An issue costs more time than
 * a valid item, so lengths are checked before items, and a long list is read in pieces up to the first with a fault.
 */
export function createSchemaReader<S extends z.ZodObject>(
  schema: S,
): (values: Holder, fromForm: boolean) => SlicedWork<Read<z.output<S>>> {
  const bounds = boundsOf(schema);
  const readWhole = readingOf(schema);
  const lists = longLists(schema).map(({ element, ...list }) => ({
    ...list,
    readPiece: readingOf(z.object({ piece: z.object({ items: z.array(element) }) })),
  }));
  return function* reading(values, fromForm) {
    const excess = bounds?.(values);
    if (excess) return { success: false, issues: [excess] };
    const rests = lists.map(({ cut, ...list }) => ({ ...list, pieces: cut(values) }));
    const read = readWhole(values, fromForm);
    if (!read.success) return read;
    for (const { path, readPiece, pieces } of rests) {
      const all = listAt(read.data, path);
      let from = all.length;
      for (const items of pieces) {
        yield;
        const part = readPiece({ piece: { items } }, fromForm);
        if (!part.success) return { success: false, issues: part.issues.map(movedTo(path, from)) };
        for (const item of part.data.piece.items) all.push(item);
        from += items.length;
      }
    }
    return read;
  };
}

/** The list at this path, to which further pieces are appended. */
function listAt(data: unknown, path: readonly string[]): unknown[] {
  const found = valueAt(data, path);
  return Array.isArray(found) ? found : [];
}

/** Converts the paths of issues in a piece to paths in the list. `from`: the index at which the piece begins. */
function movedTo(path: readonly string[], from: number): (issue: Issue) => Issue {
  return ({ path: [, , at, ...inner], message }) => ({ path: [...path, from + Number(at), ...inner], message });
}

function readingOf<S extends z.ZodObject>(schema: S): (values: Holder, fromForm: boolean) => Read<z.output<S>> {
  const bounds = boundsOf(schema);
  return (values, fromForm) => {
    for (let round = 1; ; round++) {
      const excess = bounds?.(values);
      if (excess) return { success: false, issues: [excess] };
      const read = schema.safeParse(values, { error: issueText });
      if (read.success) return read;
      const { issues } = read.error;
      if (round === MAX_ROUNDS || !mend(values, issues, fromForm)) return { success: false, issues };
    }
  };
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
    const holder = valueAt(values, issue.path.slice(0, -1));
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

/** The value as one of the expected types; unchanged if there is no such reading. */
function meaningOf(value: unknown, wanted: ReadonlySet<string>, fromForm: boolean, isItem: boolean): unknown {
  if (wanted.has('boolean')) return (isScalar(value) ? TRUTH.get(String(value).toLowerCase()) : undefined) ?? value;
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

const isScalar = (value: unknown): boolean => typeof value === 'string' || typeof value === 'number';

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
