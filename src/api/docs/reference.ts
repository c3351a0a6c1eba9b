import { z } from 'zod';
import { COMMON_ERRORS, ERRORS, type ErrorName, TRANSPORT_ERRORS } from '../errors.ts';
import type { Operation } from '../operation.ts';
import answers from './examples.json' with { type: 'json' };

/** A key for examples. It is not valid anywhere. */
export const EXAMPLE_KEY = 'ExampleKey000000000001';

/** An operation in readable form, from which the page and the markdown are made. */
export type Entry = ReturnType<typeof toEntry>;

/** Converts a declaration to its readable form. `origin` is the URL of the service. */
export function toEntry(operation: Operation, origin: string) {
  const returns = toSchema(operation.returns);
  const body = JSON.stringify({ key: EXAMPLE_KEY, ...operation.example });
  return {
    path: operation.path,
    group: groupOf(operation),
    summary: operation.summary,
    notes: operation.notes,
    extension: operation.extension,
    params: [
      { name: 'key', type: 'string', required: true, description: 'a valid API key' },
      ...fieldsOf(toSchema(operation.params)),
    ],
    /** The type of the answer, in one line. */
    returns: typeOf(returns),
    fields: fieldsOf(returns),
    errors: errorRows(operation.errors),
    /** A curl command that can be pasted. */
    request: `curl -s ${origin}/api/1.0${operation.path}.json -d '${body.replaceAll("'", `'\\''`)}'`,
    answer: JSON.stringify(exampleAnswer(operation), null, 2),
  };
}

const ANSWERS: Readonly<Record<string, unknown>> = answers;

/** The recorded answer to the example call of an operation; null if there is none. */
export const exampleAnswer = ({ path }: Operation): unknown => ANSWERS[path] ?? null;

/** The group of an operation: the first segment of its path. */
export function groupOf(operation: Operation): string {
  return operation.path.split('/')[1] ?? '';
}

/** The errors that every operation may answer, and those that occur before one is reached. */
export const commonErrors = () => errorRows([...COMMON_ERRORS, ...TRANSPORT_ERRORS]);

function errorRows(names: readonly ErrorName[]) {
  return names.map((name) => ({ name, code: ERRORS[name].code, status: ERRORS[name].status, when: ERRORS[name].when }));
}

const INTRODUCTION = `Every operation is a POST to \`{base}/<group>/<operation>.json\`, where \`{base}\` is the address
of the service followed by \`/api/1.0\`. (\`/1.0\` without \`/api\`, versions up to 1.4 and paths without \`.json\` are
equivalent.) The body is a JSON object with the \`key\` and the parameters, whatever the content type says; a form is
accepted too. The key may be sent as a bearer token (\`Authorization: Bearer KEY\`) instead. \`null\` means absent,
and unknown parameters are ignored. Every response is JSON; times are UTC, \`YYYY-MM-DD HH:MM:SS\`. In the tables of
parameters, * means required.

An error is \`{"status": "error", "code": …, "name": …, "message": …}\`. A required parameter that is missing has
code -1 and \`You must specify a <name> value\`; an invalid one has code -2 and
\`Validation error: {"<field>":"<text>"}\`, with every invalid field.`;

/** Generates docs/api.md. */
export function toMarkdown(operations: readonly Operation[]): string {
  const entries = operations.map((operation) => toEntry(operation, 'http://127.0.0.1:8080'));
  const groups = [...new Set(entries.map((entry) => entry.group))];
  return (
    [
      '<!-- Written by `npm run docs` from the declarations in src/api/operations. Do not edit. -->',
      '# API reference',
      `Operations: ${groups.map((group) => `[${group}](#${group})`).join(' · ')}.`,
      INTRODUCTION,
      'Every operation can return these errors; further ones are listed with their operation.',
      errorTable(commonErrors()),
      ...groups.flatMap((group) => [
        `## ${group}`,
        ...entries.filter((entry) => entry.group === group).flatMap(entryLines),
      ]),
    ].join('\n\n') + '\n'
  );
}

function entryLines(entry: Entry): string[] {
  const extension = entry.extension ? ' *Not part of the Mandrill API.*' : '';
  const lines = [`### ${entry.path}`, prose(entry.summary) + extension];
  if (entry.notes !== '') lines.push(prose(entry.notes));
  lines.push(fieldTable('Parameter', entry.params));
  lines.push(`Returns: ${entry.returns}.`);
  if (entry.fields.length > 0) lines.push(fieldTable('Field', entry.fields));
  if (entry.errors.length > 0) lines.push(errorTable(entry.errors));
  lines.push('```sh\n' + entry.request + '\n```', '```json\n' + entry.answer + '\n```');
  return lines;
}

function fieldTable(title: string, fields: readonly Field[]): string {
  const rows = fields.map(
    (field) =>
      `| \`${field.name}\`${title === 'Parameter' && field.required ? ' *' : ''} | ${cell(field.type)} | ` +
      `${cell(field.description)} |`,
  );
  return [`| ${title} | Type | Meaning |`, '|---|---|---|', ...rows].join('\n');
}

function errorTable(errors: Entry['errors']): string {
  const rows = errors.map((error) => `| ${error.name} | ${error.code} | ${error.status} | ${cell(error.when)} |`);
  return ['| Error | Code | HTTP | When |', '|---|---|---|---|', ...rows].join('\n');
}

function cell(text: string): string {
  return prose(text).replaceAll('|', '\\|');
}

/** Text in markdown, which would take `*|NAME|*` for emphasis and `<img>` for an element outside of code. */
function prose(text: string): string {
  return text.replaceAll(/(`[^`]*`)|[*<]/g, (found, code?: string) => code ?? (found === '*' ? '\\*' : '&lt;'));
}

/** A JSON Schema, as far as the reference reads it. */
export type Schema = z.core.JSONSchema.BaseSchema;

/** A parameter or a field of a record, as the reference describes it. */
export interface Field {
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
  readonly description: string;
}

/** The JSON Schema of data as sent over HTTP. Records are open, because fields may be added. */
export function toSchema(schema: z.ZodType): Schema {
  const override = ({ jsonSchema }: { jsonSchema: Schema }) => withoutSafeRange(jsonSchema);
  const {
    $schema: _,
    '~standard': __,
    ...rest
  } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', override });
  return rest;
}

/** Removes the bounds of safe integers, which every integer has. */
function withoutSafeRange(schema: Schema): void {
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
}

/** The fields of a struct, and of structs inside it with their path (`custom_dns.valid`, `attempts[].time`). */
function fieldsOf(schema: Schema, prefix = ''): Field[] {
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

/** The type as the reference names it: string, integer, boolean, array of …, struct, and `or null`. */
function typeOf(schema: Schema): string {
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

/** Whether it is the stats block, whose description lists its ten counters. */
function isStats(schema: Schema): boolean {
  return schema.title === 'stats block';
}
