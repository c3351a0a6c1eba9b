import { toAsciiDomain } from './address.ts';
import { type GivenExtras, readExtras } from './extras.ts';
import type { HeaderField } from './headers.ts';
import { createMcReading, type McReading, recipientKey } from './mc-reading.ts';
import { isName } from './merge/condition.ts';
import type { MergeLanguage } from './merge/language.ts';
import { isScalar, type MergeValue, readMergeValue, toText } from './merge/value.ts';
import type { ClickTracking, MergeVar, Metadata } from './sending.ts';

// The X-MC-* fields: what a program that hands mail over by SMTP asks of it. They are ours to read, and go no further.

/** What the fields ask; null and empty: nothing was asked. */
export interface McOptions {
  readonly tags: readonly string[];
  /** Null: as it is without the field. */
  readonly track: { readonly opens: boolean; readonly clicks: ClickTracking } | null;
  /** Null: as it is without the field. */
  readonly autoText: boolean | null;
  readonly template: { readonly name: string; readonly block: string } | null;
  /** Null: nobody asked for merging. */
  readonly globalVars: readonly MergeVar[] | null;
  /** By recipient, in lower case with the domain's A-labels. */
  readonly rcptVars: Readonly<Record<string, readonly MergeVar[]>>;
  /** Null: as it is without the field. */
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
  /** Names of fields with a value that was ignored, all of it or in part, each once. */
  readonly ignored: readonly string[];
}

/** Characters of a tag. */
const LONGEST_TAG = 50;
const MAX_TAGS = 100;
/** Bytes of the JSON of one field. */
const MAX_METADATA = 200;
const LANGUAGES: ReadonlyMap<string, MergeLanguage> = new Map([
  ['mailchimp', 'mailchimp'],
  ['handlebars', 'handlebars'],
]);
const CLICKS: ReadonlyMap<string, ClickTracking> = new Map([
  ['clicks', 'all'],
  ['clicks_all', 'all'],
  ['clicks_htmlonly', 'html'],
  ['clicks_textonly', 'text'],
]);

/** Reads all X-MC-* fields of a message. What is malformed is ignored, and named in `ignored`. */
export function parseMcHeaders(fields: readonly HeaderField[]): McOptions {
  const reading = createMcReading(fields);
  const { one, flag } = reading;
  const mergeLanguage = one('MergeLanguage', (text) => LANGUAGES.get(text.toLowerCase()));
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
    bcc: one('BccAddress', (text) => (recipientKey(text) === undefined ? undefined : text)),
    pool: one('IpPool', (text) => text),
    sendAt: one('SendAt', parseUtc),
    extras: readExtras(reading),
    ignored: reading.ignored(), // last: when all the others have been read
  };
}

/** Tags that begin with an underscore are kept for the system, as they are in the API. */
function readTags({ all, ignore }: McReading): string[] {
  const tags = new Set<string>();
  for (const tag of all('Tags')
    .flatMap((text) => text.split(','))
    .map((text) => text.trim())) {
    if (tag === '') continue;
    if (tag.length > LONGEST_TAG || tag.startsWith('_') || tags.size >= MAX_TAGS || /\p{Cc}/u.test(tag)) ignore('Tags');
    else tags.add(tag);
  }
  return [...tags];
}

/** The field says all of it: what it does not name is off. */
function readTrack({ all, ignore }: McReading): McOptions['track'] {
  let track: McOptions['track'] = null;
  for (const word of all('Track')
    .flatMap((text) => text.toLowerCase().split(','))
    .map((text) => text.trim())) {
    const before: NonNullable<McOptions['track']> = track ?? { opens: false, clicks: 'none' };
    const clicks = CLICKS.get(word);
    if (word === 'opens') track = { ...before, opens: true };
    else if (clicks) track = { ...before, clicks };
    else if (word === 'none') track = before;
    else if (word !== '') ignore('Track');
  }
  return track;
}

function parseTemplate(text: string): McOptions['template'] | undefined {
  const [name = '', block = ''] = text.split('|').map((part) => part.trim());
  return name === '' ? undefined : { name, block: block === '' ? 'main' : block };
}

/** What is no text, as it is shown; only handlebars knows what to do with lists and structs. */
function readText(value: unknown): string | undefined {
  const read = readMergeValue(value);
  return isScalar(read) ? toText(read) : undefined;
}

/** A value of the metadata. */
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
  // A 31st of February would become a day in March.
  return Number.isNaN(date.getTime()) || date.toISOString() !== iso ? undefined : date;
}
