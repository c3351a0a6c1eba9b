import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { isUnset, optional, PLEASE_ENTER, text, timestamp } from '../../base/schema.ts';
import type { FormatName } from '../../inbound/formats.ts';
import { MAX_PATTERN, patternNames } from '../../inbound/patterns.ts';
import { isMeantAsPulled, isPulled } from '../../inbound/pulled.ts';
import { parseAddress, toAsciiDomain } from '../../mail/addresses/address.ts';
import { toInboundDomain } from '../../mail/addresses/wildcard-domain.ts';
import type { Call } from '../operation.ts';

// Fields of records and parameters that several groups share. Parameters are parsed into the form that handlers use.

// Fields of a record, each with its description.
export const str = (description: string) => z.string().describe(description);
export const strOrNull = (description: string) => z.string().nullable().describe(description);
export const int = (description: string) => z.int().describe(description);
export const intOrNull = (description: string) => z.int().nullable().describe(description);
export const bool = (description: string) => z.boolean().describe(description);
export const listOf = <S extends z.ZodType>(item: S, description: string) => z.array(item).describe(description);

/** A struct with a name in the reference and in generated clients. */
export const record = <S extends z.ZodRawShape>(title: string, fields: S) => z.object(fields).meta({ title });

/** A time in the form of records, from a Date or milliseconds since 1970. */
export function toTime(at: Date | number): string;
export function toTime(at: Date | number | null | undefined): string | null;
export function toTime(at: Date | number | null | undefined): string | null {
  return at === null || at === undefined ? null : toTimestamp(new Date(at));
}

export const time = (description: string) => str(`${description}, UTC, YYYY-MM-DD HH:MM:SS`);

/** A time that may be null; `missing`: the meaning of null. */
export const timeOrNull = (description: string, missing = '') =>
  strOrNull(`${description}, UTC, YYYY-MM-DD HH:MM:SS${missing === '' ? '' : `; ${missing}`}`);

/** A length that browsers and proxies accept; no webhook needs more. */
export const MAX_URL = 2048;
const MAX_DOMAIN_TEXT = 1000;
/** Maximum recipients of a message, as in an SMTP transaction (the default of smtp.max_recipients). */
export const MAX_RECIPIENTS = 1000;

/** A transformation by `read`. A value for which that returns undefined is refused with this text. */
export const readAs =
  <A, T>(read: (value: A) => T | undefined, problem: string) =>
  (value: A, context: z.RefinementCtx): T => {
    const found = read(value);
    if (found !== undefined) return found;
    context.addIssue({ code: 'custom', message: problem });
    return z.NEVER;
  };

/** A domain name, in any script; parsed to A-labels. */
export const domainName = text(MAX_DOMAIN_TEXT)
  .transform(
    readAs((value) => {
      const domain = toAsciiDomain(value.trim());
      return domain?.includes('.') ? domain : undefined;
    }, 'Not a valid domain name'),
  )
  .describe('a domain name; an international one as U-labels or A-labels, returned as A-labels');

/** A domain to add: HTML tags are stripped first (rule strip_tags), then it must be a domain that can receive mail. */
export const newDomain = text(MAX_DOMAIN_TEXT)
  .transform((value) => stripTags(value).trim())
  .refine((domain) => domain !== '', PLEASE_ENTER)
  .transform(
    readAs((domain) => {
      const id = toInboundDomain(domain);
      return id?.includes('.') ? { domain, id } : undefined;
    }, 'Not a valid domain name'),
  )
  .describe(
    'the domain, such as `inbound.example.com`, or `*.inbound.example.com` for all domains below one; HTML ' +
      'tags are stripped',
  );

/** A domain that was added, in any case, as U-label or A-label. An invalid name is accepted here and never found. */
export const knownDomain = text(MAX_DOMAIN_TEXT)
  .transform((value) => ({ domain: value, id: toInboundDomain(value.trim()) ?? '' }))
  .describe('a domain that was added');

