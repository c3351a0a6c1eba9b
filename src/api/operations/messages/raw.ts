import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { optional, PLEASE_ENTER } from '../../../base/schema.ts';
import { parseAddress } from '../../../mail/addresses/address.ts';
import { secondaryAuthorsOf, soleAuthorOf } from '../../../mail/addresses/author.ts';
import { parseMcHeaders, toOutgoingOptions } from '../../../mail/mc-headers.ts';
import {
  bytesOfContent,
  type FilePart,
  isPicture,
  type ParsedMessage,
  parseMessage,
  wholeText,
} from '../../../mail/message.ts';
import { createNames, toFileName } from '../../../mail/mime/filename.ts';
import { isHeadless } from '../../../mail/mime/header-section.ts';
import { decodeWords, firstValue, type HeaderField, parseHeaders, toTitleCase } from '../../../mail/mime/headers.ts';
import { scanStructure } from '../../../mail/mime/structure.ts';
import { headerLimitBreach, type Outgoing, toExtras } from '../../../mail/outgoing.ts';
import { toConversation } from '../../../mail/replies/sent-names.ts';
import { type Call, operation } from '../../operation.ts';
import { headerRecipients, toWireBytes } from '../../requests/raw-document.ts';
import { emailAddress, listOf, MAX_RECIPIENTS, record, str, strOrNull } from '../fields.ts';
import { domain, sendingParams, sentRecord } from './params.ts';
import { submit } from './send.ts';

// Records of the parts of a message.

const file = { name: z.string(), type: z.string(), content: z.string() };

export const attachmentRecord = z
  .object({ ...file, binary: z.boolean() })
  .describe('name, type and content; `binary`: the content is base64, otherwise text');
const imageRecord = z.object(file).describe('an image of the HTML: name (its Content-ID), type, content in base64');
export const headersRecord = z
  .record(z.string(), z.union([z.string(), z.array(z.string())]))
  .describe('the header; a field that occurs several times is an array');

const parsedRecord = record('parsed message', {
  subject: str('the subject'),
  from_email: strOrNull('address of the author'),
  from_name: strOrNull('name of the author'),
  to: listOf(z.object({ email: str('the address'), name: strOrNull('the display name') }), 'the recipients in To'),
  headers: headersRecord,
  text: strOrNull('the text part'),
  html: strOrNull('the HTML part'),
  attachments: z.array(attachmentRecord),
  images: z.array(imageRecord),
});

export function toParsedRecord(parsed: ParsedMessage): z.input<typeof parsedRecord> {
  const names = createNames();
  const images = parsed.files.filter(isPicture);
  return {
    subject: parsed.subject,
    from_email: parsed.from?.address ?? null,
    from_name: parsed.from?.name ?? null,
    to: parsed.to.map(({ address, name }) => ({ email: address, name })),
    headers: toHeaders(parsed.fields),
    text: parsed.text === undefined ? null : wholeText(parsed.text),
    html: parsed.html === undefined ? null : wholeText(parsed.html),
    attachments: parsed.files
      .filter((one) => !images.includes(one))
      .map((one) => ({ name: names.take(toFileName(one.name), one.type), type: one.type, ...contentOf(one) })),
    images: images.map((one) => ({
      name: one.contentId ?? toFileName(one.name),
      type: one.type,
      content: bytesOfContent(one.content).toString('base64'),
    })),
  };
}

/** Values by field name in title case; without a prototype, so that a field can have any name. */
function toHeaders(fields: readonly HeaderField[]): Record<string, string | string[]> {
  const found: Record<string, string | string[]> = Object.create(null);
  for (const { name, value } of fields) {
    const title = toTitleCase(name);
    const known = found[title];
    if (known === undefined) found[title] = value;
    else if (typeof known === 'string') found[title] = [known, value];
    else known.push(value);
  }
  return found;
}

function contentOf({ content, type }: FilePart): { binary: boolean; content: string } {
  const bytes = bytesOfContent(content);
  if (type.startsWith('text/') && isUtf8(bytes)) return { binary: false, content: bytes.toString('utf8') };
  return { binary: true, content: bytes.toString('base64') };
}

const RAW =
  'From: Example Sender <news@example.com>\r\nTo: recipient.email@example.com\r\n' +
  'Subject: example subject\r\n\r\nExample text content';

/** Parsing shares the process with SMTP; larger documents would hold it up. */
const MAX_PARSED_BYTES = 4 * 1024 * 1024;

const rawMessage = z.string().min(1, PLEASE_ENTER).describe('the full MIME document');

const LINE_END = Buffer.from('\r\n');

