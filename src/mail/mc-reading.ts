import { parseAddress } from './address.ts';
import type { HeaderField } from './headers.ts';
import { decodeWords } from './words.ts';

/** Values by name: what stands for all recipients, and what for one. */
export interface Objects<T> {
  readonly all: Map<string, T>;
  readonly byRecipient: Map<string, Map<string, T>>;
}

export interface Asked<T> {
  readonly name: string;
  readonly isKey: (name: string) => boolean;
  /** Undefined for what is ignored. */
  readonly read: (value: unknown) => T | undefined;
  readonly maxBytes?: number;
}

/** The values of the X-MC-* fields of one message. Names of fields are given without X-MC-. */
export interface McReading {
  /** In their order. */
  all(name: string): readonly string[];
  /** The last value; null when there is none, or none that can be read. */
  one<T>(name: string, parse: (text: string) => T | undefined): T | null;
  flag(name: string): boolean | null;
  /** Of a field of JSON objects that may come several times; `_rcpt` in one says whom it is about. Later values win. */
  objects<T>(asked: Asked<T>): Objects<T>;
  /** Notes that a value was ignored, all of it or in part. */
  ignore(name: string): void;
  /** Full names of such fields until now, each once. */
  ignored(): string[];
}

/** Names of fields that are read here, or are known and mean nothing to us; all are taken off a message. */
export const MC_FIELD = /^x-mc-/i;
const TRUE = /^(?:true|on|yes|y|1)$/i;
const FALSE = /^(?:false|off|no|n|0)$/i;
const RCPT = '_rcpt';

export function createMcReading(fields: readonly HeaderField[]): McReading {
  const given = collect(fields);
  const ignored = new Set<string>();
  const all = (name: string) => given.get(name.toLowerCase()) ?? [];
  const ignore = (name: string) => {
    ignored.add(`X-MC-${name}`);
  };

  function one<T>(name: string, parse: (text: string) => T | undefined): T | null {
    const text = all(name).at(-1) ?? '';
    if (text === '') return null;
    const value = parse(text);
    if (value === undefined) ignore(name);
    return value ?? null;
  }

  return Object.freeze({
    all,
    one,
    flag: (name: string) => one(name, (text) => (TRUE.test(text) ? true : FALSE.test(text) ? false : undefined)),
    objects: <T>(asked: Asked<T>) => readObjects({ all, ignore }, asked),
    ignore,
    ignored: () => [...ignored],
  });
}

function collect(fields: readonly HeaderField[]): Map<string, string[]> {
  const given = new Map<string, string[]>();
  for (const { name, value } of fields) {
    if (!MC_FIELD.test(name)) continue;
    const key = name.slice('x-mc-'.length).toLowerCase();
    given.set(key, [...(given.get(key) ?? []), decodeWords(value).trim()]);
  }
  return given;
}

function readObjects<T>(
  { all, ignore }: Pick<McReading, 'all' | 'ignore'>,
  { name, isKey, read, maxBytes = Infinity }: Asked<T>,
): Objects<T> {
  const found: Objects<T> = { all: new Map(), byRecipient: new Map() };
  for (const text of all(name)) {
    const object = Buffer.byteLength(text) > maxBytes ? undefined : parseObject(text);
    const into = object && placeOf(object, found);
    if (!object || !into) {
      ignore(name);
      continue;
    }
    for (const [key, value] of Object.entries(object)) {
      if (key === RCPT) continue;
      const content = read(value);
      if (content === undefined || !isKey(key)) ignore(name);
      else into.set(key, content);
    }
  }
  return found;
}

function placeOf<T>(object: object, { all, byRecipient }: Objects<T>): Map<string, T> | undefined {
  if (!Object.hasOwn(object, RCPT)) return all;
  const recipient = RCPT in object && typeof object[RCPT] === 'string' ? recipientKey(object[RCPT]) : undefined;
  if (recipient === undefined) return undefined;
  const values = byRecipient.get(recipient) ?? new Map<string, T>();
  byRecipient.set(recipient, values);
  return values;
}

function parseObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** What a recipient's own values are kept under. */
export function recipientKey(text: string): string | undefined {
  const address = parseAddress(text.trim());
  if (!address || address.domain.startsWith('[')) return undefined;
  return `${address.text.slice(0, address.text.lastIndexOf('@'))}@${address.domain}`.toLowerCase();
}
