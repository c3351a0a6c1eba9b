import { isUtf8 } from 'node:buffer';

/** What a client says of itself. The name is of no interest: the key alone says who it is. */
export interface Credentials {
  readonly key: string;
}

const BASE64 = /^(?:[\w+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const CONTROL = /\p{Cc}/u;

/** Reads a response: `=` is an empty one (RFC 4954 section 4). Undefined: not base64, or bytes that are no text. */
export function parseResponse(text: string): string | undefined {
  if (text === '=') return '';
  if (!BASE64.test(text) || text.includes('_')) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return isUtf8(bytes) ? bytes.toString() : undefined;
}

/**
 * Reads the message of PLAIN (RFC 4616): authorization identity, user name, password, with a NUL between them. Undefined when it
 * is none, or holds a control character, which no key and no user name has and which would break lines wherever it is shown.
 */
export function parsePlain(message: string): Credentials | undefined {
  const parts = message.split('\0');
  const [, , key] = parts;
  return parts.length === 3 && key !== undefined && parts.every(isPlainText) ? { key } : undefined;
}

/** Whether a text may be a user name or a key. */
export function isPlainText(text: string): boolean {
  return !CONTROL.test(text);
}
