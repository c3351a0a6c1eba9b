import { isUtf8 } from 'node:buffer';
import { type Author, authorOf, authorOfMessage } from '../../mail/author.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import { createNames, toFileName } from '../../mail/filename.ts';
import { withHeader } from '../../mail/header-section.ts';
import { type HeaderField, parseHeaders, toTitleCase } from '../../mail/headers.ts';
import type { Content, FilePart, ParsedMessage, Text } from '../../mail/message.ts';
import { replyOf } from '../../mail/reply-text.ts';
import type { Part } from '../../mail/structure.ts';
import { senderAuthOf } from '../../mail/trust.ts';
import type { Message } from '../../queue/delivery.ts';
import { asUtf8 } from './as-utf8.ts';

/** Postern has no spam score. Consumers compare it with a threshold, and use both keys without checking for them. */
const NOT_SCORED = '{"score":0,"matched_rules":[]}';

/** The input of the event for one delivery. */
export interface Inbound {
  /** The id of the delivery. */
  readonly id: string;
  readonly message: Message;
  /** The envelope recipient. */
  readonly recipient: string;
  /** The raw bytes, without our trace header fields. */
  readonly raw: Buffer;
  readonly verdicts: Verdicts;
  /** The parts of `withHeader(raw)` (mail/header-section.ts); undefined if the message must not be parsed. */
  readonly root: Part | undefined;
  /** The parsed message, or why it was not parsed. */
  readonly content: { readonly parsed: ParsedMessage } | { readonly parseError: string };
}

/** The inbound events of one POST as JSON text, in pieces. */
export function* toEventPieces(events: readonly Inbound[]): Iterable<Piece> {
  let lead = '[';
  for (const event of events) {
    yield* eventPieces(event, lead);
    lead = ',';
  }
  yield ']';
}

/**
 * One event, with the fields, types and order that consumers of the format expect, and `_id`, which identifies the
 * event if it is sent again, alone or with others.
 * Every key is always present except `text`, `text_flowed` and `html`: their presence tells consumers which bodies a
 * message has (multi_mail makes an empty HTML part of an empty `html`). They use all others without checking for them.
 */
export function* eventPieces(inbound: Inbound, lead = ''): Iterable<Piece> {
  const { id, message, verdicts, content, raw, root } = inbound;
  yield `${lead}{"event":"inbound","ts":${Math.floor(message.receivedAt / 1000)},"_id":${json(id)},"msg":{"raw_msg":"`;
  const utf8 = isUtf8(raw);
  const whole = withHeader(raw);
  yield* rawText(message.trace, utf8 ? [whole] : asUtf8(whole, root));
  yield '"';
  if (!utf8) {
    yield ',"raw_msg_base64":"';
    yield* rawBase64(message.trace, whole);
    yield '"';
  }
  // The author that DMARC checked: both use mail/author.ts on the same bytes.
  const { mailFrom } = message.envelope;
  const author = 'parsed' in content ? authorOf(content.parsed.fields, mailFrom) : authorOfMessage(raw, mailFrom);
  if ('parsed' in content) yield* parsedPieces(inbound, content.parsed, author);
  else yield* unparsedPieces(inbound, author);
  const { dkim, spf, dmarc, arc } = verdicts;
  yield `,"spam_report":${NOT_SCORED}`;
  yield `,${json({ dkim, spf, dmarc, arc }).slice(1, -1)}`;
  yield `,"email":${json(inbound.recipient)},"tags":[],"sender":null,"template":null`;
  if ('parseError' in content) yield `,"parse_error":${json(content.parseError)}`;
  yield* trustPieces(inbound, author);
  yield* replyPieces(content);
  const { replyData, captures } = message.envelope;
  yield `,"reply_data":${json(replyData?.[inbound.recipient] ?? null)}`;
  yield `,"captures":${json(captures?.[inbound.recipient] ?? {})}`;
  yield '}}';
}

