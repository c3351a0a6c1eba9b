import { isAscii } from 'node:buffer';
import type { MailComposerOptions } from 'nodemailer/lib/mail-composer';
import MailComposer from 'nodemailer/lib/mail-composer';
import { foldLines } from 'nodemailer/lib/mime-funcs';
import MimeNode from 'nodemailer/lib/mime-node';
import { pattern } from '../../base/pattern.ts';
import { parseAddress } from '../../mail/addresses/address.ts';
import { otherAddressesIn } from '../../mail/addresses/author.ts';
import { contentIds, withContentIds } from '../../mail/compose/content-ids.ts';
import { encodeQuotedPrintable } from '../../mail/compose/fields.ts';
import { toPlainText } from '../../mail/compose/plain-text.ts';
import { encodedValue } from '../../mail/compose/sendable.ts';
import { createNames, toFileName } from '../../mail/mime/filename.ts';
import { decodeWords } from '../../mail/mime/headers.ts';
import type { Draft, DraftFile } from '../../mail/outgoing.ts';
import { givenMessageId } from '../../mail/replies/sent-names.ts';
import type { ComposeJob } from '../types.ts';
import type { Personalization } from './compose.ts';
import { oneLine } from './merge-fields.ts';

type Headers = Draft['headers'];
type Recipients = Draft['to'];

