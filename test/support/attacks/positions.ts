import { type Schema, toSchema } from '../../../src/api/docs/reference.ts';
import type { Operation } from '../../../src/api/operation.ts';

/** A way into a value: the name of a field, the first item of a list, or one more entry of a map. */
type Step = { readonly field: string } | 'item' | 'entry';

/** A value inside the parameters of an operation, or the name of an entry of a map. */
export interface Position {
  /** `message.to[].email`; a map is `message.metadata{}`, its names are `message.metadata{names}`. */
  readonly name: string;
  /** The parameter that holds it. */
  readonly parameter: string;
  /** The JSON types that the declaration takes there. */
  readonly types: ReadonlySet<string>;
  /** Whether it is the name of an entry, and not a value. */
  readonly isName: boolean;
  /** Whether it may be a map, with names of any kind. */
  readonly isMap: boolean;
  readonly steps: readonly Step[];
}

/** Every position in the parameters that an operation declares, however deep. */
export function positionsOf(operation: Operation): Position[] {
  const { properties = {} } = schemaOf(operation);
  return Object.entries(properties).flatMap(([field, schema]) => {
    const at = (steps: readonly Step[], name: string, of: Schema | boolean): Position[] => {
      if (typeof of === 'boolean' || of.not) return [];
      const here: Position = { name, parameter: field, types: typesOf(of), isName: false, isMap: mayBeMap(of), steps };
      return [
        here,
        ...within(of).flatMap(({ step, of: inner }) => at([...steps, step], name + suffix(step), inner)),
        ...(here.isMap ? [namesIn(here)] : []),
      ];
    };
    return at([{ field }], field, schema);
  });
}

const schemas = new WeakMap<Operation, Schema>();

/** Made once: an operation is looked at thousands of times. */
function schemaOf(operation: Operation): Schema {
  const made = schemas.get(operation) ?? toSchema(operation.params);
  schemas.set(operation, made);
  return made;
}

/** The parameters with `value` at that position; what is missing on the way there is made up. */
export function paramsWith(operation: Operation, position: Position, value: unknown): Record<string, unknown> {
  const base: Record<string, unknown> = structuredClone({ ...operation.example });
  return set(schemaOf(operation), base, position, position.steps, value);
}

function set(schema: Schema, base: unknown, position: Position, [step, ...rest]: readonly Step[], value: unknown): any {
  if (step === undefined) return position.isName ? named(base, value) : value;
  const inner = within(schema).find(({ step: other }) => suffix(other) === suffix(step))?.of ?? {};
  if (step === 'item') {
    const [first, ...others]: unknown[] = Array.isArray(base) ? base : [];
    return [set(inner, first ?? sample(inner, ''), position, rest, value), ...others];
  }
  const name = step === 'entry' ? 'entry' : step.field;
  const known: Record<string, unknown> =
    typeof base === 'object' && base !== null && !Array.isArray(base) ? { ...base } : {};
  return { ...known, [name]: set(inner, known[name] ?? sample(inner, name), position, rest, value) };
}

/** An own property, even one called `__proto__`: that is what `JSON.parse` makes, too. */
function named(base: unknown, name: unknown): unknown {
  return Object.defineProperty({ ...Object(base) }, String(name), {
    value: 'named',
    enumerable: true,
    configurable: true,
    writable: true,
  });
}

function suffix(step: Step): string {
  return step === 'item' ? '[]' : step === 'entry' ? '{}' : `.${step.field}`;
}

/** What stands inside a value: fields of a struct, items of a list, entries of a map. */
function within(schema: Schema): { readonly step: Step; readonly of: Schema }[] {
  const found: { step: Step; of: Schema }[] = [];
  for (const kind of schema.anyOf ?? []) if (typeof kind === 'object') found.push(...within(kind));
  for (const [field, of] of Object.entries(schema.properties ?? {}))
    if (typeof of === 'object') found.push({ step: { field }, of });
  if (typeof schema.items === 'object' && !Array.isArray(schema.items)) found.push({ step: 'item', of: schema.items });
  if (typeof schema.additionalProperties === 'object') found.push({ step: 'entry', of: schema.additionalProperties });
  return found;
}

function mayBeMap(schema: Schema): boolean {
  return [schema, ...(schema.anyOf ?? [])].some(
    (kind) => typeof kind === 'object' && typeof kind.additionalProperties === 'object',
  );
}

function namesIn(map: Position): Position {
  return { ...map, name: `${map.name}{names}`, types: new Set(['string']), isName: true, isMap: false };
}

function typesOf(schema: Schema): ReadonlySet<string> {
  if (schema.anyOf)
    return new Set(schema.anyOf.flatMap((kind) => (typeof kind === 'object' && !kind.not ? [...typesOf(kind)] : [])));
  // A schema that names no type takes any: the content of a merge variable may be a list of whatever a template can
  // show.
  if (schema.type === undefined && schema.enum === undefined && schema.const === undefined) return new Set(ANYTHING);
  return new Set([schema.type ?? []].flat());
}

const ANYTHING = ['string', 'number', 'boolean', 'object', 'array', 'null'];

/** The JSON type of a value, in the words of JSON Schema. */
export function typeOf(value: unknown): string {
  if (Array.isArray(value)) return 'array';
  return value === null ? 'null' : typeof value;
}

/** Whether the declaration takes values of that kind there. A whole number is a number. */
export function takes({ types }: Position, value: unknown): boolean {
  const type = typeOf(value);
  return types.has(type) || (type === 'number' && types.has('integer') && Number.isSafeInteger(value));
}

/** Something that fits, for what has to be there beside the position. */
function sample(schema: Schema, name: string): unknown {
  const [kind] = schema.anyOf ?? [schema];
  if (typeof kind !== 'object') return undefined;
  if (kind.enum) return kind.enum[0];
  switch ([kind.type].flat()[0]) {
    case 'string':
      return SAMPLES[name] ?? 'sample';
    case 'integer':
    case 'number':
      return 1;
    case 'boolean':
      return true;
    case 'array':
      return [];
    case 'object':
      return Object.fromEntries(
        (kind.required ?? []).map((field) => [field, sample(Object(kind.properties?.[field]), field)]),
      );
    default:
      return undefined;
  }
}

const SAMPLES: Readonly<Record<string, string>> = {
  email: 'someone@example.com',
  rcpt: 'someone@example.com',
  content: 'c2FtcGxl',
  type: 'image/png',
};
