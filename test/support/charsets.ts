import { readFileSync } from 'node:fs';

/**
 * What Python's codecs make of a text, in hexadecimal: whole, and each two halves of it. See
 * fixtures/charsets/make.py.
 */
interface CharsetCase {
  readonly label: string;
  readonly text: string;
  readonly bytes: string;
  readonly halves: readonly (readonly [string, string])[];
}

export const CHARSETS: readonly CharsetCase[] = JSON.parse(
  readFileSync(new URL('../fixtures/charsets/words.json', import.meta.url), 'utf8'),
);
