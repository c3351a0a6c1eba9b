import { parseForm, UnreadableForm } from './forms.ts';
import { type CleanValues, cleaned } from './parameters.ts';

/** The parameters in a body. Otherwise why there are none. */
export type BodyValues = CleanValues | { readonly fault: string };

const STRUCTURE = /^[ \t\r\n]*[[{]/;

/**
 * Parses a body whose text has been checked (body-check.ts). A parser's message is not passed on: it would echo the
 * body, and with it the key.
 */
export function readBody(bytes: Uint8Array, isForm: boolean): BodyValues {
  // Without a byte order mark.
  const text = new TextDecoder().decode(bytes);
  try {
    return isForm ? cleaned(parseForm(text)) : readJson(text);
  } catch (error) {
    if (error instanceof UnreadableForm) return { fault: error.message };
    if (error instanceof SyntaxError) return NOT_JSON;
    throw error;
  }
}

const NOT_JSON = { fault: 'The body is not valid JSON' };

function readJson(text: string): BodyValues {
  if (text === '') return cleaned({});
  if (!STRUCTURE.test(text)) return NOT_JSON;
  const values: unknown = JSON.parse(text);
  return typeof values === 'object' && values !== null && !Array.isArray(values)
    ? cleaned(values)
    : { fault: 'The body must be a JSON object that holds the parameters' };
}
