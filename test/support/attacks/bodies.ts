import { request } from 'node:http';
import { z } from 'zod';

/** A body of about this number of bytes, for callers with this key. */
type Shape = (size: number, key: string) => string;

const times = (unit: string, size: number) => unit.repeat(Math.max(1, Math.floor(size / unit.length)));
const numbered = (unit: (n: number) => string, size: number) => {
  const parts: string[] = [];
  for (let length = 0; length < size; length += parts.at(-1)?.length ?? 1) parts.push(unit(parts.length));
  return parts.join('');
};
const json =
  (inner: (size: number) => string): Shape =>
  (size, key) =>
    `{"key":${JSON.stringify(key)},${inner(size)}}`;
/** A list in every parameter that may be one, of this number of bytes in all. */
const list = (unit: string) => json((size) => `"a":[${times(`${unit},`, size)}${unit}]`);
const text = (unit: string) => json((size) => `"raw_message":"${times(unit, size)}"`);
const form =
  (inner: (size: number) => string): Shape =>
  (size, key) =>
    `key=${key}&${inner(size)}`;
const pairs = (unit: string) => form((size) => times(unit, size));

/** Bodies that ask a parser for much. Each is a kind; the relatives of one stand beside it. */
export const SHAPES: Readonly<Record<string, Shape>> = {
  'JSON: structs': list('{}'),
  'JSON: lists': list('[]'),
  'JSON: numbers': list('1'),
  'JSON: empty texts': list('""'),
  'JSON: nulls': list('null'),
  'JSON: structs with a field': list('{"a":1}'),
  'JSON: structs with nulls': list('{"a":null,"b":null}'),
  'JSON: nested to the limit, again and again': list(`${'['.repeat(29)}${']'.repeat(29)}`),
  'JSON: nested without end': json((size) => `"a":${times('[', size)}`),
  'JSON: structs nested without end': json((size) => `"a":${times('{"a":', size)}`),
  'JSON: names in a struct': json((size) => `"a":{${numbered((n) => `"k${n}":1,`, size)}"z":1}`),
  'JSON: numbers as names': json((size) => `"a":{${numbered((n) => `"${n * 65_536}":1,`, size)}"z":1}`),
  'JSON: large numbers as names': json((size) => `"a":{${numbered((n) => `"${4_294_967_294 - n}":1,`, size)}"z":1}`),
  'JSON: parameters': json((size) => `${numbered((n) => `"p${n}":1,`, size)}"z":1`),
  'JSON: the same name': json((size) => `${times('"a":1,', size)}"z":1`),
  'JSON: __proto__': json((size) => `${times('"__proto__":{"a":1},', size)}"z":1`),
  'JSON: a long name': json((size) => `"${times('k', size)}":1`),
  'JSON: digits': json((size) => `"a":${times('7', size)}`),
  'JSON: digits behind a point': json((size) => `"a":0.${times('3', size)}`),
  'JSON: a large exponent': json((size) => `"a":1e${times('9', size)}`),
  'JSON: infinite numbers': list('1e999'),
  'JSON: escapes of letters': text('\\u0041'),
  'JSON: escapes of lone surrogates': text('\\ud800'),
  'JSON: escapes of line ends': text('\\n'),
  'JSON: escapes of CR': text('\\r\\r\\n'),
  'JSON: backslashes': text('\\\\'),
  'JSON: quotes': text('\\"'),
  'JSON: NUL': text('\\u0000'),
  'JSON: a text of two bytes a character': text('ä€🦊'),
  'JSON: header fields': text('To: a@b.test, \\r\\n'),
  'JSON: addresses': json((size) => `"raw_message":"To: ${times('a@b.test, ', size)}"`),
  'JSON: a text without end': (size, key) => `{"key":"${key}","a":"${times('x', size)}`,
  'JSON: backslashes without end': (size, key) => `{"key":"${key}","a":"${times('\\\\', size)}\\`,
  'JSON: space in front': (size, key) => `${times(' \n', size)}{"key":"${key}"}`,
  'JSON: space inside': json((size) => `"a":${times(' \t\r\n', size)}1`),
  'JSON: space behind': (size, key) => `{"key":"${key}"}${times(' ', size)}`,
  'JSON: byte order marks': (size, key) => `${times('\ufeff', size / 3)}{"key":"${key}"}`,
  'JSON: commas': json((size) => times(',', size)),
  'JSON: closing brackets': json((size) => `"a":1${times(']', size)}`),
  'JSON: a key that is a list': (size) => `{"key":[${times('{},', size)}{}]}`,
  'JSON: a key that is long': (size) => `{"key":"${times('k', size)}"}`,
  'form: names alone': pairs('a&'),
  'form: empty pairs': pairs('&'),
  'form: empty values': pairs('a=&'),
  'form: empty names': pairs('=&'),
  'form: equals signs': form((size) => `a${times('=', size)}`),
  'form: names': form((size) => numbered((n) => `k${n}=1&`, size)),
  'form: names with brackets': pairs('a[b][c]=&'),
  'form: lists in lists': pairs('a[][][][][][][]=1&'),
  'form: structs in structs, all different': form((size) => numbered((n) => `a[${n}]${'[1]'.repeat(29)}=&`, size)),
  'form: brackets without end': form((size) => `a${times('[]', size)}=1`),
  'form: open brackets': form((size) => `a${times('[', size)}=1`),
  'form: names as long as brackets are looked for': pairs(`a${'[b'.repeat(2047)}=&`),
  'form: structs of a list': form((size) => numbered((n) => `to[${n}][email]=a&`, size)),
  'form: a list with a gap': form((size) => numbered((n) => `to[${n + 1}]=&`, size)),
  'form: a list with large gaps': form((size) => numbered((n) => `to[${n * 99_999_999}]=&`, size)),
  'form: structs as Ruby writes them': pairs('to[][email]=a&'),
  'form: message parameters': form((size) => numbered((n) => `message[merge_vars][${n}][vars][0][name]=&`, size)),
  'form: malformed escapes': form((size) => `a=${times('%', size)}`),
  'form: nearly escapes': form((size) => `a=${times('%zz%4', size)}`),
  'form: escapes': form((size) => `a=${times('%41', size)}`),
  'form: escapes of bytes that are no text': form((size) => `a=${times('%ff%fe', size)}`),
  'form: escapes, and one that is malformed': form((size) => `a=${times('%C3%A4', size)}%`),
  'form: pluses': form((size) => `a=${times('+', size)}`),
  'form: a long name': form((size) => `${times('n', size)}=1`),
  'form: a text that is no form': (size) => times('x', size),
  'form: a document': (size, key) => `key=${key}&raw_message=${times('%0A', size)}`,
};

