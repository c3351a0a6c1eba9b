import { frozen } from '../base/frozen.ts';
import { parseObject } from '../base/json.ts';
import { readRecipient, toAsciiDomain } from './addresses/address.ts';
import type { MergeLanguage } from './merge/language.ts';
import { isName, isScalar, type MergeValue, readMergeValue, textOfValue } from './merge/values.ts';
import { decodeWords, type HeaderField } from './mime/headers.ts';
import { type ClickTracking, type GivenExtras, type MergeVar, type Metadata, readExtras } from './outgoing.ts';

// The X-MC-* fields: options in mail submitted by SMTP. They are for us only and are removed from the message.

/** The options of a message; null and empty: not set. */
export interface McOptions {
  readonly tags: readonly string[];
  /** Null: the default applies. */
  readonly track: { readonly opens: boolean; readonly clicks: ClickTracking } | null;
  /** Null: the default applies. */
  readonly autoText: boolean | null;
  readonly template: { readonly name: string; readonly block: string } | null;
  /** Null: merging was not requested. */
  readonly globalVars: readonly MergeVar[] | null;
  /** By recipient: lower case, domain as A-labels. */
  readonly rcptVars: Readonly<Record<string, readonly MergeVar[]>>;
  /** Null: the default applies. */
  readonly mergeLanguage: MergeLanguage | null;
  readonly metadata: Metadata;
  readonly rcptMetadata: Readonly<Record<string, Metadata>>;
  readonly preserveRecipients: boolean;
  readonly important: boolean;
  readonly signingDomain: string | null;
  readonly subaccount: string | null;
  readonly bcc: string | null;
  readonly pool: string | null;
  readonly sendAt: Date | null;
  readonly extras: GivenExtras;
  /** Names of fields whose value was ignored in whole or in part, each once. */
  readonly ignored: readonly string[];
}

/** The options as an outgoing message has them; `tracking` is for messages that do not set it. */
export function toOutgoingOptions(options: McOptions, tracking: NonNullable<McOptions['track']>) {
  const { tags, subaccount, metadata, rcptMetadata, globalVars, rcptVars, mergeLanguage } = options;
  const { preserveRecipients, signingDomain, pool } = options;
  const { opens, clicks } = options.track ?? tracking;
  return {
    tags,
    subaccount,
    metadata,
    rcptMetadata,
    globalVars,
    rcptVars,
    ...(mergeLanguage && { mergeLanguage }),
    preserveRecipients,
    signingDomain,
    pool,
    trackOpens: opens,
    trackClicks: clicks,
  };
}

/** In characters. */
const LONGEST_TAG = 50;
const MAX_TAGS = 100;
/** Bytes of JSON per field. */
const MAX_METADATA = 200;
const LANGUAGES: readonly MergeLanguage[] = ['mailchimp', 'handlebars'];
const CLICKS: ReadonlyMap<string, ClickTracking> = new Map([
  ['clicks', 'all'],
  ['clicks_all', 'all'],
  ['clicks_htmlonly', 'html'],
  ['clicks_textonly', 'text'],
]);

/** Parses all X-MC-* fields of a message. Malformed values are ignored and their fields listed in `ignored`. */
export function parseMcHeaders(fields: readonly HeaderField[]): McOptions {
  const reading = createMcReading(fields);
  const { one, flag } = reading;
  const mergeLanguage = one('MergeLanguage', (text) => LANGUAGES.find((name) => name === text.toLowerCase()));
  const vars = reading.objects({
    name: 'MergeVars',
    isKey: isName,
    read: mergeLanguage === 'handlebars' ? readMergeValue : readText,
  });
  const metadata = reading.objects({
    name: 'Metadata',
    isKey: (name) => name !== '',
    read: readNote,
    maxBytes: MAX_METADATA,
  });
  return {
    tags: readTags(reading),
    track: readTrack(reading),
    autoText: flag('Autotext'),
    template: one('Template', parseTemplate),
    globalVars: reading.all('MergeVars').length > 0 ? toVars(vars.all) : null,
    rcptVars: Object.fromEntries([...vars.byRecipient].map(([recipient, values]) => [recipient, toVars(values)])),
    mergeLanguage,
    metadata: Object.fromEntries(metadata.all),
    rcptMetadata: Object.fromEntries(
      [...metadata.byRecipient].map(([recipient, values]) => [recipient, Object.fromEntries(values)]),
    ),
    preserveRecipients: flag('PreserveRecipients') ?? false,
    important: flag('Important') ?? false,
    signingDomain: one('SigningDomain', (text) => toAsciiDomain(text)),
    subaccount: one('Subaccount', (text) => text),
    bcc: one('BccAddress', (text) => readRecipient(text) && text),
    pool: one('IpPool', (text) => text),
    sendAt: one('SendAt', parseUtc),
    extras: readExtras(reading),
    ignored: reading.ignored(), // must be last, after all other fields were read
  };
}

