import { COMMON_ERRORS, ERRORS, type ErrorName, TRANSPORT_ERRORS } from './errors.ts';
import { type Field, fieldsOf, toSchema, typeOf } from './fields.ts';
import { EXAMPLE_KEY, groupOf } from './openapi.ts';
import type { Operation } from './operation.ts';

/** An operation as a person reads it; the page and the markdown are made from it. */
export interface Entry {
  readonly path: string;
  readonly group: string;
  readonly summary: string;
  readonly notes: string;
  readonly extension: boolean;
  readonly params: readonly Field[];
  /** In one line what the answer is. */
  readonly returns: string;
  readonly fields: readonly Field[];
  readonly errors: readonly {
    readonly name: ErrorName;
    readonly code: number;
    readonly status: number;
    readonly when: string;
  }[];
  /** A command line that can be pasted. */
  readonly request: string;
  /** The answer as JSON. */
  readonly answer: string;
}

/** Reads a declaration for people. `origin` is where the service is reached. */
export function toEntry(operation: Operation, origin: string): Entry {
  const returns = toSchema(operation.returns);
  const body = JSON.stringify({ key: EXAMPLE_KEY, ...operation.example.params });
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
    returns: typeOf(returns),
    fields: fieldsOf(returns),
    errors: errorRows(operation.errors),
    request: `curl -s ${origin}/api/1.0${operation.path}.json -d '${body.replaceAll("'", `'\\''`)}'`,
    answer: JSON.stringify(operation.example.answer, null, 2),
  };
}

/** The errors that every operation may answer, and those on the way to one. */
export const commonErrors = () => errorRows([...COMMON_ERRORS, ...TRANSPORT_ERRORS]);

function errorRows(names: readonly ErrorName[]) {
  return names.map((name) => ({ name, code: ERRORS[name].code, status: ERRORS[name].status, when: ERRORS[name].when }));
}

const INTRODUCTION = `Every operation is a POST to \`{base}/<group>/<operation>.json\`, where \`{base}\` is the address of the service
followed by \`/api/1.0\`. (\`/1.0\` without \`/api\`, versions up to 1.4 and paths without \`.json\` are the same thing.) The body
is a JSON object with the \`key\` and the parameters, whatever the content type says; a form is accepted too. The key may come as
a bearer token (\`Authorization: Bearer KEY\`) instead. \`null\` means absent, unknown parameters are ignored. Every answer is JSON; times are UTC, \`YYYY-MM-DD HH:MM:SS\`.

An error is \`{"status": "error", "code": …, "name": …, "message": …}\`. A required parameter that is missing has code -1 and
\`You must specify a <name> value\`; a rule that failed has code -2 and \`Validation error: {"<field>":"<text>"}\`, with every
field that is wrong.`;

/** docs/api.md. */
export function toMarkdown(operations: readonly Operation[]): string {
  const entries = operations.map((operation) => toEntry(operation, 'http://127.0.0.1:8080'));
  const groups = [...new Set(entries.map((entry) => entry.group))];
  return (
    [
      '<!-- Written by `npm run docs` from the declarations in src/api/operations. Do not edit. -->',
      '# API reference',
      INTRODUCTION,
      'Every operation can answer these errors; its own are listed with it.',
      errorTable(commonErrors()),
      ...groups.flatMap((group) => [
        `## ${group}`,
        ...entries.filter((entry) => entry.group === group).flatMap(entryLines),
      ]),
    ].join('\n\n') + '\n'
  );
}

function entryLines(entry: Entry): string[] {
  const lines = [
    `### ${entry.path}`,
    entry.summary + (entry.extension ? ' *Beyond the interface of the public ancestor.*' : ''),
  ];
  if (entry.notes !== '') lines.push(entry.notes);
  lines.push(fieldTable('Parameter', entry.params));
  lines.push(`Answers: ${entry.returns}.`);
  if (entry.fields.length > 0) lines.push(fieldTable('Field', entry.fields));
  if (entry.errors.length > 0) lines.push(errorTable(entry.errors));
  lines.push('```sh\n' + entry.request + '\n```', '```json\n' + entry.answer + '\n```');
  return lines;
}

function fieldTable(title: string, fields: readonly Field[]): string {
  const rows = fields.map(
    (field) =>
      `| \`${field.name}\`${title === 'Parameter' && field.required ? ' *' : ''} | ${cell(field.type)} | ${cell(field.description)} |`,
  );
  return [`| ${title} | Type | Meaning |`, '|---|---|---|', ...rows].join('\n');
}

function errorTable(errors: Entry['errors']): string {
  const rows = errors.map((error) => `| ${error.name} | ${error.code} | ${error.status} | ${cell(error.when)} |`);
  return ['| Error | Code | HTTP | When |', '|---|---|---|---|', ...rows].join('\n');
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|');
}
