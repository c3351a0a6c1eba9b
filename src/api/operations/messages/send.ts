import { z } from 'zod';
import { runInSlices, type SlicedWork } from '../../../base/concurrency.ts';
import { jsonBytes } from '../../../base/json.ts';
import { readRecipient } from '../../../mail/addresses/address.ts';
import { secondaryAuthorsOf } from '../../../mail/addresses/author.ts';
import { findingFault, type MergeLanguage } from '../../../mail/merge/language.ts';
import { render } from '../../../mail/merge/merge.ts';
import { textOfValue } from '../../../mail/merge/values.ts';
import {
  type ClickTracking,
  type Draft,
  type DraftFile,
  type MergeVar,
  type Metadata,
  type Outgoing,
  toExtras,
} from '../../../mail/outgoing.ts';
import { conversationOfDraft } from '../../../mail/replies/sent-names.ts';
import { MAX_RENDERED } from '../../../mail/template-errors.ts';
import type { RecipientOutcome, SigningOutlook } from '../../../sending/types.ts';
import type { TemplateContent } from '../../../store/rows/templates.ts';
import { type Call, operation } from '../../operation.ts';
import { MAX_RECIPIENTS } from '../fields.ts';
import { findTemplate } from '../template-rows.ts';
import { regionContents, templateName } from '../templates.ts';
import { type MessageParam, messageParam, sendingParams, sentRecord } from './params.ts';

type Sent = z.input<typeof sentRecord>;
type SendErrors = 'Unknown_Subaccount' | 'ServiceUnavailable';

const NOTES =
  `Every recipient (up to ${MAX_RECIPIENTS}) gets a separate message with its own id. The call returns once the ` +
  'message is safe on disk. Recipients on the rejection list are `rejected`, invalid addresses are `invalid`; all ' +
  'others are `queued`, or `scheduled` if `send_at` is in the future. Merge tags are replaced if `merge` is true or ' +
  'variables are given: *|NAME|*, or {{name}} with merge_language handlebars, whose variables may be lists and ' +
  'structs. Invalid tags are a ValidationError; if the message is too large or too expensive once it is composed, ' +
  'its recipient is rejected as `invalid`. A tracking_domain, return_path_domain or signing_domain that cannot be ' +
  'used is ignored, and the default is used. If from_email or a Sender header is in a domain of the operator that ' +
  'the account may not use, all recipients are rejected as `invalid-sender`.';

/** Submits a message and returns a record for each recipient. Throws Unknown_Subaccount or ServiceUnavailable. */
export async function submit(
  submission: Parameters<Call<SendErrors>['messages']['submit']>[0],
  call: Call<SendErrors>,
): Promise<readonly Sent[]> {
  const outcome = await call.messages.submit(submission);
  if (outcome.outcome === 'accepted')
    return outcome.recipients.map((recipient) => toSentRecord(recipient, outcome.signing));
  if (outcome.outcome === 'unknown-subaccount')
    throw call.refuse('Unknown_Subaccount', submission.outgoing.subaccount ?? '');
  throw call.refuse('ServiceUnavailable');
}

function toSentRecord(
  { email, status, rejectReason, queuedReason, id }: RecipientOutcome,
  { signedBy, warning }: SigningOutlook,
): Sent {
  const leaves = status === 'queued' || status === 'scheduled';
  return {
    email,
    status,
    reject_reason: rejectReason,
    queued_reason: queuedReason,
    _id: id,
    signed_by: leaves ? signedBy : null,
    warning: leaves ? warning : null,
  };
}

const sendParams = { message: messageParam, ...sendingParams };

