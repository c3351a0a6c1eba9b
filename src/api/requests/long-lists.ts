import { z } from 'zod';
import { maxItems } from './bounds.ts';

/** A list parameter that may be long, and is validated in pieces. */
interface LongList {
  /** Its path in the parameters. */
  readonly path: readonly string[];
  readonly element: z.core.$ZodType;
  /** Cuts it in the parameters to its first piece and returns the others; none if it is no list there. */
  cut(values: unknown): readonly (readonly unknown[])[];
}

/** Items of a piece, counting the items inside them: about a millisecond of work, five if all are refused. */
const PIECE = 500;

/**
 * The lists of a schema that may be longer than a piece, or whose items hold lists or maps; without those that are
 * part of a rule about the whole list or struct.
 */
export function longLists(schema: z.core.$ZodType, path: readonly string[] = []): LongList[] {
  if (schema instanceof z.ZodOptional) return longLists(schema._zod.def.innerType, path);
  if (schema instanceof z.ZodObject && !schema._zod.def.checks?.length)
    return Object.entries(schema.shape).flatMap(([name, field]) => longLists(field, [...path, name]));
  if (!(schema instanceof z.ZodArray) || path.length === 0 || !isOnlyBounded(schema)) return [];
  const { element } = schema._zod.def;
  const isLong = maxItems(schema) > PIECE || element instanceof z.ZodObject;
  return isLong ? [{ path, element, cut: (values) => cutAt(values, path) }] : [];
}

function isOnlyBounded(schema: z.ZodArray): boolean {
  return (schema._zod.def.checks ?? []).every(
    (check) => check instanceof z.core.$ZodCheckMaxLength || check instanceof z.core.$ZodCheckMinLength,
  );
}

function cutAt(values: unknown, path: readonly string[]): readonly (readonly unknown[])[] {
  const holder = valueAt(values, path.slice(0, -1));
  const name = path.at(-1) ?? '';
  const list = isHolder(holder) ? holder[name] : undefined;
  if (!isHolder(holder) || !Array.isArray(list)) return [];
  const [piece, ...others] = toPieces(list);
  if (others.length > 0) holder[name] = piece;
  return others;
}

function toPieces(items: readonly unknown[]): unknown[][] {
  const pieces: unknown[][] = [];
  let weight = Infinity;
  for (const item of items) {
    const own = weightOf(item);
    // At least two: a list of one empty struct is read as an empty list.
    if (weight + own > PIECE && pieces.at(-1)?.length !== 1) {
      pieces.push([]);
      weight = 0;
    }
    pieces.at(-1)?.push(item);
    weight += own;
  }
  return pieces;
}

/** The number of values in an item, on two levels. */
function weightOf(item: unknown): number {
  if (!isHolder(item)) return 1;
  return Object.values(item).reduce<number>((sum, inner) => sum + sizeOf(inner), 1);
}

function sizeOf(value: unknown): number {
  return Array.isArray(value) ? value.length : isHolder(value) ? Object.keys(value).length : 0;
}

/** A struct or a list. */
export type Holder = Record<PropertyKey, unknown>;

export function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null;
}

/** The value at a path inside another; undefined if there is none. */
export const valueAt = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce((inner, step) => (isHolder(inner) ? inner[step] : undefined), value);
