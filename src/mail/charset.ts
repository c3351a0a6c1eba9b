/** Charsets that are read without a library. */
export type Charset = 'utf-8' | 'windows-1252';

// What calls itself latin1 is windows-1252 in the field; the WHATWG encoding standard says the same.
const CHARSETS: ReadonlyMap<string, Charset> = new Map([
  ['utf-8', 'utf-8'], ['utf8', 'utf-8'],
  ['iso-8859-1', 'windows-1252'], ['latin1', 'windows-1252'], ['windows-1252', 'windows-1252'], ['cp1252', 'windows-1252'],
]);
const windows1252 = new TextDecoder('windows-1252', { ignoreBOM: true });

/** The charset of a body, undefined for one that needs the library. Without a name, and as US-ASCII, text is UTF-8 more often than anything else. */
export function charsetOfBody(name: string | undefined): Charset | undefined {
  const known = (name ?? '').toLowerCase();
  return known === '' || known === 'us-ascii' || known === 'ascii' ? 'utf-8' : CHARSETS.get(known);
}

/** The charset of an encoded word. */
export function charsetOfWord(name: string): Charset | undefined {
  const known = name.toLowerCase();
  return known === 'us-ascii' ? 'windows-1252' : CHARSETS.get(known);
}

/** Bytes as text; what is not UTF-8 becomes U+FFFD. */
export function decodeText(bytes: Buffer, charset: Charset): string {
  return charset === 'utf-8' ? bytes.toString('utf8') : windows1252.decode(bytes);
}