/** What Mandrill's form lacks: the envelope, and whether the author may be believed. New keys come last. */
function* trustPieces({ message, recipient, verdicts }: Inbound, author: Author): Iterable<Piece> {
  const { mailFrom: from, client } = message.envelope;
  const { address: ip, helo, tls } = client;
  yield `,"id":${json(message.id)},"envelope":${json({ from, to: recipient, helo, ip, tls })}`;
  yield `,"sender_auth":${json(senderAuthOf(verdicts, author))}`;
}

function* parsedPieces({ message }: Inbound, parsed: ParsedMessage, author: Author): Iterable<Piece> {
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
  yield authorJson(author);
  yield `,"to":${mailboxesJson(parsed.to)}`;
  yield `,"cc":${mailboxesJson(parsed.cc ?? [])}`;
  yield `,"subject":${json(parsed.subject)}`;
}

/** The fields available without a parser: our trace, and the author, because the DMARC verdict is about the author. */
function* unparsedPieces({ message }: Inbound, author: Author): Iterable<Piece> {
  yield `,"headers":${headersJson(traceFields(message), [])}`;
  yield ',"attachments":{},"images":{}';
  yield `${authorJson(author)},"to":[],"cc":[],"subject":""`;
}

/**
 * The text in two parts, beside the whole `text`. Both are null if nothing in `text` is quoted, since they would repeat
 * it: that makes half as much again of a form. They are bounded (mail/reply-text.ts); `reply_text_cut` is there if that
 * leaves something out.
 */
function* replyPieces(content: Inbound['content']): Iterable<Piece> {
  const { reply, quoted, cut } = 'parsed' in content ? replyOf(content.parsed) : NO_REPLY;
  const isFromHtml = 'parsed' in content && content.parsed.text === undefined;
  if (quoted === '' && (reply === '' || !isFromHtml)) return yield ',"reply_text":null,"quoted_text":null';
  yield ',"reply_text":"';
  yield inside(reply, false);
  yield '","quoted_text":"';
  yield inside(quoted, false);
  yield cut ? '","reply_text_cut":true' : '"';
}

const NO_REPLY = { reply: '', quoted: '', cut: false };

function authorJson({ mailbox }: Author): string {
  return `,"from_email":${json(mailbox?.address ?? '')},"from_name":${json(mailbox?.name ?? null)}`;
}

function traceFields(message: Message): HeaderField[] {
  return parseHeaders(Buffer.from(message.trace, 'utf8'));
}

/** Builds the JSON by hand, because an object would put numeric names first and lose `__proto__`. */
function headersJson(...blocks: readonly (readonly HeaderField[])[]): string {
  // For each name, the JSON of its values, without brackets.
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
  if (byName.size === 0) return '[]'; // as PHP encodes an empty map, and consumers expect
  let members = '';
  for (const [name, values] of byName) {
    members += `${members === '' ? '{' : ','}${jsonOf(name)}:${repeated.has(name) ? `[${values}]` : values}`;
  }
  return `${members}}`;
}

function mailboxesJson(mailboxes: ParsedMessage['to']): string {
  return `[${mailboxes.map(({ address, name }) => `[${jsonOf(address)},${name === null ? 'null' : jsonOf(name)}]`).join()}]`;
}

/** Whether a file is an image shown in the text, not an attachment. */
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

/** The images, keyed by the Content-ID that `cid:` links in the HTML use, else by file name. */
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

// Large enough to make the cost per piece negligible, small enough to have a dozen in memory.
const PIECE = 48 * 1024;
const LF = 0x0a;
const CR = 0x0d;

/** JSON text, or a part of it that is encoded when written. */
export type Piece = string | Unescaped | Lines;

/** The content of a JSON string, as text or UTF-8, escaped when written. With `toLf`, CRLF becomes LF. */
interface Unescaped {
  readonly text: string | Uint8Array;
  readonly toLf: boolean;
}

/** ASCII lines that need no escapes. Their line ends are removed when written. */
interface Lines {
  readonly lines: Uint8Array;
}

/** A value as JSON text. */
function json(value: unknown): string {
  return JSON.stringify(value);
}

