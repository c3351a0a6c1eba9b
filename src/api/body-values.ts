import { parseForm, UnreadableForm } from './forms.ts';
import { type CleanValues, cleaned } from './parameters.ts';

/** The parameters in a body. Otherwise why there are none. */
export type BodyValues = CleanValues | { readonly fault: string };

/** A body as it is parsed. */
export interface BodyFormat {
  readonly isForm: boolean;
  /** The parameters that are wanted; undefined: all. */
  readonly names: readonly string[] | undefined;
}

const STRUCTURE = /^[ \t\r\n]*[[{]/;

/**
 * Parses a body whose text has been checked (body-check.ts). A parser's message is not passed on: it would echo the
 * body, and with it the key.
 */
export function readBody(bytes: Uint8Array, { isForm, names }: BodyFormat): BodyValues {
  // Without a byte order mark.
  const text = new TextDecoder().decode(bytes);
  try {
    const values = isForm ? parseForm(text) : parseJson(text, names);
    return 'fault' in values ? values : cleaned(values);
  } catch (error) {
    if (error instanceof UnreadableForm) return { fault: error.message };
    if (error instanceof SyntaxError) return NOT_JSON;
    throw error;
  }
}

const NOT_JSON = { fault: 'The body is not valid JSON' };

function parseJson(text: string, names: BodyFormat['names']): Map<string, unknown> | { readonly fault: string } {
  if (text === '') return new Map();
  if (!STRUCTURE.test(text)) return NOT_JSON;
  const values: unknown = JSON.parse(text);
  if (typeof values !== 'object' || values === null || Array.isArray(values))
    return { fault: 'The body must be a JSON object that holds the parameters' };
  const found = (names ?? Object.keys(values)).filter((name) => Object.hasOwn(values, name));
  return new Map(found.map((name) => [name, Reflect.get(values, name)]));
}
