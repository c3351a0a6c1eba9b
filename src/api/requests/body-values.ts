import { isObject } from '../../base/json.ts';
import { parseForm, UnreadableForm } from './forms.ts';
import { type CleanValues, cleaned } from './parameters.ts';

/** The parameters in a body, or why it cannot be read. */
export type BodyValues = CleanValues | { readonly fault: string };

/** How to parse a body. */
export interface BodyFormat {
  readonly isForm: boolean;
  /** The names of parameters to return; undefined: all. */
  readonly names: readonly string[] | undefined;
}

const STRUCTURE = /^[ \t\r\n]*[[{]/;

/** Parses a body whose text has been checked (body-check.ts). */
export function readBody(bytes: Uint8Array, { isForm, names }: BodyFormat): BodyValues {
  // Without a byte order mark.
  const text = new TextDecoder().decode(bytes);
  try {
    if (!isForm && text !== '' && !STRUCTURE.test(text)) return NOT_JSON;
    return valuesOf(isForm ? parseForm(text) : text === '' ? {} : JSON.parse(text), names);
  } catch (error) {
    return faultOf(error);
  }
}

const NOT_JSON = { fault: 'The body is not valid JSON' };

/** The parameters in a parsed form (a Map) or JSON. */
export function valuesOf(parsed: unknown, names: BodyFormat['names']): BodyValues {
  if (parsed instanceof Map) return cleaned(parsed);
  if (!isObject(parsed)) return { fault: 'The body must be a JSON object that holds the parameters' };
  const found = (names ?? Object.keys(parsed)).filter((name) => Object.hasOwn(parsed, name));
  return cleaned(new Map(found.map((name) => [name, parsed[name]])));
}

/** A parser's message is not passed on: it would echo the body, and with it the key. */
export function faultOf(error: unknown): { readonly fault: string } {
  if (error instanceof UnreadableForm) return { fault: error.message };
  if (error instanceof SyntaxError) return NOT_JSON;
  throw error;
}