export const pattern = text(MAX_PATTERN)
  .refine((value) => !value.includes('@'), 'Only the part before the @ is matched: please enter a pattern without @')
  .refine(
    (value) => !/[\p{Cc}\p{Cf}\p{Z}]/u.test(value),
    'Please enter a pattern without spaces and control characters',
  )
  .refine(
    (value) => new Set(patternNames(value)).size === patternNames(value).length && !/\}[*{]|\*\{/.test(value),
    'Please use each {name} once, with something between it and the next {name} or *',
  )
  .describe(
    'pattern for the mailbox name: `*` matches any number of characters, `?` matches one, `{name}` matches ' +
      'one or more, returned as `captures.name` in the payload; case is ignored',
  );

/** A URL that posts go to. Kept exactly as given, because signatures are computed over it. */
export const endpointUrl = text(MAX_URL)
  .refine(isHttpUrl, 'Not a valid http or https URL')
  .refine((value) => !value.includes('#'), 'Please enter a URL without a fragment (#)')
  .describe(
    'the webhook URL; it is checked now, and must respond to HEAD with 200, or to a POST of an empty batch with 2xx',
  );

/** The URL of a route, which may be a pull URL. */
export const routeUrl = text(MAX_URL)
  .refine((value) => isMeantAsPulled(value) || isHttpUrl(value), 'Not a valid http or https URL')
  .refine(
    (value) => !isMeantAsPulled(value) || isPulled(value),
    'Please enter pull: or pull:NAME, with a name of 1 to 64 of a-z, 0-9, ".", "_" and "-"',
  )
  .refine((value) => !value.includes('#'), 'Please enter a URL without a fragment (#)')
  .describe(
    'the webhook URL; it is checked now, and must respond to HEAD with 200, or to a POST of an empty batch with 2xx. ' +
      'Or `pull:` or `pull:NAME`: nothing is posted, and mail waits for `/inbound/pull`',
  );

function isHttpUrl(value: string): boolean {
  return /^https?:\/\/[^/\s]/i.test(value) && !/[\p{Cc}\s]/u.test(value) && URL.canParse(value);
}

/**
 * Throws ValidationError if no webhook answers at the URL, in the words of Mandrill's user interface and with the
 * cause.
 */
export async function verifyUrl(
  url: string,
  call: Pick<Call<never>, 'urlFault' | 'invalid'>,
  format?: FormatName,
): Promise<void> {
  // A pull queue has no server to check.
  if (isPulled(url)) return;
  const cause = await call.urlFault(url, format);
  if (cause !== undefined) throw call.invalid('url', `We can't verify that the URL exists. Cause: ${cause}`);
}

/** A URL for display, without its query and password, which may be secret. Other text is unchanged. */
export function shownUrl(url: string): string {
  const parsed = /^https?:/i.test(url) ? URL.parse(url) : null;
  return parsed ? `${parsed.protocol}//${parsed.host}${parsed.pathname}` : url;
}

/** An address that a message can be sent to. */
export const emailAddress = text(1000).transform(
  readAs((value) => parseAddress(value.trim()), 'Not a valid email address'),
);

/** The maximum number of results; clients in typed languages send 0 for "not given". */
export function limitOf(max: number, otherwise: number) {
  return optional(z.int().min(0).max(max))
    .transform((limit) => limit || otherwise)
    .describe(`maximum number of results, up to ${max}; ${otherwise} if omitted or 0`);
}

/** The cursor of a list in pages; clients in typed languages send 0 for "not given". */
export const optionalCursor = optional(
  z
    .int()
    .min(0)
    .transform((cursor) => cursor || undefined),
).describe('`next` of the previous result; starts with the newest if omitted or 0');

/** The position after the last result of a list in pages. */
export const nextCursor = intOrNull(
  '`before` for the next call; null at the end. More may follow even if there are fewer than `limit` results',
);

/** The note of operations whose answer covers all hosts. */
export const ALL_HOSTS =
  'With several hosts, the result covers all of them; the header Postern-Hosts-Missing names those that did not ' +
  'respond.';

/**
 * A cursor of several hosts: the id of each with its own cursor, which is empty after the end
 * (api/hosts/join-hosts.ts).
 */
const HOST_CURSOR = /^[\w-]{1,64}:\d{0,15}(?:,[\w-]{1,64}:\d{0,15})*$/;
const MAX_CURSOR = 20_000;

/** The cursor of several hosts, which an answer gave as `field`. */
export const hostCursor = (field: string) =>
  z.string().max(MAX_CURSOR).regex(HOST_CURSOR, `Please enter \`${field}\` of the previous result`);

/** The same for a list of all hosts. */
export const cursorOfHosts = optional(
  z.union([z.int().min(0), hostCursor('next')]).transform((cursor) => (cursor === 0 ? undefined : cursor)),
).describe('`next` of the previous result; starts with the newest if omitted or 0');

export const nextOfHosts = z
  .union([z.int(), z.string()])
  .nullable()
  .describe(
    '`before` for the next call: a number, or a text with several hosts; null at the end. More may follow even if ' +
      'there are fewer than `limit` results',
  );

/** The test of a DNS record; `valid` is null before the DNS has answered one. */
export const toDnsTest = (valid: boolean | null, validAfter: Date | null, error: string | null) => ({
  valid: valid === true,
  valid_after: toTime(validAfter),
  error: valid === null ? (error ?? 'This domain has not been tested yet.') : error,
});

const SECOND_MS = 1000;
/** The range of times that every store can hold (store/driver/values.ts). */
const FIRST_TIME = Date.parse('0000-01-01T00:00:00Z');
const LAST_TIME = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

/** Clamps a time to the range of the store, which ends where a year has more than four digits. */
export function withinCalendar(ms: number): Date {
  return new Date(Math.min(Math.max(ms, FIRST_TIME), LAST_TIME));
}

/** An inclusive end of a range, parsed to the exclusive end one second later; a date alone means all of that day. */
export const optionalEndTime = optional(
  z
    .string()
    .max(40)
    .transform((value) => (/^\d{4}-\d\d-\d\d$/.test(value) ? `${value} 23:59:59` : value))
    .pipe(timestamp)
    .transform((last) => (isUnset(last) ? undefined : withinCalendar(last.getTime() + SECOND_MS))),
);

/** The later of two times in milliseconds, either of which may be missing: a range that begins at both. */
export const later = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);