async function sendDraft(
  { message, ip_pool: pool, send_at: sendAt }: z.output<z.ZodObject<typeof sendParams>>,
  template: FilledTemplate | null,
  call: Call<SendErrors>,
): Promise<Sent[]> {
  const outgoing = toOutgoing(message, { pool, template }, call);
  const draft = await toDraft(message, template, call);
  await checkTemplates(outgoing, draft, call);
  const bytes = await runInSlices(jsonBytes(draft));
  if (bytes.length > call.settings.maxMessageBytes)
    throw call.invalid('message', `The message is larger than ${call.settings.maxMessageBytes} bytes`);
  const recipients = draft.to.map(({ email }) => email);
  const otherAuthors = secondaryAuthorsOf(draft.headers.map(([name, value]) => ({ name, value })));
  const sent = await submit({ outgoing, otherAuthors, bytes, recipients, sendAt: sendAt ?? null, client: null }, call);
  // A recipient named twice is reported once; the hidden copy to bcc_address is not reported.
  const named = new Set(message.to.map(({ email }) => email.trim()));
  return sent.filter(({ email }) => named.has(email));
}

const MESSAGE = {
  html: '<p>Example HTML content</p>',
  text: 'Example text content',
  subject: 'example subject',
  from_email: 'news@example.com',
  from_name: 'Example Name',
  to: [{ email: 'recipient.email@example.com', name: 'Recipient Name', type: 'to' }, { email: 'gone@example.com' }],
  headers: { 'Reply-To': 'replies@example.com' },
  track_opens: true,
  tags: ['password-resets'],
  metadata: { website: 'www.example.com' },
};

const send = operation({
  path: '/messages/send',
  access: 'settings',
  summary: 'Sends a message.',
  notes: NOTES,
  large: true,
  params: sendParams,
  returns: z.array(sentRecord),
  errors: ['Unknown_Subaccount', 'ServiceUnavailable'],
  example: { message: MESSAGE },
  handle: (given, call) => sendDraft(given, null, call),
});

const sendTemplate = operation({
  path: '/messages/send-template',
  access: 'settings',
  summary: 'Sends a message from a template.',
  notes:
    'Uses the published content of the template. template_content goes into the elements marked by mc:edit; content ' +
    'for an element that cannot have any, such as <img>, is ignored. Fields of the message take precedence over ' +
    'those of the template, except for its HTML. ' +
    `Merge tags are then replaced for each recipient, also in template_content. ${NOTES}`,
  large: true,
  anyText: ['template_name'],
  params: {
    template_name: templateName,
    template_content: regionContents.describe('name of each region and the content to put there'),
    ...sendParams,
  },
  returns: z.array(sentRecord),
  errors: ['Unknown_Template', 'Invalid_Template', 'Unknown_Subaccount', 'ServiceUnavailable'],
  example: {
    template_name: 'Example Template',
    template_content: [{ name: 'editable', content: 'Hello *|NAME|*' }],
    message: {
      to: [{ email: 'recipient.email@example.com' }],
      global_merge_vars: [{ name: 'name', content: 'you' }],
    },
  },
  async handle({ template_name: name, template_content: regions, ...given }, call) {
    const { slug, published } = await findTemplate(name, call);
    if (!published) throw call.refuse('Invalid_Template', `The template "${name}" has never been published`);
    const filled = await render({
      code: published.code ?? '',
      contents: new Map(regions.map((region) => [region.name, region.content])),
      vars: undefined,
      now: call.now(),
    });
    if (!('html' in filled))
      throw call.invalid(
        'template_content',
        `The template with its content would be longer than ${MAX_RENDERED} characters`,
      );
    return sendDraft(given, { slug, content: { ...published, code: filled.html } }, call);
  },
});

export const messagesSend = [send, sendTemplate];

interface FilledTemplate {
  readonly slug: string;
  readonly content: TemplateContent;
}

