import { inSlices } from '../../base/steps.ts';
import { toExtras } from '../../mail/extras.ts';
import { findingFault, type MergeLanguage } from '../../mail/merge/language.ts';
import { type MergeValue, toText } from '../../mail/merge/value.ts';
import type { ClickTracking, Draft, DraftFile, MergeVar, Metadata, Outgoing } from '../../mail/sending.ts';
import { readRecipient } from '../../outbound/recipients.ts';
import type { TemplateContent } from '../../store/templates.ts';
import type { Call } from '../operation.ts';
import type { MessageParam } from './messages-fields.ts';

/** A template whose regions are filled. */
export interface FilledTemplate {
  readonly slug: string;
  readonly content: TemplateContent;
}

/** What a call is about beside the message. */
export interface Sending {
  readonly pool: string | undefined;
  readonly template: FilledTemplate | null;
}

/** What is asked of a message, and the message itself. Fields of the message win over those of its template. */
export function toOutgoing(message: MessageParam, { pool, template }: Sending, call: Call<never>): Outgoing {
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

/** The body. A message without content is an empty text, as a mail program would send it. */
export function toDraft(message: MessageParam, template: FilledTemplate | null): Draft {
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
    attachments: (message.attachments ?? []).map((file) => toFile(file, 'application/octet-stream')),
    images: (message.images ?? []).map((file) => toFile(file, 'image/png')),
  };
}

const IMPORTANT = [
  ['X-Priority', '1 (Highest)'],
  ['X-MSMail-Priority', 'High'],
  ['Importance', 'High'],
] as const;

/** The recipient that gets a copy without the others knowing. */
function copyOf({ bcc_address: copy }: MessageParam): Draft['to'] {
  return copy === undefined || copy.trim() === '' ? [] : [{ email: copy.trim(), name: null, type: 'bcc' }];
}

/** A copy of a message to one person reads as that person's. */
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

/** Given variables are a wish to have tags replaced, whatever `merge` says (documented). */
function wantsMerge({ merge = false, global_merge_vars: global = [], merge_vars: own = [] }: MessageParam): boolean {
  return merge || global.length > 0 || own.length > 0;
}

function clicksOf(wanted: boolean | undefined, otherwise: ClickTracking): ClickTracking {
  if (wanted === undefined) return otherwise;
  return wanted ? 'all' : 'none';
}

type Variables = readonly { readonly name: string; readonly content?: MergeValue | undefined }[];

/** Texts, as they are shown, but where a condition may ask what they are: in mailchimp a list is its values, a struct is nothing. */
function toMergeVars(vars: Variables, language: MergeLanguage | undefined): readonly MergeVar[] {
  return vars.map(({ name, content = '' }) => ({
    name,
    content: language === 'handlebars' ? content : toText(content),
  }));
}

/** Looks whether the texts of a message are templates of its merge language. Throws a refusal that says what is wrong. */
export async function checkTemplates(
  { mergeLanguage, globalVars, rcptVars, subject, fromName }: Outgoing,
  { html, text }: Draft,
  call: Call<never>,
): Promise<void> {
  if (mergeLanguage === undefined || (globalVars === null && Object.keys(rcptVars).length === 0)) return;
  const fault = await inSlices(
    findingFault(mergeLanguage, [
      ['html', html],
      ['text', text],
      ['subject', subject],
      ['from_name', fromName],
    ]),
  );
  if (fault !== undefined) throw call.invalid('message', `.${fault}`);
}

type Map<T> = Readonly<Record<string, T>> | readonly never[];

function toMetadata(values: Map<string | number | boolean> | undefined): Metadata {
  return Object.fromEntries(Object.entries(values ?? {}));
}

function toHeaders(headers: MessageParam['headers']): Draft['headers'] {
  return Object.entries(headers ?? {}).flatMap(([name, value]) =>
    [value].flat().map((one) => [name, oneLine(String(one))] as const),
  );
}

function toFile(
  {
    name = '',
    type,
    content,
  }: { readonly name?: string | undefined; readonly type?: string | undefined; readonly content: string },
  otherwise: string,
): DraftFile {
  return { name, type: orNull(type) ?? otherwise, content: content.replace(/\s+/g, '') };
}

/** How merge variables and metadata find their recipient. */
export function keyOf(email: string): string {
  return readRecipient(email)?.key ?? email.trim().toLowerCase();
}

function oneLine(text: string): string {
  return text.replace(/[\r\n]+[ \t]*/g, ' ');
}

/** Clients send an empty text for what is not set. */
function orNull(value: string | null | undefined): string | null {
  return value === undefined || value === null || value === '' ? null : value;
}
