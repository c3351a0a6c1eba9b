import { z } from 'zod';
import { isUnset, optional, PLEASE_ENTER, text, timestamp } from '../../base/schema.ts';
import { MAX_PATTERN } from '../../inbound/routing.ts';
import { parseAddress, toAsciiDomain } from '../../mail/address.ts';
import type { Call } from '../operation.ts';

// What several groups have in their declarations: fields of records, and parameters, each read into the form that the
// handler works with.

/** A text of a record. */
export const str = (description: string) => z.string().meta({ description });

/** A time of a record. */
export const time = (description: string) => str(`${description}, UTC, YYYY-MM-DD HH:MM:SS`);

/** A time of a record that may be missing; `missing` says what that means. */
export const timeOrNull = (description: string, missing = '') =>
  z
    .string()
    .nullable()
    .meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS${missing === '' ? '' : `; ${missing}`}` });

/** What a browser and a proxy take; no webhook needs more. */
const MAX_URL = 2048;
const MAX_DOMAIN_TEXT = 1000;
/** Recipients of a message: as many as a transaction over SMTP may have (smtp.max_recipients by default). */
export const MAX_RECIPIENTS = 1000;

/**
 * A domain to be added: tags are stripped first (rule strip_tags), then it must be a domain that mail can be sent to.
 */
export const newDomain = text(MAX_DOMAIN_TEXT)
  .transform((value, context) => {
    const domain = stripTags(value).trim();
    const id = toAsciiDomain(domain);
    const problem =
      domain === '' ? PLEASE_ENTER : id === undefined || !id.includes('.') ? 'Not a valid domain name' : undefined;
    if (problem === undefined && id !== undefined) return { domain, id };
    context.addIssue({ code: 'custom', message: problem ?? PLEASE_ENTER });
    return z.NEVER;
  })
  .meta({ description: 'the domain, as `inbound.example.com`; tags are stripped' });

/** A domain that was added: in any case, as U-label or A-label. What can be no domain was never added. */
export const knownDomain = text(MAX_DOMAIN_TEXT)
  .transform((value) => ({ domain: value, id: toAsciiDomain(value.trim()) ?? '' }))
  .meta({ description: 'a domain that was added' });

/** A pattern on the mailbox name. */
export const pattern = text(MAX_PATTERN)
  .refine((value) => !value.includes('@'), 'Only the part before the @ is matched: please enter a pattern without @')
  .refine(
    (value) => !/[\p{Cc}\p{Cf}\p{Z}]/u.test(value),
    'Please enter a pattern without spaces and control characters',
  )
  .meta({
    description: 'what the mailbox name must match: `*` is any run of characters, `?` one, letters in any case',
  });

/** A URL that posts go to. Kept exactly as given, because signatures are computed over it. */
export const endpointUrl = text(MAX_URL)
  .refine(
    (value) => /^https?:\/\/[^/\s]/i.test(value) && !/[\p{Cc}\s]/u.test(value) && URL.canParse(value),
    'Not a valid http or https URL',
  )
  .refine((value) => !value.includes('#'), 'Please enter a URL without a fragment (#)')
  .meta({ description: 'the webhook URL; it must answer HEAD with 200, or a POST of an empty batch with 2xx' });

/** Refuses a URL where no webhook answers, in the words of the ancestor's user interface and with the cause. */
export async function verifyUrl(url: string, call: Pick<Call<never>, 'urlFault' | 'invalid'>): Promise<void> {
  const cause = await call.urlFault(url);
  if (cause !== undefined) throw call.invalid('url', `We can't verify that the URL exists. Cause: ${cause}`);
}

/** An address that a message can be sent to. */
export const emailAddress = text(1000).transform((value, context) => {
  const address = parseAddress(value.trim());
  if (address) return address;
  context.addIssue({ code: 'custom', message: 'Not a valid email address' });
  return z.NEVER;
});

/** How many at most; 0 is what clients in typed languages send for "not given". */
export function limitOf(max: number, otherwise: number) {
  return optional(
    z
      .int()
      .min(0)
      .max(max)
      .transform((limit) => (limit === 0 ? undefined : limit)),
  ).meta({ description: `how many at most, up to ${max}; ${otherwise} when left out or 0` });
}

const SECOND_MS = 1000;
/** What every store can hold (store/driver/values.ts). */
const FIRST_TIME = Date.parse('0000-01-01T00:00:00Z');
const LAST_TIME = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

/** A time that the store can hold: the calendar ends where a year has more than four digits. */
export function withinCalendar(ms: number): Date {
  return new Date(Math.min(Math.max(ms, FIRST_TIME), LAST_TIME));
}

/** The last second that is meant, read as the first time that is not; a date alone means all of that day. */
export const optionalEndTime = optional(
  z
    .string()
    .max(40)
    .transform((value) => (/^\d{4}-\d\d-\d\d$/.test(value) ? `${value} 23:59:59` : value))
    .pipe(timestamp)
    .transform((last) => (isUnset(last) ? undefined : withinCalendar(last.getTime() + SECOND_MS))),
);

/**
 * The validation rule strip_tags: takes HTML tags and comments out of a text, as PHP's function of that name does.
 * One pass, character by character: no input takes longer than its length.
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

/** The next `<` that begins a tag; one before a space is a sign of comparison and stays. */
function nextTag(text: string, from: number): number {
  for (let at = text.indexOf('<', from); at >= 0; at = text.indexOf('<', at + 1)) {
    if (!/\s/.test(text.charAt(at + 1))) return at;
  }
  return text.length;
}

/** Behind the `>` that ends the tag; a `>` in quotes does not. A tag that never ends takes the rest with it. */
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
