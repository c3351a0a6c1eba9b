import { z } from 'zod';

/** A JSON Schema, as far as the reference reads it. */
export type Schema = z.core.JSONSchema.BaseSchema;

/** A parameter or a field of a record, in words. */
export interface Field {
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
  readonly description: string;
}

/** The schema of what goes over the wire. What is sent may grow: records are not closed. */
export function toSchema(schema: z.ZodType): Schema {
  const override = ({ jsonSchema }: { jsonSchema: Schema }) => withoutSafeRange(jsonSchema);
  const {
    $schema: _,
    '~standard': __,
    ...rest
  } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', override });
  return rest;
}

/** That an integer fits a double goes without saying. */
function withoutSafeRange(schema: Schema): void {
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
}

/** The fields of a struct, and of structs inside it with their path (`custom_dns.valid`, `attempts[].time`). */
export function fieldsOf(schema: Schema, prefix = ''): Field[] {
  const inner = structOf(schema);
  if (!inner) return [];
  return Object.entries(inner.properties ?? {}).flatMap(([name, value]) => {
    if (typeof value === 'boolean') return [];
    const path = `${prefix}${name}`;
    const required = inner.required?.includes(name) ?? false;
    const field = { name: path, type: typeOf(value), required, description: value.description ?? '' };
    return [field, ...(isStats(value) ? [] : fieldsOf(value, path + (isArray(value) ? '[].' : '.')))];
  });
}

/** The type in the words of the reference: string, integer, boolean, array of …, struct, and `or null`. */
export function typeOf(schema: Schema): string {
  if (schema.anyOf) {
    const kinds = schema.anyOf.map((kind) => (typeof kind === 'boolean' ? 'any' : typeOf(kind)));
    return [...new Set(kinds)].join(' or ');
  }
  if (schema.enum) return schema.enum.map(String).join(', ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.type)) return schema.type.join(' or ');
  if (schema.type === 'array') return `array of ${typeOf(itemOf(schema) ?? {})}`;
  if (schema.type === 'object') return schema.title ?? 'struct';
  return schema.type ?? 'anything';
}

function structOf(schema: Schema): Schema | undefined {
  if (schema.type === 'object') return schema;
  const item = itemOf(schema);
  if (item) return structOf(item);
  for (const kind of schema.anyOf ?? []) if (typeof kind === 'object' && kind.type === 'object') return kind;
  return undefined;
}

function itemOf({ items }: Schema): Schema | undefined {
  return typeof items === 'object' && !Array.isArray(items) ? items : undefined;
}

function isArray(schema: Schema): boolean {
  return schema.type === 'array';
}

/** Ten counters, named once under their own title. */
function isStats(schema: Schema): boolean {
  return schema.title === 'stats block';
}