/** Items that no list takes, and some that many do. */
export const BAD_ITEMS = ['1', '{}', '""', '"x"', 'null', '[]', 'true', '{"name":{}}', '{"email":1,"name":[]}'];

/** Where lists and maps are in the parameters of an operation. */
export function holdersIn(schema: z.core.$ZodType, path: readonly string[] = []): string[][] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
    return holdersIn(schema._zod.def.innerType, path);
  if (schema instanceof z.ZodPipe) return holdersIn(schema._zod.def.in, path);
  if (schema instanceof z.ZodUnion) return unique(schema._zod.def.options.flatMap((one) => holdersIn(one, path)));
  if (schema instanceof z.ZodArray) return [[...path], ...holdersIn(schema._zod.def.element, [...path, '[]'])];
  if (schema instanceof z.ZodRecord) return [[...path, '{}'], ...holdersIn(schema._zod.def.valueType, [...path, '{}'])];
  if (!(schema instanceof z.ZodObject)) return [];
  return Object.entries(schema.shape).flatMap(([name, field]) => holdersIn(field, [...path, name]));
}

function unique(paths: readonly string[][]): string[][] {
  return [...new Map(paths.map((path) => [path.join('/'), path])).values()];
}

/** A call whose list or map at this path holds an item this number of times. */
export function filled(path: readonly string[], item: string, count: number, key: string): string {
  const fill = (rest: readonly string[]): string => {
    const [step, ...inner] = rest;
    if (step === undefined) return `[${Array(count).fill(item).join(',')}]`;
    if (step === '[]') return `[${fill(inner)}]`;
    if (step !== '{}') return `{${JSON.stringify(step)}:${fill(inner)}}`;
    if (inner.length > 0) return `{"x":${fill(inner)}}`;
    return `{${Array.from({ length: count }, (_, n) => `"n${n}":${item}`).join(',')}}`;
  };
  return `{"key":${JSON.stringify(key)},${fill(path).slice(1)}`;
}

/** Posts a body and answers the status; 0 if the connection ended without one. `pieces`: bytes at a time. */
export function postBody(
  url: string,
  body: Buffer,
  headers: Readonly<Record<string, string>>,
  pieces = body.length,
): Promise<number> {
  return new Promise((resolve) => {
    const req = request(url, { method: 'POST', headers }, (response) => {
      response.on('error', () => resolve(0)).resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    req.on('error', () => resolve(0));
    if (pieces >= body.length) return void req.end(body);
    let at = 0;
    const next = () => {
      if (at >= body.length) return void req.end();
      req.write(body.subarray(at, (at += pieces)));
      setImmediate(next);
    };
    next();
  });
}
