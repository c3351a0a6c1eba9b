import { z } from 'zod';
import { optional, optionalTime, text } from '../../../base/schema.ts';
import { toAsciiDomain } from '../../../mail/addresses/address.ts';
import { readMergeValue } from '../../../mail/merge/values.ts';
import { LONGEST_CAMPAIGN, MAX_ANALYTICS_DOMAINS } from '../../../mail/outgoing.ts';
import { emailAddress, MAX_RECIPIENTS, readAs, record, str, strOrNull } from '../fields.ts';

// The parameters of the sending operations, as Mandrill's clients write them.

const MAX_TAGS = 100;
/** Documented: a tag has at most 50 characters. */
const LONGEST_TAG = 50;
const MAX_FIELDS = 1000;
/** A header line has at most 998 characters (RFC 5322 section 2.1.1); a subject is encoded and folded. */
const LONGEST_LINE = 998;
const MAX_FILES = 200;

const flag = optional(z.boolean());
const line = optional(z.string().max(LONGEST_LINE));
const words = optional(z.string());

/** A domain that may be empty, as forms send it. */
const domainOrNone = z
  .string()
  .max(1000)
  .refine((value) => value.trim() === '' || toAsciiDomain(value.trim()) !== undefined, 'Not a valid domain name')
  .transform((value) => toAsciiDomain(value.trim()));
export const domain = optional(domainOrNone);

const campaign = z
  .string()
  .max(LONGEST_CAMPAIGN)
  .refine((value) => !/\p{Cc}/u.test(value), 'Please enter a text of one line');

const scalar = z.union([z.string(), z.number(), z.boolean()]);

/** A map; PHP writes an empty one as an array. */
const map = <T extends z.ZodType>(value: T) =>
  z.union([z.record(z.string().max(255), value), z.array(z.never()).max(0)]);

/** Lists and structs are for handlebars; they may contain any JSON. */
const content = z
  .union([scalar, z.array(z.unknown()), z.record(z.string(), z.unknown())])
  .transform(readAs(readMergeValue, 'The value is nested too deeply'));

const variable = z.object({
  name: text(1000)
    .refine((name) => !name.startsWith('_'), 'Merge variable names may not start with _')
    .describe('name of the variable'),
  content: optional(content).describe('its value; lists and structs are for handlebars'),
});

const recipient = z.object({
  email: z.string().max(1000).describe('the address'),
  name: line.describe('the display name'),
  type: optional(z.enum(['to', 'cc', 'bcc'])).describe('to if omitted'),
});

const tag = z
  .string()
  .max(LONGEST_TAG)
  .refine((value) => !value.startsWith('_'), 'Tags that begin with an underscore are reserved');

const LONGEST_BASE64 = 64 * 1024 * 1024;
const file = z.object({
  type: optional(z.string().max(255)).describe('media type, such as image/png'),
  name: optional(z.string().max(1000)).describe(
    'file name; of an image: the Content-ID that the HTML refers to (cid:NAME)',
  ),
  // Whether it is base64 is checked in slices (send.ts).
  content: z.string().max(LONGEST_BASE64).describe('content in base64'),
});

const image = file.refine(
  ({ type }) => type !== undefined && /^image\//i.test(type),
  'Please enter a type that begins with image/',
);

const headerName = /^[!-9;-~]{1,76}$/;
const headers = map(z.union([scalar, z.array(scalar).max(100)])).refine(
  (value) => Object.keys(value).every((name) => headerName.test(name)),
  'Please enter names of header fields: printable characters without spaces and colons',
);

/** Otherwise a message could use a domain of another account. */
const PROVEN = 'Used if the account verified it or a domain above it (/senders/verify-domain)';

