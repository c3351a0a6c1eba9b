import type { Shape, Struct } from './types.ts';

const TIME = /^\d{4}-(?:0\d|1[0-2])-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d$/;

/** What is wrong with a value, each fault with its path; nothing when it has exactly the documented shape. */
export function faultsOf(shape: Shape, value: unknown, path = 'answer'): string[] {
  if (typeof shape === 'string') return fits(shape, value) ? [] : [`${path} is no ${shape}: ${show(value)}`];
  if ('oneOf' in shape)
    return typeof value === 'string' && shape.oneOf.includes(value)
      ? []
      : [`${path} is none of ${shape.oneOf.join(', ')}: ${show(value)}`];
  if ('array' in shape) {
    if (!Array.isArray(value)) return [`${path} is no array: ${show(value)}`];
    return value.flatMap((item: unknown, at) => faultsOf(shape.array, item, `${path}[${at}]`));
  }
  return structFaults(shape, value, path);
}

function structFaults({ struct, beyond = {}, orNull }: Struct, value: unknown, path: string): string[] {
  if (value === null && orNull) return [];
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return [`${path} is no struct: ${show(value)}`];
  const fields = new Map<string, unknown>(Object.entries(value));
  const wrong = Object.entries(struct).flatMap(([name, shape]) =>
    fields.has(name) ? faultsOf(shape, fields.get(name), `${path}.${name}`) : [`${path}.${name} is missing`],
  );
  const more = [...fields.keys()]
    .filter((name) => !(name in struct) && !(name in beyond))
    .map((name) => `${path}.${name} is not documented`);
  return [...wrong, ...more];
}

function fits(shape: Extract<Shape, string>, value: unknown): boolean {
  if (value === null && shape.endsWith(' or null')) return true;
  switch (shape) {
    case 'string':
    case 'string or null':
      return typeof value === 'string';
    case 'integer':
    case 'integer or null':
      return Number.isSafeInteger(value);
    case 'percent':
      return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 100;
    case 'boolean':
      return typeof value === 'boolean';
    case 'time':
    case 'time or null':
      return typeof value === 'string' && TIME.test(value);
  }
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 200);
}