const NAME = /^[!-9;-~]{1,76}$/;
/** Fields for construction, addressing and trace, which only we write. From, To and Subject are parameters. */
const OURS = pattern('i')`
  ^(?:from|to|cc|bcc|subject|date|message-id|mime-version|return-path|received(?:-spf)?|delivered-to|envelope-to
  |x-original-to|authentication-results|dkim-signature|domainkey-signature|x-google-dkim-signature|arc-.*|content-.*
  |resent-.*|x-mc-.*)$
`;
// RFC 5322 section 3.3, without obsolete forms.
const DATE = pattern()`
  ^(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), +)?\d{1,2} +
  (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{4} +\d{2}:\d{2}(?::\d{2})? +[+-]\d{4}$
`;
const MEDIA_TYPE = /^(?!multipart\/|message\/)[\w!#$&^.+-]+\/[\w!#$&^.+-]+(?:;[ -~]*)?$/i;

/** Composes a draft as a MIME message for one recipient. Throws `RenderedTooLong`. */
export function composeDraft(draft: Draft, job: ComposeJob, personal: Personalization): Promise<Buffer> {
  const { outgoing } = job;
  const html = htmlOf(draft, outgoing, personal);
  const imageNames = draft.images.map(({ name }) => name);
  const ids = contentIds(imageNames, (at) => `image${at + 1}.${job.id}@${job.settings.hostname}`);
  const files = [...draft.attachments.map(attachment(createNames())), ...draft.images.map(image(createNames(), ids))];
  const text = textOf(draft, html, outgoing.autoText, personal);
  const ownUnsubscribe = draft.headers.some(([name]) => name.toLowerCase() === 'list-unsubscribe');
  const kept = draft.headers.filter(
    ([name, value]) =>
      NAME.test(name) &&
      !OURS.test(name) &&
      value.trim() !== '' &&
      (ownUnsubscribe || name.toLowerCase() !== 'list-unsubscribe-post'),
  );
  const written = new Map(kept.map(([name]) => [name.toLowerCase(), name]));
  return buildMime(
    {
      ...addressing(draft.to, job),
      from: authorField(personal.fillLine(outgoing.fromName ?? ''), outgoing.sender),
      subject: personal.fillLine(outgoing.subject),
      messageId: givenMessageId(draft.headers) ?? personal.messageId,
      date: given(draft.headers, 'date', DATE) ?? new Date(job.at),
      headers: [...kept, ...(ownUnsubscribe ? [] : personal.listUnsubscribe)].map(([key, value]) => ({
        key,
        value: headerValue(key, oneLine(value)),
      })),
      // The composer would write `X-MyTag` as `X-Mytag`.
      normalizeHeaderKey: (name) => written.get(name.toLowerCase()) ?? name,
      ...bodies(
        text === null ? null : personal.trackText(text),
        html === null ? null : withContentIds(personal.trackHtml(html, true), imageNames, ids),
        files.length > 0,
      ),
      attachments: files,
    },
    job.id,
  );
}

/** Fields whose addresses, dates and ids the composer reads itself. */
const READ = /^(?:sender|reply-to|references|date)$/i;

/** A value for the composer, which would encode the addresses and ids of other fields too. */
function headerValue(name: string, value: string) {
  const encoded = READ.test(name) ? undefined : encodedValue(name, value);
  return encoded === undefined ? value : { prepared: true, foldLines: true, value: encoded };
}

/** If the text is the whole message, the composer must write it; otherwise we write it as a part, which is faster. */
function bodies(text: string | null, html: string | null, withFiles: boolean): Pick<MimeOptions, 'text' | 'html'> {
  const parts = withFiles || (text !== null && html !== null);
  return {
    ...(text !== null && { text: parts ? { raw: toTextPart('text/plain', text) } : text }),
    ...(html !== null && { html: parts ? { raw: toTextPart('text/html', html) } : html }),
  };
}

function htmlOf({ html, text }: Draft, { extras }: ComposeJob['outgoing'], personal: Personalization): string | null {
  if (html !== null) return toCrlf(personal.fill(html, 'text/html'));
  const filled = extras?.autoHtml === true ? personal.fill(text ?? '', 'text/plain') : '';
  return filled.trim() === '' ? null : toCrlf(personal.toHtml(filled));
}

function textOf(draft: Draft, html: string | null, autoText: boolean, personal: Personalization): string | null {
  if (draft.text !== null) return toCrlf(personal.fill(draft.text, 'text/plain'));
  return autoText && html !== null ? toCrlf(toPlainText(html)) : null;
}

function toCrlf(text: string): string {
  return text.replace(/\r\n?|\n/g, '\r\n');
}

function given(headers: Headers, name: string, form: RegExp): string | undefined {
  return headers.find(([written, value]) => written.toLowerCase() === name && form.test(value.trim()))?.[1].trim();
}

/** Each recipient sees only their own address, unless recipients are preserved; bcc recipients are never shown. */
function addressing(all: Recipients, { recipient, outgoing }: ComposeJob): Pick<MimeOptions, 'to' | 'cc'> {
  if (!outgoing.preserveRecipients) {
    const own = all.find(({ email }) => email.toLowerCase() === recipient.toLowerCase());
    return { to: [{ name: oneLine(own?.name ?? ''), address: recipient }] };
  }
  const to = mailboxes(all, 'to');
  const cc = mailboxes(all, 'cc');
  // RFC 5322 section 3.4: a group with no members.
  return { to: to.length + cc.length > 0 ? to : 'undisclosed-recipients:;', cc };
}

function mailboxes(all: Recipients, wanted: Recipients[number]['type']) {
  return all
    .filter(({ type }) => type === wanted)
    .map(({ email, name }) => ({ name: oneLine(name ?? ''), address: email }));
}

type Names = ReturnType<typeof createNames>;
type File = NonNullable<MimeOptions['attachments']>[number];

function attachment(names: Names): (file: DraftFile) => File {
  return (file) => {
    const contentType = mediaType(file);
    return {
      filename: names.take(toFileName(file.name), contentType.toLowerCase()),
      contentType,
      content: Buffer.from(file.content, 'base64'),
      contentDisposition: 'attachment',
    };
  };
}

function image(names: Names, ids: readonly (string | undefined)[]): (file: DraftFile, at: number) => File {
  const toFile = attachment(names);
  return (file, at) => {
    const cid = ids[at];
    return cid === undefined ? toFile(file) : { ...toFile(file), cid, contentDisposition: 'inline' };
  };
}

/** A message or multipart could not be encoded (RFC 2046 section 5.2.1), so it is attached as a plain file. */
function mediaType({ type }: DraftFile): string {
  return MEDIA_TYPE.test(type.trim()) ? type.trim() : 'application/octet-stream';
}

/** Parses a draft body; only our own code writes these. */
export function parseDraft(bytes: Buffer): Draft {
  return JSON.parse(bytes.toString());
}

type MimeOptions = Pick<
  MailComposerOptions,
  | 'from'
  | 'to'
  | 'cc'
  | 'subject'
  | 'text'
  | 'html'
  | 'attachments'
  | 'headers'
  | 'messageId'
  | 'date'
  | 'normalizeHeaderKey'
>;

/** Builds a part with its header for the composer's `raw`; the composer's own encoder takes three times as long. */
export function toTextPart(type: 'text/plain' | 'text/html', text: string): Buffer {
  return Buffer.concat([
    Buffer.from(`Content-Type: ${type}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n`),
    encodeQuotedPrintable(Buffer.from(text)),
  ]);
}

/** Builds a MIME message. Never reads files or URLs, whatever the options say. */
async function buildMime(options: MimeOptions, boundary: string): Promise<Buffer> {
  const node = new MailComposer({ ...options, disableFileAccess: true, disableUrlAccess: true }).compile();
  // From the message id, so that every attempt has the same bytes.
  node.baseBoundary = boundary;
  return node.build();
}

/** A header field with its CRLF: non-ASCII encoded (RFC 2047), folded. */
export function toField(name: string, value: string | { readonly name: string; readonly address: string }): string {
  const encoded = MimeNode.encodeHeaderValue(name, typeof value === 'string' ? value : { ...value });
  return `${foldLines(`${name}: ${encoded}`, 76)}\r\n`;
}

export function fromField(name: string, address: string): string {
  return toField('From', authorField(name, address));
}

/**
 * Name and address of From. A name that is encoded, or looks like it, must not contain another address: some mail
 * programs decode it before they look for addresses.
 */
function authorField(name: string, address: string): { readonly name: string; readonly address: string } {
  const decoded = decodeWords(name);
  const encoded = decoded !== name || !isAscii(Buffer.from(name));
  const hides = encoded && otherAddressesIn(decoded, parseAddress(address)?.domain ?? '').length > 0;
  return { name: hides ? decoded.replaceAll('@', ' at ') : name, address };
}
