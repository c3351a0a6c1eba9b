import { isUtf8 } from 'node:buffer';
import { asUtf8 } from '../../mail/as-utf8.ts';
import { type Author, authorOf, authorOfMessage } from '../../mail/author.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { createNames, toFileName } from '../../mail/filename.ts';
import { type HeaderField, parseHeaders, toTitleCase } from '../../mail/headers.ts';
import { withHeader } from '../../mail/headless.ts';
import type { FilePart, Parsed } from '../../mail/parsed.ts';
import type { Part } from '../../mail/structure.ts';
import type { Message } from '../../spool/types.ts';
import { contentPieces, json, jsonOf, jsonText, type Piece, rawBase64, rawText } from './pieces.ts';

/** Nothing here scores spam. Consumers compare the score with a threshold of theirs, and index both keys without asking. */
const NOT_SCORED = '{"score":0,"matched_rules":[]}';

/** What the event of one delivery is made of. */
export interface Inbound {
  readonly message: Message;
  /** The envelope recipient. */
  readonly recipient: string;
  /** The raw bytes, without our trace. */
  readonly raw: Buffer;
  readonly verdicts: Verdicts;
  /** The parts of `raw` behind the header that it may lack (mail/headless.ts); undefined when nothing may parse it. */
  readonly root: Part | undefined;
  /** What parsing found, or why nothing was parsed. */
  readonly content: { readonly parsed: Parsed } | { readonly parseError: string };
}

/**
 * The inbound event as JSON text, piece by piece: fields, types and their order as consumers of the form know them.
 * Every event has every key but `text`, `text_flowed` and `html`: consumers ask by their presence which bodies a message has
 * (multi_mail makes an empty HTML part of an empty `html`), and index everything else without asking.
 */
export function* toEventPieces(inbound: Inbound): Iterable<Piece> {
  const { message, verdicts, content, raw, root } = inbound;
  yield `[{"event":"inbound","ts":${Math.floor(message.receivedAt / 1000)},"msg":{"raw_msg":"`;
  const utf8 = isUtf8(raw);
  const whole = withHeader(raw);
  yield* rawText(message.trace, utf8 ? [whole] : asUtf8(whole, root));
  yield '"';
  if (!utf8) {
    yield ',"raw_msg_base64":"';
    yield* rawBase64(message.trace, whole);
    yield '"';
  }
  if ('parsed' in content) yield* parsedPieces(inbound, content.parsed);
  else yield* unparsedPieces(inbound);
  const { dkim, spf, dmarc, arc } = verdicts;
  yield `,"spam_report":${NOT_SCORED}`;
  yield `,${json({ dkim, spf, dmarc, arc }).slice(1, -1)}`;
  yield `,"email":${json(inbound.recipient)},"tags":[],"sender":null,"template":null`;
  if ('parseError' in content) yield `,"parse_error":${json(content.parseError)}`;
  yield '}}]';
}

function* parsedPieces({ message }: Inbound, parsed: Parsed): Iterable<Piece> {
  yield `,"headers":${headersJson(traceFields(message), parsed.fields)}`;
  if (parsed.text !== undefined) {
    yield ',"text":';
    yield* jsonText(parsed.text);
    yield `,"text_flowed":${parsed.textFlowed}`;
  }
  if (parsed.html !== undefined) {
    yield ',"html":';
    yield* jsonText(parsed.html);
  }
  yield* attachmentPieces(parsed.files.filter((file) => !isImage(file)));
  yield* imagePieces(parsed.files.filter(isImage));
  yield authorJson(authorOf(parsed.fields, message.envelope.mailFrom));
  yield `,"to":${mailboxesJson(parsed.to)}`;
  yield `,"cc":${mailboxesJson(parsed.cc ?? [])}`;
  yield `,"subject":${json(parsed.subject)}`;
}

/** What is known without a parser: our own trace, and the author, because the DMARC verdict is about him. */
function* unparsedPieces({ message, raw }: Inbound): Iterable<Piece> {
  yield `,"headers":${headersJson(traceFields(message), [])}`;
  yield ',"attachments":{},"images":{}';
  yield `${authorJson(authorOfMessage(raw, message.envelope.mailFrom))},"to":[],"cc":[],"subject":""`;
}

/** The author that DMARC judged: both ask mail/author.ts, about the same bytes. */
function authorJson({ mailbox }: Author): string {
  return `,"from_email":${json(mailbox?.address ?? '')},"from_name":${json(mailbox?.name ?? null)}`;
}

function traceFields(message: Message): HeaderField[] {
  return parseHeaders(Buffer.from(message.trace, 'utf8'));
}

/** Written by hand, because an object would sort names of digits first and lose `__proto__`. */
function headersJson(...blocks: readonly (readonly HeaderField[])[]): string {
  // By name the JSON of its one value, or of all of them without the brackets.
  const byName = new Map<string, string>();
  const repeated = new Set<string>();
  for (const fields of blocks) {
    for (const { name, value } of fields) {
      const title = toTitleCase(name);
      const before = byName.get(title);
      byName.set(title, before === undefined ? jsonOf(value) : `${before},${jsonOf(value)}`);
      if (before !== undefined) repeated.add(title);
    }
  }
  if (byName.size === 0) return '[]'; // as PHP writes an empty map, and as consumers have always seen it
  let members = '';
  for (const [name, values] of byName) {
    members += `${members === '' ? '{' : ','}${jsonOf(name)}:${repeated.has(name) ? `[${values}]` : values}`;
  }
  return `${members}}`;
}

function mailboxesJson(mailboxes: Parsed['to']): string {
  return `[${mailboxes.map(({ address, name }) => `[${jsonOf(address)},${name === null ? 'null' : jsonOf(name)}]`).join()}]`;
}

/** An image that belongs into the text, not beside it. */
function isImage({ type, disposition, contentId }: FilePart): boolean {
  return type.startsWith('image/') && disposition !== 'attachment' && (contentId !== null || disposition === 'inline');
}

function* attachmentPieces(files: readonly FilePart[]): Iterable<Piece> {
  yield ',"attachments":{';
  const names = createNames();
  let separator = '';
  for (const file of files) {
    const name = json(names.take(toFileName(file.name), file.type));
    const content = contentPieces(file.content, file.type.startsWith('text/'));
    yield `${separator}${name}:{"name":${name},"type":${json(file.type)},"content":"`;
    yield* content.pieces;
    yield `","base64":${content.base64}}`;
    separator = ',';
  }
  yield '}';
}

/** Keyed by what `cid:` links in the HTML name, else by file name. */
function* imagePieces(files: readonly FilePart[]): Iterable<Piece> {
  yield ',"images":{';
  const names = createNames();
  let separator = '';
  for (const file of files) {
    const fileName = toFileName(file.name);
    const key = names.take(file.contentId ?? fileName, file.type);
    yield `${separator}${json(key)}:{"name":${json(fileName === '' ? key : fileName)},"type":${json(file.type)},"content":"`;
    yield* contentPieces(file.content, false).pieces;
    yield '"}';
    separator = ',';
  }
  yield '}';
}