/** The options of a message. Fields of the message take precedence over those of its template. */
function toOutgoing(
  message: MessageParam,
  { pool, template }: { readonly pool: string | undefined; readonly template: FilledTemplate | null },
  call: Call<never>,
): Outgoing {
  const sender = message.from_email?.text ?? template?.content.fromEmail ?? undefined;
  if (sender === undefined) throw call.invalid('message', '.from_email: Please enter a value');
  const mergeLanguage = message.merge_language;
  const rcptVars = message.merge_vars?.map(
    ({ rcpt, vars = [] }) => [keyOf(rcpt), toMergeVars(vars, mergeLanguage)] as const,
  );
  return {
    sender: sender.toLowerCase(),
    fromName: orNull(message.from_name) ?? template?.content.fromName ?? null,
    subject: oneLine(message.subject ?? template?.content.subject ?? ''),
    tags: [...new Set(message.tags?.map((tag) => tag.trim()))].filter((tag) => tag !== ''),
    template: template?.slug ?? null,
    subaccount: orNull(message.subaccount),
    metadata: toMetadata(message.metadata),
    apiKey: call.apiKey,
    trackOpens: message.track_opens ?? call.settings.tracking.opens,
    trackClicks: clicksOf(message.track_clicks, call.settings.tracking.clicks),
    globalVars: wantsMerge(message) ? toMergeVars(message.global_merge_vars ?? [], mergeLanguage) : null,
    ...(mergeLanguage && { mergeLanguage }),
    rcptVars: { ...Object.fromEntries(rcptVars ?? []), ...varsOfCopy(message) },
    rcptMetadata: Object.fromEntries(
      message.recipient_metadata?.map(({ rcpt, values }) => [keyOf(rcpt), toMetadata(values)]) ?? [],
    ),
    preserveRecipients: message.preserve_recipients ?? false,
    autoText: message.auto_text ?? true,
    signingDomain: message.signing_domain ?? null,
    pool: orNull(pool),
    form: 'draft',
    ...extrasOf(message),
    ...conversationOfDraft(toHeaders(message.headers), sender),
  };
}

function extrasOf(message: MessageParam): Pick<Outgoing, 'extras'> {
  return toExtras({
    inlineCss: message.inline_css,
    autoHtml: message.auto_html,
    stripQuery: message.url_strip_qs,
    viewContent: message.view_content_link,
    trackingDomain: message.tracking_domain,
    returnPathDomain: message.return_path_domain,
    analyticsDomains: message.google_analytics_domains,
    analyticsCampaign: message.google_analytics_campaign,
  });
}

/** The content. A message without any gets an empty text, as from a mail client. */
async function toDraft(message: MessageParam, template: FilledTemplate | null, call: Call<never>): Promise<Draft> {
  const html = orNull(template?.content.code) ?? orNull(message.html);
  const text = orNull(message.text) ?? orNull(template?.content.text);
  return {
    html,
    text: html === null ? (text ?? '') : text,
    to: [
      ...message.to.map(({ email, name, type = 'to' as const }) => ({ email: email.trim(), name: orNull(name), type })),
      ...copyOf(message),
    ],
    headers: [...toHeaders(message.headers), ...(message.important === true ? IMPORTANT : [])],
    attachments: await toFiles('attachments', message.attachments, 'application/octet-stream', call),
    images: await toFiles('images', message.images, 'image/png', call),
  };
}

const IMPORTANT = [
  ['X-Priority', '1 (Highest)'],
  ['X-MSMail-Priority', 'High'],
  ['Importance', 'High'],
] as const;

/** The recipient in bcc_address, who gets a hidden copy. */
function copyOf({ bcc_address: copy }: MessageParam): Draft['to'] {
  return copy === undefined || copy.trim() === '' ? [] : [{ email: copy.trim(), name: null, type: 'bcc' }];
}

/** The copy of a message to a single recipient uses the merge variables of that recipient. */
function varsOfCopy({
  bcc_address: copy = '',
  merge_vars: vars = [],
  merge_language: language,
  to: [only, ...others],
}: MessageParam): Outgoing['rcptVars'] {
  const own =
    others.length === 0 && only && copy.trim() !== ''
      ? vars.find(({ rcpt }) => keyOf(rcpt) === keyOf(only.email))
      : undefined;
  return own ? { [keyOf(copy)]: toMergeVars(own.vars ?? [], language) } : {};
}

/** Variables imply merging, regardless of `merge` (documented). */
function wantsMerge({ merge = false, global_merge_vars: global = [], merge_vars: own = [] }: MessageParam): boolean {
  return merge || global.length > 0 || own.length > 0;
}