/** Reads the header of a document: author, subject and X-MC-* options. */
function readHead(document: Buffer, call: Call<never>) {
  const end = document.subarray(0, 2).equals(LINE_END) ? 0 : document.indexOf('\r\n\r\n');
  const block = end < 0 ? Buffer.concat([document, LINE_END]) : document.subarray(0, end + 2);
  const breach = headerLimitBreach(block);
  if (breach !== undefined) throw call.invalid('raw_message', `The header of the message cannot be used: ${breach}`);
  const header = isHeadless(block) ? Buffer.alloc(0) : block;
  const author = soleAuthorOf(header);
  if ('unclear' in author && !author.missing)
    throw call.invalid(
      'raw_message',
      `The message ${author.unclear}, so it has no sender that all mail programs agree on: please give one From ` +
        'header with one address',
    );
  const fields = parseHeaders(header);
  return {
    /** Undefined: it has no From. */
    from: 'unclear' in author ? undefined : author,
    shownBeside: secondaryAuthorsOf(fields),
    subject: decodeWords(firstValue(fields, 'subject') ?? ''),
    options: parseMcHeaders(fields),
    fields,
  };
}

const rawParams = {
  raw_message: rawMessage,
  from_email: optional(emailAddress).describe('the sender; that of the From header if omitted'),
  from_name: optional(z.string().max(998)).describe('the name of the sender'),
  to: optional(
    z.array(z.string().max(1000)).min(1, 'Please enter at least one recipient, or leave it out').max(MAX_RECIPIENTS),
  ).describe('recipients, at least one; those of the To, Cc and Bcc headers if omitted'),
  ...sendingParams,
  return_path_domain: domain.describe('domain that bounces are returned to, as in the message of /messages/send'),
};

/** The options of a document; those of the call take precedence. */
function toOutgoing(
  { from, subject, options, fields }: ReturnType<typeof readHead>,
  given: z.output<z.ZodObject<typeof rawParams>>,
  call: Call<never>,
): Outgoing {
  const sender = given.from_email?.text ?? from?.address ?? '';
  const address = parseAddress(sender);
  if (!address || address.domain.startsWith('['))
    throw call.invalid(
      'raw_message',
      'The message has no sender: please give one From header with one address, or from_email',
    );
  if (options.template)
    throw call.invalid('raw_message', 'X-MC-Template is not supported here: please use /messages/send-template');
  return {
    ...toOutgoingOptions(options, call.settings.tracking),
    sender: sender.toLowerCase(),
    fromName: given.from_name || (from?.name ?? null),
    subject,
    template: null,
    apiKey: call.apiKey,
    autoText: options.autoText ?? false,
    ...(given.ip_pool && { pool: given.ip_pool }),
    form: 'mime',
    ...toExtras({ ...options.extras, returnPathDomain: given.return_path_domain ?? options.extras.returnPathDomain }),
    ...toConversation(fields, sender),
  };
}

const sendRaw = operation({
  path: '/messages/send-raw',
  access: 'settings',
  summary: 'Sends a raw MIME document, as if it had been submitted by SMTP.',
  notes:
    'The X-MC-* headers of the document are applied and removed, except X-MC-Template, which is rejected. Bcc is ' +
    'removed. Parameters take precedence over headers. Returns the same as /messages/send.',
  large: true,
  params: rawParams,
  returns: z.array(sentRecord),
  errors: ['Unknown_Subaccount', 'ServiceUnavailable'],
  example: { raw_message: RAW, to: ['recipient.email@example.com'] },
  async handle(given, call) {
    const bytes = await toWireBytes(given.raw_message);
    if (bytes.length > call.settings.maxMessageBytes)
      throw call.invalid('raw_message', `The message is larger than ${call.settings.maxMessageBytes} bytes`);
    const head = readHead(bytes, call);
    const outgoing = toOutgoing(head, given, call);
    const named = given.to?.map((address) => address.trim()) ?? headerRecipients(bytes, MAX_RECIPIENTS);
    if (named.length === 0) throw call.invalid('to', 'The message has no recipient');
    const copy = head.options.bcc === null ? [] : [head.options.bcc];
    const sent = await submit(
      {
        outgoing,
        // Its own From must be allowed even if `from_email` replaces it.
        otherAuthors: [...(head.from ? [head.from.address, ...head.from.hidden] : []), ...head.shownBeside],
        bytes,
        recipients: [...named, ...copy],
        sendAt: given.send_at ?? head.options.sendAt,
        client: null,
      },
      call,
    );
    const shown = new Set(named);
    return sent.filter(({ email }) => shown.has(email));
  },
});

const parse = operation({
  path: '/messages/parse',
  access: 'settings',
  summary: 'Parses a raw MIME document into its parts.',
  notes: `The document may have up to ${MAX_PARSED_BYTES / 1024 / 1024} MiB.`,
  large: true,
  params: { raw_message: rawMessage },
  returns: parsedRecord,
  example: { raw_message: RAW },
  async handle({ raw_message }, call) {
    const bytes = await toWireBytes(raw_message);
    if (bytes.length > MAX_PARSED_BYTES)
      throw call.invalid('raw_message', `The message is larger than ${MAX_PARSED_BYTES} bytes`);
    const scan = scanStructure(bytes);
    if (scan.breach !== undefined) throw call.invalid('raw_message', `The message cannot be parsed: ${scan.breach}`);
    return toParsedRecord(parseMessage(bytes, scan.root));
  },
});

export const messagesRaw = [sendRaw, parse];
