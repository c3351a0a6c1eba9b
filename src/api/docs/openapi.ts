import { isDeepStrictEqual } from 'node:util';
import { COMMON_ERRORS, ERRORS, type ErrorName } from '../errors.ts';
import type { Operation } from '../operation.ts';
import { EXAMPLE_KEY, exampleAnswer, groupOf, type Schema, toSchema } from './reference.ts';

const KEY: Schema = { type: 'string', description: 'a valid API key; may be sent as a bearer token instead' };

/**
 * Generates the OpenAPI 3.1 description of the API from the declarations. `server` is the base URL of the operations.
 */
export function toOpenApi(operations: readonly Operation[], server: string) {
  const schemas = createSchemas();
  const paths = Object.fromEntries(
    operations.map((operation) => [`${operation.path}.json`, { post: toPost(operation, schemas) }]),
  );
  return {
    openapi: '3.1.0',
    info: {
      title: 'Postern API',
      version: '1.0',
      description:
        'Every operation is a POST with a JSON body that contains the key and the parameters. Every response is ' +
        'JSON. null means absent; unknown parameters are ignored.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: server }],
    security: [{ bearer: [] }, {}],
    tags: [...new Set(operations.map(groupOf))].map((name) => ({ name })),
    paths,
    components: {
      schemas: { Error: errorSchema(operations), ...schemas.all() },
      securitySchemes: {
        bearer: {
          type: 'http',
          scheme: 'bearer',
          description: 'An API key. Without this header, the body must contain it as `key`.',
        },
      },
    },
  };
}

function toPost(operation: Operation, schemas: Schemas) {
  const params = toSchema(operation.params);
  const name = className(operation.path.slice(1));
  const request = { ...params, properties: { key: KEY, ...params.properties } };
  return {
    operationId: operation.path.slice(1).replaceAll(/[/-]/g, '_'),
    tags: [groupOf(operation)],
    summary: operation.summary,
    ...(operation.notes === '' ? {} : { description: operation.notes }),
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: schemas.named(`${name}Request`, request),
          example: { key: EXAMPLE_KEY, ...operation.example },
        },
      },
    },
    responses: {
      200: {
        description: 'Success',
        content: {
          'application/json': {
            schema: schemas.answer(name, toSchema(operation.returns)),
            example: exampleAnswer(operation),
          },
        },
      },
      ...errorResponses(operation),
    },
  };
}

function errorResponses(operation: Operation) {
  const names = [...new Set<ErrorName>([...COMMON_ERRORS, ...operation.errors])];
  const byStatus = Map.groupBy(names, (name) => ERRORS[name].status);
  return Object.fromEntries(
    [...byStatus].map(([status, group]) => [
      status,
      {
        description: group.map((name) => `${name} (code ${ERRORS[name].code}): ${ERRORS[name].when}`).join('; '),
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    ]),
  );
}

function errorSchema(operations: readonly Operation[]) {
  return {
    type: 'object',
    required: ['status', 'code', 'name', 'message'],
    properties: {
      status: { const: 'error' },
      code: { type: 'integer' },
      name: {
        type: 'string',
        enum: [...new Set([...COMMON_ERRORS, ...operations.flatMap((operation) => operation.errors)])],
      },
      message: { type: 'string' },
    },
  };
}

type Schemas = ReturnType<typeof createSchemas>;

/**
 * Collects the structs that have a name and replaces each with a reference, so that a generated client has one class
 * for each record. A struct is named after its title (`dedicated IP record` becomes `DedicatedIp`), the parameters and
 * the untitled answer of an operation after its path.
 */
function createSchemas() {
  const collected = new Map<string, Schema>();

  function named(name: string, schema: Schema): Schema {
    const { description, title: _, ...struct } = schema;
    const own = inner(struct);
    const known = collected.get(name);
    if (known !== undefined && !isDeepStrictEqual(known, own))
      throw new Error(`two different structs are called ${name}`);
    collected.set(name, own);
    return { $ref: `#/components/schemas/${name}`, ...(description === undefined ? {} : { description }) };
  }

  function refer(schema: Schema): Schema {
    return schema.type === 'object' && schema.title !== undefined
      ? named(className(schema.title), schema)
      : inner(schema);
  }

  /** The same schema, with references for the titled structs inside. */
  function inner(schema: Schema): Schema {
    const copy = { ...schema };
    if (copy.properties) {
      copy.properties = Object.fromEntries(
        Object.entries(copy.properties).map(([name, value]) => [name, either(value)]),
      );
    }
    if (typeof copy.items === 'object' && !Array.isArray(copy.items)) copy.items = refer(copy.items);
    if (copy.additionalProperties !== undefined) copy.additionalProperties = either(copy.additionalProperties);
    if (copy.anyOf) copy.anyOf = copy.anyOf.map(refer);
    return copy;
  }

  const either = (schema: boolean | Schema) => (typeof schema === 'boolean' ? schema : refer(schema));

  return {
    named,
    answer(operation: string, schema: Schema): Schema {
      if (schema.type === 'object' && schema.title === undefined) return named(`${operation}Response`, schema);
      const { items } = schema;
      if (typeof items !== 'object' || Array.isArray(items) || items.type !== 'object' || items.title !== undefined)
        return refer(schema);
      return { ...schema, items: named(`${operation}Item`, items) };
    },
    all: () => Object.fromEntries([...collected].sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/** `inbound/add-route` becomes `InboundAddRoute`, `dedicated IP record` becomes `DedicatedIp`. */
function className(text: string): string {
  const words = text.replace(/ record$/, '').split(/[^A-Za-z0-9]+/);
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1).toLowerCase()).join('');
}
