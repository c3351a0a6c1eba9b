import { COMMON_ERRORS, ERRORS, type ErrorName } from './errors.ts';
import { toSchema, type Schema } from './fields.ts';
import type { Operation } from './operation.ts';

const KEY: Schema = { type: 'string', description: 'a valid API key' };

/** The description of the API in OpenAPI 3.1, made from the declarations. `server` is where operations live. */
export function toOpenApi(operations: readonly Operation[], server: string) {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Postern API',
      version: '1.0',
      description: 'Every operation is a POST with a JSON body that holds the key and the parameters. Every answer is JSON. null means absent; unknown parameters are ignored.',
    },
    servers: [{ url: server }],
    tags: [...new Set(operations.map(groupOf))].map((name) => ({ name })),
    paths: Object.fromEntries(operations.map((operation) => [`${operation.path}.json`, { post: toPost(operation) }])),
    components: { schemas: { Error: errorSchema(operations) } },
  };
}

function errorSchema(operations: readonly Operation[]) {
  return {
    type: 'object',
    required: ['status', 'code', 'name', 'message'],
    properties: {
      status: { const: 'error' },
      code: { type: 'integer' },
      name: { type: 'string', enum: [...new Set([...COMMON_ERRORS, ...operations.flatMap((operation) => operation.errors)])] },
      message: { type: 'string' },
    },
  };
}

/** The group of an operation: the first segment of its path. */
export function groupOf(operation: Operation): string {
  return operation.path.split('/')[1] ?? '';
}

/** A key that stands in every example; it is none. */
export const EXAMPLE_KEY = 'ExampleKey000000000001';

function toPost(operation: Operation) {
  const params = toSchema(operation.params);
  const schema = { ...params, properties: { key: KEY, ...params.properties }, required: ['key', ...params.required ?? []] };
  return {
    operationId: operation.path.slice(1).replaceAll(/[/-]/g, '_'),
    tags: [groupOf(operation)],
    summary: operation.summary,
    ...(operation.notes === '' ? {} : { description: operation.notes }),
    requestBody: { required: true, content: { 'application/json': { schema, example: { key: EXAMPLE_KEY, ...operation.example.params } } } },
    responses: {
      200: { description: 'Success', content: { 'application/json': { schema: toSchema(operation.returns), example: operation.example.answer } } },
      ...errorResponses(operation),
    },
  };
}

function errorResponses(operation: Operation) {
  const names = [...new Set<ErrorName>([...COMMON_ERRORS, ...operation.errors])];
  const byStatus = Map.groupBy(names, (name) => ERRORS[name].status);
  return Object.fromEntries([...byStatus].map(([status, group]) => [status, {
    description: group.map((name) => `${name} (code ${ERRORS[name].code}): ${ERRORS[name].when}`).join('; '),
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
  }]));
}