/** Tags that start with an underscore are reserved for the system, as in the API. */
function readTags({ words, ignore }: McReading): string[] {
  const tags = new Set<string>();
  for (const tag of words('Tags')) {
    if (tag.length > LONGEST_TAG || tag.startsWith('_') || tags.size >= MAX_TAGS || /\p{Cc}/u.test(tag)) ignore('Tags');
    else tags.add(tag);
  }
  return [...tags];
}

/** The field sets both: what it does not name is off. */
function readTrack({ words, ignore }: McReading): McOptions['track'] {
  let track: McOptions['track'] = null;
  for (const given of words('Track')) {
    const word = given.toLowerCase();
    const before: NonNullable<McOptions['track']> = track ?? { opens: false, clicks: 'none' };
    const clicks = CLICKS.get(word);
    if (word === 'opens') track = { ...before, opens: true };
    else if (clicks) track = { ...before, clicks };
    else if (word === 'none') track = before;
    else ignore('Track');
  }
  return track;
}

function parseTemplate(text: string): McOptions['template'] | undefined {
  const [name = '', block = ''] = text.split('|').map((part) => part.trim());
  return name === '' ? undefined : { name, block: block === '' ? 'main' : block };
}

/** Converts a scalar to text; only handlebars supports lists and structs. */
function readText(value: unknown): string | undefined {
  const read = readMergeValue(value);
  return isScalar(read) ? textOfValue(read) : undefined;
}

/** Reads a metadata value. */
function readNote(value: unknown): string | number | boolean | undefined {
  const read = readMergeValue(value);
  return isScalar(read) ? (read ?? '') : undefined;
}

function toVars(values: ReadonlyMap<string, MergeValue>): MergeVar[] {
  return [...values].map(([name, content]) => ({ name, content }));
}

/** `YYYY-MM-DD HH:MM:SS` in UTC. */
function parseUtc(text: string): Date | undefined {
  if (!/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(text)) return undefined;
  const iso = `${text.replace(' ', 'T')}.000Z`;
  const date = new Date(iso);
  // Date would turn 31 February into a day in March.
  return Number.isNaN(date.getTime()) || date.toISOString() !== iso ? undefined : date;
}

/** Values by name, for all recipients and for single ones. */
interface Objects<T> {
  readonly all: Map<string, T>;
  readonly byRecipient: Map<string, Map<string, T>>;
}

interface ObjectField<T> {
  readonly name: string;
  readonly isKey: (name: string) => boolean;
  /** Undefined: ignore the value. */
  readonly read: (value: unknown) => T | undefined;
  readonly maxBytes?: number;
}

/** Reads the X-MC-* fields of one message. Field names are given without X-MC-. */
export type McReading = ReturnType<typeof createMcReading>;

/** Names of all X-MC-* fields, also of those we ignore; all are removed from a message. */
export const MC_FIELD = /^x-mc-/i;
const TRUE = /^(?:true|on|yes|y|1)$/i;
const FALSE = /^(?:false|off|no|n|0)$/i;
const RCPT = '_rcpt';

function createMcReading(fields: readonly HeaderField[]) {
  const given = collect(fields);
  const ignored = new Set<string>();
  /** All values of a field, in order. */
  const all = (name: string): readonly string[] => given.get(name.toLowerCase()) ?? [];
  /** Records that a value was ignored, in whole or in part. */
  const ignore = (name: string) => {
    ignored.add(`X-MC-${name}`);
  };

  /** The last value; null if there is none or it cannot be parsed. */
  function one<T>(name: string, parse: (text: string) => T | undefined): T | null {
    const text = all(name).at(-1) ?? '';
    if (text === '') return null;
    const value = parse(text);
    if (value === undefined) ignore(name);
    return value ?? null;
  }

  return frozen({
    all,
    /** The words of a field that has several, between commas. */
    words(name: string): readonly string[] {
      const words = all(name).flatMap((text) => text.split(','));
      return words.map((word) => word.trim()).filter((word) => word !== '');
    },
    one,
    flag: (name: string) => one(name, (text) => (TRUE.test(text) ? true : FALSE.test(text) ? false : undefined)),
    /** Reads a field of JSON objects that may be repeated; `_rcpt` limits one to a recipient. Later values win. */
    objects: <T>(asked: ObjectField<T>) => readObjects({ all, ignore }, asked),
    ignore,
    /** Full names of the fields with ignored values so far, each once. */
    ignored: (): string[] => [...ignored],
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
  { name, isKey, read, maxBytes = Infinity }: ObjectField<T>,
): Objects<T> {
  const found: Objects<T> = { all: new Map(), byRecipient: new Map() };
  for (const text of all(name)) {
    const object = Buffer.byteLength(text) > maxBytes ? undefined : parseObject(text);
    const into = object && mapFor(object, found);
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

function mapFor<T>(
  object: Readonly<Record<string, unknown>>,
  { all, byRecipient }: Objects<T>,
): Map<string, T> | undefined {
  if (!Object.hasOwn(object, RCPT)) return all;
  const recipient = typeof object[RCPT] === 'string' ? readRecipient(object[RCPT])?.key : undefined;
  if (recipient === undefined) return undefined;
  const values = byRecipient.get(recipient) ?? new Map<string, T>();
  byRecipient.set(recipient, values);
  return values;
}
