import { z } from 'zod';
import { isObject } from '../../base/json.ts';

// The limits of a schema on lists and maps, which zod checks only after it has validated every item.

/** A list or map with more entries than its schema allows. */
interface Excess {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Finds the first list or map in a value that has too many entries. */
type Bounds = (value: unknown) => Excess | undefined;

/** Maps of names and values have no limit in the contract; no honest one comes near this. */
const MAX_KEYS = 1000;

/** The limits of a schema; undefined if it has none. Maps of any JSON have none: nothing in them is validated. */
export function boundsOf(schema: z.core.$ZodType, isOption = false): Bounds | undefined {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
    return boundsOf(schema._zod.def.innerType, isOption);
  if (schema instanceof z.ZodPipe) return boundsOf(schema._zod.def.in, isOption);
  if (schema instanceof z.ZodUnion) return ofUnion(schema);
  if (schema instanceof z.ZodArray) return ofList(schema, isOption);
  if (schema instanceof z.ZodRecord) return ofMap(schema);
  return schema instanceof z.ZodObject ? ofStruct(schema) : undefined;
}

/** The largest length of a list. */
export function maxItems(schema: z.ZodArray): number {
  const limits = (schema._zod.def.checks ?? []).map((check) =>
    check instanceof z.core.$ZodCheckMaxLength ? check._zod.def.maximum : Infinity,
  );
  return Math.min(Infinity, ...limits);
}

function ofUnion(schema: z.ZodUnion): Bounds | undefined {
  const options = schema._zod.def.options
    .map((option) => boundsOf(option, true))
    .filter((bounds) => bounds !== undefined);
  return options.length === 0 ? undefined : (value) => first(options, (bounds) => bounds(value));
}

/** A list in a union may stand for another option, such as a map; then only MAX_KEYS applies. */
function ofList(schema: z.ZodArray, isOption: boolean): Bounds | undefined {
  const item = boundsOf(schema._zod.def.element);
  const own = maxItems(schema);
  const max = isOption ? Math.max(own, MAX_KEYS) : own;
  if (max === Infinity && item === undefined) return undefined;
  return (value) => {
    if (!Array.isArray(value)) return undefined;
    if (value.length > max) return { path: [], message: `Please enter at most ${max} items` };
    return item && first(value.entries(), ([at, one]) => within(at, item(one)));
  };
}

function ofMap(schema: z.ZodRecord): Bounds | undefined {
  if (schema._zod.def.valueType instanceof z.ZodUnknown) return undefined;
  const item = boundsOf(schema._zod.def.valueType);
  return (value) => {
    if (!isObject(value)) return undefined;
    const entries = Object.entries(value);
    if (entries.length > MAX_KEYS) return { path: [], message: `Please enter at most ${MAX_KEYS} names` };
    return item && first(entries, ([name, one]) => within(name, item(one)));
  };
}

function ofStruct(schema: z.ZodObject): Bounds | undefined {
  const fields = Object.entries(schema.shape).flatMap(([name, field]) => {
    const bounds = boundsOf(field);
    return bounds ? [{ name, bounds }] : [];
  });
  if (fields.length === 0) return undefined;
  return (value) =>
    typeof value === 'object' && value !== null
      ? first(fields, ({ name, bounds }) => within(name, bounds(Reflect.get(value, name))))
      : undefined;
}

function first<T>(items: Iterable<T>, excessOf: (item: T) => Excess | undefined): Excess | undefined {
  for (const item of items) {
    const excess = excessOf(item);
    if (excess) return excess;
  }
  return undefined;
}

function within(step: PropertyKey, excess: Excess | undefined): Excess | undefined {
  return excess && { ...excess, path: [step, ...excess.path] };
}