// No character that needs an escape, and no surrogate.
const PLAIN = /^[^"\\\x00-\x1f\ud800-\udfff]*$/;

/** A short text as a JSON string. Nearly all need only the quotes, and the check takes half the time of `json`. */
function jsonOf(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** A text as a JSON string, in pieces. */
function* jsonText(text: Text): Iterable<Piece> {
  yield '"';
  if (typeof text === 'string') yield inside(text, false);
  else for (const piece of text()) yield inside(piece, false);
  yield '"';
}

/** An unpaired surrogate cannot be encoded in UTF-8, but can be escaped in JSON. */
function inside(text: string, toLf: boolean): Piece {
  return text.isWellFormed()
    ? { text, toLf }
    : JSON.stringify(toLf ? text.replaceAll('\r\n', '\n') : text).slice(1, -1);
}

/** Trace and message as the content of a JSON string, with LF line ends. No piece of `message` splits a character. */
function* rawText(trace: string, message: Iterable<Uint8Array>): Iterable<Piece> {
  yield inside(trace, true);
  for (const piece of message) for (const slice of utf8Slices(toBuffer(piece))) yield { text: slice, toLf: true };
}

/** Trace and message as base64, byte for byte. */
function rawBase64(trace: string, raw: Buffer): Iterable<string> {
  return base64Pieces([Buffer.from(trace, 'utf8'), raw]);
}

/** A file's content as the content of a JSON string: text if it may be text and is valid UTF-8, else base64. */
function contentPieces(
  content: Content,
  maybeText: boolean,
): { readonly base64: boolean; readonly pieces: Iterable<Piece> } {
  if (content.kind === 'base64' && !maybeText) return { base64: true, pieces: linePieces(content.lines) };
  const chunks =
    content.kind === 'bytes' ? content.chunks : [Buffer.from(toBuffer(content.lines).toString('latin1'), 'base64')];
  if (!maybeText) return { base64: true, pieces: base64Pieces(chunks) };
  const whole = chunks.length === 1 && chunks[0] !== undefined ? toBuffer(chunks[0]) : Buffer.concat(chunks);
  if (!isUtf8(whole)) return { base64: true, pieces: base64Pieces([whole]) };
  return { base64: false, pieces: textPieces(whole) };
}

/** Base64 of the concatenated chunks. */
function* base64Pieces(chunks: readonly Uint8Array[]): Iterable<string> {
  let rest: Uint8Array = Buffer.alloc(0);
  for (const chunk of chunks) {
    let from = 0;
    if (rest.length > 0) {
      from = Math.min(3 - rest.length, chunk.length);
      rest = Buffer.concat([rest, chunk.subarray(0, from)]);
      if (rest.length < 3) continue;
      yield toBuffer(rest).toString('base64');
    }
    const whole = chunk.length - ((chunk.length - from) % 3);
    for (; from < whole; from += PIECE)
      yield toBuffer(chunk.subarray(from, Math.min(from + PIECE, whole))).toString('base64');
    rest = chunk.subarray(whole);
  }
  if (rest.length > 0) yield toBuffer(rest).toString('base64');
}

function* linePieces(lines: Uint8Array): Iterable<Piece> {
  for (let at = 0; at < lines.length; at += PIECE) yield { lines: lines.subarray(at, at + PIECE) };
}

function* textPieces(bytes: Buffer): Iterable<Piece> {
  for (const text of utf8Slices(bytes)) yield { text, toLf: false };
}

/** Slices that split neither a character nor a CRLF. */
function* utf8Slices(bytes: Buffer): Iterable<Buffer> {
  let from = 0;
  while (from < bytes.length) {
    let to = Math.min(from + PIECE, bytes.length);
    if (to < bytes.length) {
      for (let back = 0; back < 3 && ((bytes[to] ?? 0) & 0xc0) === 0x80; back++) to -= 1;
      if (bytes[to] === LF && bytes[to - 1] === CR) to += 1;
    }
    yield bytes.subarray(from, to);
    from = to;
  }
}

function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