/** The earlier of two times: a range that ends at both. */
export const earlier = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);

/**
 * The validation rule strip_tags: removes HTML tags and comments, as PHP's function of that name does. One pass over
 * the characters, so the time is linear in the length.
 */
export function stripTags(text: string): string {
  const kept: string[] = [];
  let from = 0;
  for (;;) {
    const open = nextTag(text, from);
    kept.push(text.slice(from, open));
    if (open === text.length) return kept.join('');
    from = text.startsWith('<!--', open) ? after(text, '-->', open + 4) : endOfTag(text, open + 1);
  }
}

/** The next `<` that begins a tag; one before white space is a comparison and stays. */
function nextTag(text: string, from: number): number {
  for (let at = text.indexOf('<', from); at >= 0; at = text.indexOf('<', at + 1)) {
    if (!/\s/.test(text.charAt(at + 1))) return at;
  }
  return text.length;
}

/**
 * The position after the `>` that ends the tag, skipping any in quotes. A tag that never ends includes the rest of the
 * text.
 */
function endOfTag(text: string, from: number): number {
  let quote = '';
  for (let at = from; at < text.length; at++) {
    const c = text.charAt(at);
    if (quote !== '') {
      if (c === quote) quote = '';
    } else if (c === '"' || c === "'") quote = c;
    else if (c === '>') return at + 1;
  }
  return text.length;
}

function after(text: string, mark: string, from: number): number {
  const at = text.indexOf(mark, from);
  return at < 0 ? text.length : at + mark.length;
}
