import { invalid } from './errors.ts';

/** More than any parameter needs; beyond it, code that walks values by recursion would run out of stack. */
export const MAX_DEPTH = 32;
const MAX_FORM_FIELDS = 1000;

/** The parameters of a call, as they came. Null is absent. */
export interface Params {
  get(name: string): unknown;
  /** The named ones that are there, in an object without prototype. */
  of(names: readonly string[]): Record<string, unknown>;
  /** They came as a form, which knows only text: a value that should be of another kind may be read by `untext`. */
  readonly textOnly: boolean;
}

/** Parameters that no request carried: those of a caller in this process. */
export function paramsOf(values: Readonly<Record<string, unknown>>): Params {
  return toParams(new Map(Object.entries(values)), false);
}

/** What a text of a form stands for where a text will not do. */
export function untext(value: unknown): unknown {
  if (value === 'true') return true;
  if (value === 'false') return false;
  return typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
}

/**
 * Reads a request body: JSON whatever the content type says, because callers forget it; a form when it does not look like
 * JSON. Throws a refusal for anything else, and never anything but a refusal.
 */
export function parseBody(bytes: Uint8Array, contentType: string): Params {
  if (bytes.byteLength === 0) return toParams(new Map(), false);
  const first = bytes.find((byte) => !isSpace(byte));
  const json = first === 0x7b || first === 0x5b || /[/+]json\b/i.test(contentType);
  if (json && deeperThan(bytes, MAX_DEPTH)) throw unreadable(`The JSON is nested deeper than ${MAX_DEPTH} levels`);
  const text = decode(bytes);
  return json ? toParams(parseJson(text), false) : toParams(parseForm(text), true);
}

/** JSON insignificant space, and the three bytes of a byte order mark. */
function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09 || byte === 0xef || byte === 0xbb || byte === 0xbf;
}

/** Counts before parsing: JSON.parse takes 200,000 levels, and everything that touches the result afterwards dies of it. */
function deeperThan(bytes: Uint8Array, limit: number): boolean {
  let depth = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === 0x22) i = endOfString(bytes, i + 1);
    else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > limit) return true;
    } else if (byte === 0x7d || byte === 0x5d) depth--;
  }
  return false;
}

/** The place of the closing quote. A search for bytes, so that a message of megabytes in a string costs next to nothing. */
function endOfString(bytes: Uint8Array, from: number): number {
  for (let quote = bytes.indexOf(0x22, from); quote >= 0; quote = bytes.indexOf(0x22, quote + 1)) {
    let slashes = 0;
    while (quote - slashes > from && bytes[quote - slashes - 1] === 0x5c) slashes++;
    if (slashes % 2 === 0) return quote;
  }
  return bytes.length;
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw unreadable('The body is not valid UTF-8');
  }
}

function parseJson(text: string): Map<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // What the parser says would echo the body, and with it the key.
    throw unreadable('The body is not valid JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw unreadable('The body must be a JSON object that holds the parameters');
  return new Map(Object.entries(value));
}

/** `to[]=a&to[]=b` and `to[0]=a` make an array, as PHP callers write one. */
function parseForm(text: string): Map<string, unknown> {
  const fields = new Map<string, unknown>();
  let count = 0;
  for (const [name, value] of new URLSearchParams(text)) {
    if (++count > MAX_FORM_FIELDS) throw unreadable(`The form has more than ${MAX_FORM_FIELDS} fields`);
    const item = /^([^[\]]+)\[\d*\]$/.exec(name);
    const list = item?.[1];
    if (list === undefined) {
      fields.set(name, value);
      continue;
    }
    const known = fields.get(list);
    if (Array.isArray(known)) known.push(value);
    else fields.set(list, [value]);
  }
  return fields;
}

function toParams(fields: ReadonlyMap<string, unknown>, textOnly: boolean): Params {
  const get = (name: string) => withoutNulls(fields.get(name));
  return {
    get,
    textOnly,
    of(names) {
      // Without prototype, so that a parameter named like a member of Object is absent unless it was sent.
      const found: Record<string, unknown> = Object.create(null);
      const faults: Record<string, string> = {};
      for (const name of names) {
        const value = get(name);
        if (value === undefined) continue;
        if (!isCleanText(value)) faults[name] = 'Please enter text without NUL and without broken Unicode (lone surrogates)';
        found[name] = value;
      }
      if (Object.keys(faults).length > 0) throw invalid(faults);
      return found;
    },
  };
}

/** Null means absent everywhere: official clients send it for every parameter that is left out. */
function withoutNulls(value: unknown): unknown {
  if (value === null) return undefined;
  if (Array.isArray(value)) return value.map((item: unknown) => item === null ? null : withoutNulls(item));
  if (typeof value !== 'object') return value;
  const clean: Record<string, unknown> = Object.create(null);
  for (const [name, item] of Object.entries(value)) if (item !== null) clean[name] = withoutNulls(item);
  return clean;
}

/** Neither would survive the way through a database and back. */
function isCleanText(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\0');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, item]) => isCleanText(name) && isCleanText(item));
}

function unreadable(text: string) {
  return invalid({ body: text });
}