function clicksOf(wanted: boolean | undefined, otherwise: ClickTracking): ClickTracking {
  if (wanted === undefined) return otherwise;
  return wanted ? 'all' : 'none';
}

/**
 * Converts values to text, except for handlebars, where conditions may test their type: in mailchimp, a list becomes
 * its values and a struct an empty text.
 */
function toMergeVars(
  vars: NonNullable<MessageParam['global_merge_vars']>,
  language: MergeLanguage | undefined,
): readonly MergeVar[] {
  return vars.map(({ name, content = '' }) => ({
    name,
    content: language === 'handlebars' ? content : textOfValue(content),
  }));
}

/** Checks that the texts of a message are valid in its merge language. Throws a ValidationError with the fault. */
async function checkTemplates(
  { mergeLanguage, globalVars, rcptVars, subject, fromName }: Outgoing,
  { html, text }: Draft,
  call: Call<never>,
): Promise<void> {
  if (mergeLanguage === undefined || (globalVars === null && Object.keys(rcptVars).length === 0)) return;
  const fault = await runInSlices(
    findingFault(mergeLanguage, [
      ['html', html],
      ['text', text],
      ['subject', subject],
      ['from_name', fromName],
    ]),
  );
  if (fault !== undefined) throw call.invalid('message', `.${fault}`);
}

function toMetadata(values: MessageParam['metadata']): Metadata {
  return Object.fromEntries(Object.entries(values ?? {}));
}

function toHeaders(headers: MessageParam['headers']): Draft['headers'] {
  return Object.entries(headers ?? {}).flatMap(([name, value]) =>
    [value].flat().map((one) => [name, oneLine(String(one))] as const),
  );
}

async function toFiles(
  parameter: 'attachments' | 'images',
  files: MessageParam['attachments'] = [],
  otherwise: string,
  call: Call<never>,
): Promise<DraftFile[]> {
  const made: DraftFile[] = [];
  for (const [at, { name = '', type, content }] of files.entries()) {
    const base64 = await runInSlices(readingBase64(content));
    if (base64 === undefined)
      throw call.invalid('message', `.${parameter}[${at}].content: Please enter the content in base64`);
    made.push({ name, type: orNull(type) ?? otherwise, content: base64 });
  }
  return made;
}

/** Characters between two steps. */
const SLICE = 65_536;

/**
 * Base64 in the standard alphabet, without line breaks; undefined if invalid. In slices, because megabytes of space
 * take seconds.
 */
function* readingBase64(text: string): SlicedWork<string | undefined> {
  const parts: string[] = [];
  let padding = '';
  for (let at = 0; at < text.length; at += SLICE) {
    const given = text.slice(at, at + SLICE);
    if (/[^A-Za-z0-9+/=\t\n\v\f\r ]/.test(given)) return undefined;
    const slice = withoutSpace(given);
    const end = slice.indexOf('=');
    const digits = end < 0 ? slice : slice.slice(0, end);
    if (padding !== '' && digits !== '') return undefined;
    padding += slice.slice(digits.length);
    if (padding !== '' && !/^={1,2}$/.test(padding)) return undefined;
    parts.push(slice);
    yield;
  }
  return parts.join('');
}

function withoutSpace(base64: string): string {
  const bytes = Buffer.from(base64, 'latin1');
  let length = 0;
  for (const byte of bytes) if (byte > 0x20) bytes[length++] = byte;
  return length === bytes.length ? base64 : bytes.toString('latin1', 0, length);
}

/** The key by which merge variables and metadata find their recipient. */
export function keyOf(email: string): string {
  return readRecipient(email)?.key ?? email.trim().toLowerCase();
}

function oneLine(text: string): string {
  return text.replace(/[\r\n]+[ \t]*/g, ' ');
}

/** Clients send an empty text for a value that is not set. */
function orNull(value: string | null | undefined): string | null {
  return value === undefined || value === null || value === '' ? null : value;
}
