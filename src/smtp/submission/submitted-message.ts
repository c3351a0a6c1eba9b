import { runInSlices } from '../../base/concurrency.ts';
import { escapeHtml } from '../../base/html.ts';
import { secondaryAuthorsOf, soleAuthorOf } from '../../mail/addresses/author.ts';
import { MC_FIELD, type McOptions, parseMcHeaders } from '../../mail/mc-headers.ts';
import { slugOf } from '../../mail/merge/language.ts';
import { fillingRegions } from '../../mail/merge/regions.ts';
import {
  bytesOfContent,
  type FilePart,
  isPicture,
  type Mailbox,
  type ParsedMessage,
  parseMessage,
  subjectOf,
  wholeText,
} from '../../mail/message.ts';
import { isHeadless } from '../../mail/mime/header-section.ts';
import { type HeaderField, parseHeaders } from '../../mail/mime/headers.ts';
import { scanStructure } from '../../mail/mime/structure.ts';
import { type Draft, type DraftFile, headerLimitBreach } from '../../mail/outgoing.ts';
import { RenderedTooLong } from '../../mail/template-errors.ts';
import type { Store } from '../../store/store.ts';
import { REFUSALS, type Reply } from '../replies.ts';

/** A message prepared to fill a template. */
interface TemplateInput {
  /** Its text as HTML, to insert into the template. */
  readonly content: string;
  /** All but `html` and `text`, which come from the template. */
  readonly rest: Omit<Draft, 'html' | 'text'>;
}

/** Fields that are generated when a message is composed from its parts. */
const REGENERATED_FIELDS =
  /^(?:from|to|cc|bcc|subject|date|message-id|mime-version|content-.*|received|return-path|dkim-signature|x-mc-.*)$/i;

/** Prepares a message to fill a template; undefined if it exceeds a limit of the parser. */
export async function toTemplateInput(bytes: Buffer): Promise<TemplateInput | undefined> {
  const scan = scanStructure(bytes);
  if (scan.breach !== undefined) return undefined;
  const parsed = parseMessage(bytes, scan.root);
  const isImage = (file: FilePart) => file.contentId !== null && isPicture(file);
  return {
    content: parsed.html === undefined ? toHtml(wholeText(parsed.text ?? '')) : wholeText(parsed.html),
    rest: {
      to: [...parsed.to.map(addressed('to')), ...(parsed.cc ?? []).map(addressed('cc'))],
      headers: headersOf(parsed),
      attachments: parsed.files.filter((file) => !isImage(file)).map((file) => toFile(file, file.name)),
      images: parsed.files.filter(isImage).map((file) => toFile(file, file.contentId ?? '')),
    },
  };
}

function headersOf({ fields }: ParsedMessage): [string, string][] {
  return fields.filter(({ name }) => !REGENERATED_FIELDS.test(name)).map(({ name, value }) => [name, value]);
}

const addressed =
  (type: 'to' | 'cc') =>
  ({ address, name }: Mailbox) => ({ email: address, name, type });

function toFile({ type, content }: FilePart, name: string): DraftFile {
  return { name, type, content: bytesOfContent(content).toString('base64') };
}

/** Converts plain text to HTML that looks the same. */
function toHtml(text: string): string {
  return escapeHtml(text).replace(/\r?\n/g, '<br>\n');
}

/** A submitted message, with the options from its header. */
export interface SubmittedMessage {
  /** Lower case. */
  readonly sender: string;
  readonly fromName: string | null;
  /** As in `Submission`. */
  readonly otherAuthors: readonly string[];
  readonly subject: string;
  readonly fields: readonly HeaderField[];
  readonly options: McOptions;
  /** Without X-MC-*, Bcc and Return-Path fields. */
  readonly bytes: Buffer;
}

const END_OF_HEADER = '\r\n\r\n';
// Bcc names hidden recipients; Return-Path is added at final delivery (RFC 5321 section 4.4).
const NOT_SENT = /^(?:bcc|return-path)$/i;
/** The fields that replace X-MC-Important; mail programs read them. */
const IMPORTANT = 'X-Priority: 1\r\nX-MSMail-Priority: High\r\nImportance: High\r\n';

/** Parses the header of a message, and removes the fields that are not sent. */
export function parseSubmitted(
  bytes: Buffer,
): { readonly refused: Reply } | { readonly refused?: undefined; readonly document: SubmittedMessage } {
  const end = bytes.subarray(0, 2).equals(Buffer.from('\r\n')) ? 0 : bytes.indexOf(END_OF_HEADER) + 2;
  const headerEnd = end === 1 ? bytes.length : end; // no empty line: the whole message is header
  const block = bytes.subarray(0, headerEnd);
  if (headerLimitBreach(block) !== undefined) return { refused: REFUSALS.badHeader };
  const from = soleAuthorOf(isHeadless(bytes) ? Buffer.alloc(0) : block);
  if ('unclear' in from) return { refused: REFUSALS.badFrom };
  const fields = parseHeaders(block);
  const options = parseMcHeaders(fields);
  const header = Buffer.from(`${options.important ? IMPORTANT : ''}${strip(block.toString('latin1'))}`, 'latin1');
  const rest = headerEnd === bytes.length && end === 1 ? Buffer.from('\r\n') : bytes.subarray(headerEnd);
  return {
    document: {
      sender: from.address.toLowerCase(),
      fromName: from.name,
      otherAuthors: [...from.hidden, ...secondaryAuthorsOf(fields)],
      subject: subjectOf(fields),
      fields,
      options,
      bytes: Buffer.concat([header, rest]),
    },
  };
}

/** Removes the fields that are not sent from a header block, with their folded lines; keeps every other byte. */
function strip(block: string): string {
  return block.replace(/^([!-9;-~]+)[ \t]*:.*\r\n(?:[ \t].*\r\n)*/gm, (field, name: string) =>
    MC_FIELD.test(name) || NOT_SENT.test(name) ? '' : field,
  );
}

/** A template with its content; merge tags are replaced later, for each recipient. */
interface FilledTemplate {
  readonly slug: string;
  readonly html: string;
  readonly text: string | null;
  readonly subject: string | null;
}

/** unknown: the account has no such template, or never published it · too-long: the result would be too long. */
type FillResult =
  | { readonly filled: FilledTemplate }
  | { readonly filled?: undefined; readonly why: 'unknown' | 'too-long' };

/** Inserts HTML into a block of the published version of a template. */
export async function fillTemplate(
  store: Pick<Store, 'templates'>,
  account: string,
  { name, block }: { readonly name: string; readonly block: string },
  html: string,
): Promise<FillResult> {
  const slug = slugOf(name);
  const row = await store.templates.one({ account, slug });
  if (!row?.published || (row.name !== name && row.slug !== name)) return { why: 'unknown' };
  const { code, text, subject } = row.published;
  try {
    return {
      filled: { slug, html: await runInSlices(fillingRegions(code ?? '', new Map([[block, html]]))), text, subject },
    };
  } catch (error) {
    if (error instanceof RenderedTooLong) return { why: 'too-long' };
    throw error;
  }
}