/** The fields of `message`. Others are ignored. */
const messageFields = {
  html: words.describe('the HTML part'),
  text: words.describe('the text part'),
  subject: line.describe('the subject'),
  from_email: optional(emailAddress).describe('address of the sender; required unless a template has one'),
  from_name: line.describe('name of the sender'),
  to: z.array(recipient).min(1).max(MAX_RECIPIENTS).describe(`the recipients, at most ${MAX_RECIPIENTS}`),
  headers: optional(headers).describe('further header fields: names and values'),
  important: flag.describe('marks the message as important (Importance, X-Priority)'),
  track_opens: flag.describe('tracks opens; outbound.track_opens if omitted'),
  track_clicks: flag.describe('tracks clicks on links; outbound.track_clicks if omitted'),
  auto_text: flag.describe('creates a text part from the HTML if the message has none; true if omitted'),
  preserve_recipients: flag.describe(
    'true: To and Cc show all recipients; false (the default): each recipient sees only their own address',
  ),
  auto_html: flag.describe('creates HTML from the text if the message has none: escaped, with paragraphs and links'),
  inline_css: flag.describe(
    'inlines the style sheets of the HTML into its elements, after merging; HTML of 256 KB and more, or too ' +
      'expensive to process, is left unchanged',
  ),
  url_strip_qs: flag.describe('clicks are reported without the query of their URL; links lead to the full URL'),
  view_content_link: flag.describe(
    'false: /messages/content does not show the message, and it is deleted within minutes after its delivery ' +
      'has ended for all recipients',
  ),
  bcc_address: optional(z.string().max(1000)).describe('address that gets one hidden copy'),
  tracking_domain: domain.describe(
    `host of tracking and unsubscribe links; that of the service if omitted. ${PROVEN}, and its CNAME or all its ` +
      'addresses are those of the service',
  ),
  signing_domain: domain.describe(
    "domain that signs (DKIM) instead of the sender's: a sender domain of the account with valid_signing",
  ),
  return_path_domain: domain.describe(
    `domain that bounces are returned to; that of the service if omitted. ${PROVEN}, and an MX record points to ` +
      `the service`,
  ),
  merge: flag.describe('replaces merge tags even if no variables are given'),
  merge_language: optional(z.enum(['mailchimp', 'handlebars'])).describe(
    'language of the merge tags; mailchimp if omitted',
  ),
  global_merge_vars: optional(z.array(variable).max(MAX_FIELDS)).describe('merge variables for all recipients'),
  merge_vars: optional(
    z
      .array(
        z.object({
          rcpt: z.string().max(1000).describe('address of the recipient'),
          vars: optional(z.array(variable).max(MAX_FIELDS)).describe('their variables'),
        }),
      )
      .max(MAX_RECIPIENTS),
  ).describe('merge variables for single recipients, which take precedence'),
  tags: optional(z.array(tag).max(MAX_TAGS)).describe(
    `tags for searches and statistics, at most ${MAX_TAGS} of at most ${LONGEST_TAG} characters`,
  ),
  subaccount: optional(z.string().max(255)).describe('id of the subaccount that sends it'),
  google_analytics_domains: optional(
    z
      .array(domainOrNone)
      .max(MAX_ANALYTICS_DOMAINS)
      .transform((names) => names.filter((name) => name !== undefined)),
  ).describe(
    'links to exactly these hosts get utm_source=transactional, utm_medium=email and utm_campaign, unless ' +
      'they already have them',
  ),
  // Clients document a list as well; the first text that is not empty counts.
  google_analytics_campaign: optional(
    z
      .union([campaign, z.array(campaign).max(MAX_ANALYTICS_DOMAINS)])
      .transform((value) => [value].flat().find((text) => text !== '')),
  ).describe("value of utm_campaign; the sender's address if omitted"),
  metadata: optional(map(scalar)).describe('names and values that events, searches and exports have too'),
  recipient_metadata: optional(
    z
      .array(
        z.object({
          rcpt: z.string().max(1000).describe('address of the recipient'),
          values: optional(map(scalar)).describe('their metadata'),
        }),
      )
      .max(MAX_RECIPIENTS),
  ).describe('metadata for single recipients, which takes precedence'),
  attachments: optional(z.array(file).max(MAX_FILES)).describe(`attached files, at most ${MAX_FILES}`),
  images: optional(z.array(image).max(MAX_FILES)).describe(`inline images of the HTML, at most ${MAX_FILES}`),
};

export const messageParam = z.object(messageFields).meta({
  title: 'message to send',
  description: 'the message',
});

export type MessageParam = z.output<typeof messageParam>;

/** The parameters of all sending operations besides the message. */
export const sendingParams = {
  async: optional(z.boolean()).describe(
    'accepted and ignored: every message is queued, and safe on disk when the call returns',
  ),
  ip_pool: optional(z.string().max(255)).describe(
    'the pool of dedicated addresses to send from; the default pool if there is none of that name',
  ),
  send_at: optionalTime.describe('when to send it, UTC, YYYY-MM-DD HH:MM:SS; immediately if that time has passed'),
};

export const sentRecord = record('sent message', {
  email: str('the recipient, as it was given'),
  status: z.enum(['sent', 'queued', 'scheduled', 'rejected', 'invalid']),
  reject_reason: strOrNull(
    'why it is rejected: hard-bounce, soft-bounce, spam, unsub, custom (on the rejection list), invalid-sender, or ' +
      'invalid (no valid address)',
  ),
  queued_reason: strOrNull(
    'why it is queued: sending-paused (the subaccount is paused), hourly-quota (the quota is used up), or ' +
      'sending-backlog (no particular reason: every message is queued first)',
  ),
  _id: str('the id of the message to this recipient'),
  signed_by: strOrNull(
    'the domain that would sign it now (DKIM); null if it would be unsigned, or is not sent (not part of the ' +
      'Mandrill API)',
  ),
  warning: strOrNull("why the sender's domain does not sign it and what to do, or null (not part of the Mandrill API)"),
});
