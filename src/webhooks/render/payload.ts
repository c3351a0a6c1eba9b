import { isUtf8 } from 'node:buffer';
import type { Author } from '../../mail/addresses/author.ts';
import type { Verdicts } from '../../mail/addresses/envelope.ts';
import { isForged, type OwnFields, withoutForged } from '../../mail/authentication-results.ts';
import type { Automated } from '../../mail/automated.ts';
import type { MessageFacts } from '../../mail/facts/facts.ts';
import { type FilePart, isPicture, type ParsedMessage } from '../../mail/message.ts';
import { createNames, toFileName } from '../../mail/mime/filename.ts';
import { withHeader } from '../../mail/mime/header-section.ts';
import { type HeaderField, parseHeaders, toTitleCase } from '../../mail/mime/headers.ts';
import type { Part } from '../../mail/mime/structure.ts';
import { replyOf, type ShownReply } from '../../mail/replies/reply-text.ts';
import type { Scan } from '../../mail/scan.ts';
import type { SenderAuth } from '../../mail/sender-auth.ts';
import type { Message } from '../../queue/delivery.ts';
import { textWithoutForged } from './as-utf8.ts';
import { filePieces, inside, json, jsonOf, jsonText, linkMembers, type Piece, rawBase64, rawText } from './pieces.ts';

/**
 * Without a spam scanner. Consumers compare the score with a threshold, and use both keys without checking for them.
 */
const NOT_SCORED = '{"score":0,"matched_rules":[]}';

/** The input of the event for one delivery. */
export interface InboundEvent {
  /** The id of the delivery. */
  readonly id: string;
  readonly message: Message;
  /** The envelope recipient. */
  readonly recipient: string;
  /** The raw bytes, without our trace header fields. */
  readonly raw: Buffer;
  readonly verdicts: Verdicts;
  /** The author that DMARC checked: both use mail/addresses/author.ts on the same bytes. */
  readonly author: Author;
  readonly senderAuth: SenderAuth;
  readonly automated: Automated;
  /** Its conversation; null if it names none. */
  readonly thread: string | null;
  /** The record of the message that it answers; null: no known one. Undefined: the store was unavailable. */
  readonly answers: object | null | undefined;
  /** Our host name. */
  readonly hostname: string;
  /** The other hosts that receive the mail of our domains. */
  readonly mxHosts?: readonly string[] | undefined;
  /** The parts of `withHeader(raw)` (mail/mime/header-section.ts); undefined if the message must not be parsed. */
  readonly root: Part | undefined;
  /** The parsed message, or why it was not parsed. */
  readonly content: { readonly parsed: ParsedMessage } | { readonly parseError: string };
  /** Undefined: the route does not ask for them; null: the message was not parsed. */
  readonly facts?: MessageFacts | null | undefined;
}

/** The inbound events of one POST as JSON text, in pieces. */
export function* toEventPieces(events: readonly InboundEvent[], raw = true): Iterable<Piece> {
  let lead = '[';
  for (const event of events) {
    yield* eventPieces(event, lead, raw);
    lead = ',';
  }
  yield ']';
}

/**
 * One event, with the fields, types and order that consumers of the format expect, and `_id`, which identifies the
 * event if it is sent again, alone or with others.
 * Every key is always present except `scan` (there is none without a scanner), `answers` (if the store was away for too
 * long: null says that nothing is answered), `facts` (if the route asks for them) and `text`, `text_flowed` and `html`:
 * their presence tells consumers which bodies a message has (multi_mail makes an empty HTML part of an empty `html`).
 * They use all others without checking for them.
 */
export function* eventPieces(inbound: InboundEvent, lead = '', withRaw = true): Iterable<Piece> {
  const { id, message, verdicts, content } = inbound;
  yield `${lead}{"event":"inbound","ts":${Math.floor(message.receivedAt / 1000)},"_id":${json(id)},"msg":{`;
  if (withRaw) yield* rawPieces(inbound);
  if ('parsed' in content) yield* parsedPieces(inbound, content.parsed);
  else yield* unparsedPieces(inbound);
  const { dkim, spf, dmarc, arc } = verdicts;
  yield `,"spam_report":${spamReport(message.scan)}`;
  yield `,${json({ dkim, spf, dmarc, arc }).slice(1, -1)}`;
  yield `,"email":${json(inbound.recipient)},"tags":${json(tagsOf(inbound))},"sender":null,"template":null`;
  if ('parseError' in content) yield `,"parse_error":${json(content.parseError)}`;
  yield `,"id":${json(message.id)},"envelope":${json(envelopeOf(inbound))}`;
  yield `,"sender_auth":${json(inbound.senderAuth)}`;
  yield* replyPieces(content);
  const { replyData, captures } = message.envelope;
  yield `,"reply_data":${json(replyData?.[inbound.recipient] ?? null)}`;
  yield `,"captures":${json(captures?.[inbound.recipient] ?? {})}`;
  if (message.scan) yield `,"scan":${scanJson(message.scan)}`;
  yield additions(inbound);
  yield '}}';
}

/** Our additions to every format that holds the parsed message, by name, last. Undefined: this message has none. */
export const additionsOf = ({ automated, thread, answers, facts }: InboundEvent): [name: string, value: unknown][] =>
  Object.entries({ automated, thread, answers, facts }).filter(([, value]) => value !== undefined);

/** These additions as the last members of a JSON object. */
export const additions = (inbound: InboundEvent, nameOf = (name: string) => name): string =>
  additionsOf(inbound)
    .map(([name, value]) => `,${json(nameOf(name))}:${json(value)}`)
    .join('');

/** The tags set by routes. */
export const tagsOf = ({ message, recipient }: Pick<InboundEvent, 'message' | 'recipient'>): readonly string[] =>
  message.envelope.tags?.[recipient] ?? [];

/** The spam report in Mandrill's form. */
export function spamReport(scan: Scan | undefined): string {
  if (!scan || scan.score === null) return NOT_SCORED;
  return json({ score: scan.score, matched_rules: scan.rules });
}

export function scanJson({ spam, virus, name, by, reason }: Scan): string {
  return json({ spam, virus, name, by, reason });
}

/**
 * `raw_msg`, and `raw_msg_base64` if the message is not UTF-8. Here the message has no results of ours in front, so
 * consumers would take forged ones under our name for ours. Return-Path and X-Original-To stay: `envelope` and `email`
 * have the true values.
 */
function* rawPieces(inbound: InboundEvent): Iterable<Piece> {
  const { trace } = inbound.message;
  const { raw, root } = inbound;
  const whole = withHeader(raw);
  const own = ownFields(inbound, false);
  yield '"raw_msg":"';
  yield* rawText(trace, textWithoutForged(whole, root, own));
  yield '",';
  if (!isUtf8(raw)) {
    yield '"raw_msg_base64":"';
    yield* rawBase64(trace, [...withoutForged(whole, own)]);
    yield '",';
  }
}

/** The fields that only we may write in a form; `withTrace`: whether it has Return-Path and X-Original-To of ours. */
export function ownFields({ hostname, mxHosts = [] }: InboundEvent, withTrace: boolean): OwnFields {
  return { hosts: [hostname, ...mxHosts], withTrace };
}

/** Fields that scanners write. */
const SCANNERS_FIELD = /^x-(?:spam|spamd|virus|rspamd|clamav|amavis)(?:-|$)/i;

/**
 * The fields of the message without those that would pass for ours: those of a receiver and, if it was scanned, those
 * of a scanner. `X_Spam` counts as `X-Spam`, because some formats make keys of names.
 */
export function sendersFields(
  inbound: InboundEvent,
  { fields }: ParsedMessage,
  withTrace: boolean,
): readonly HeaderField[] {
  const own = ownFields(inbound, withTrace);
  const isScanned = inbound.message.scan !== undefined;
  return fields.filter(({ name, value }) => {
    const dashed = name.replaceAll('_', '-');
    return !isForged(dashed, value, own) && !(isScanned && SCANNERS_FIELD.test(dashed));
  });
}

/** The SMTP envelope of this delivery. */
export function envelopeOf({ message, recipient }: Pick<InboundEvent, 'message' | 'recipient'>) {
  const { mailFrom, client } = message.envelope;
  return { from: mailFrom, to: recipient, helo: client.helo, ip: client.address, tls: client.tls };
}

function* parsedPieces(inbound: InboundEvent, parsed: ParsedMessage): Iterable<Piece> {
  const { message, author } = inbound;
  yield `"headers":${headersJson(traceFields(message), sendersFields(inbound, parsed, false))}`;
  if (parsed.text !== undefined) {
    yield ',"text":';
    yield* jsonText(parsed.text);
    yield `,"text_flowed":${parsed.textFlowed}`;
  }
  if (parsed.html !== undefined) {
    yield ',"html":';
    yield* jsonText(parsed.html);
  }
  yield* attachmentPieces(parsed.files.filter((file) => !isPicture(file)));
  yield* imagePieces(parsed.files.filter(isPicture));
  yield authorJson(author);
  yield `,"to":${mailboxesJson(parsed.to)}`;
  yield `,"cc":${mailboxesJson(parsed.cc ?? [])}`;
  yield `,"subject":${json(parsed.subject)}`;
}

/** The fields available without a parser: our trace, and the author, because the DMARC verdict is about the author. */
function* unparsedPieces({ message, author }: InboundEvent): Iterable<Piece> {
  yield `"headers":${headersJson(traceFields(message), [])}`;
  yield ',"attachments":{},"images":{}';
  yield `${authorJson(author)},"to":[],"cc":[],"subject":""`;
}

/**
 * The text in two parts, besides the whole `text`. Both are null if nothing in `text` is quoted, because repeating it
 * would add half to the size of a form. They are bounded (mail/replies/reply-text.ts); `reply_text_cut` is present if
 * they are cut.
 */
function* replyPieces(content: InboundEvent['content']): Iterable<Piece> {
  const { reply, quoted, cut } = replyIn(content);
  const isFromHtml = 'parsed' in content && content.parsed.text === undefined;
  if (quoted === '' && (reply === '' || !isFromHtml)) return yield ',"reply_text":null,"quoted_text":null';
  yield ',"reply_text":"';
  yield inside(reply, false);
  yield '","quoted_text":"';
  yield inside(quoted, false);
  yield cut ? '","reply_text_cut":true' : '"';
}

const NO_REPLY: ShownReply = { reply: '', quoted: '', cut: false };

/** The text in two parts (mail/replies/reply-text.ts); both are empty if the message was not parsed. */
export function replyIn(content: InboundEvent['content']): ShownReply {
  return 'parsed' in content ? replyOf(content.parsed) : NO_REPLY;
}

function authorJson({ mailbox }: Author): string {
  return `,"from_email":${json(mailbox?.address ?? '')},"from_name":${json(mailbox?.name ?? null)}`;
}

export function traceFields(message: Message): HeaderField[] {
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
  const pairs = mailboxes.map(({ address, name }) => `[${jsonOf(address)},${name === null ? 'null' : jsonOf(name)}]`);
  return `[${pairs.join()}]`;
}

function* attachmentPieces(files: readonly FilePart[]): Iterable<Piece> {
  yield ',"attachments":{';
  const names = createNames();
  let separator = '';
  for (const file of files) {
    const name = json(names.take(toFileName(file.name), file.type));
    const content = filePieces(file, file.type.startsWith('text/'));
    yield `${separator}${name}:{"name":${name},"type":${json(file.type)},"content":"`;
    yield* content.pieces;
    yield `","base64":${content.base64}${linkMembers(file)}}`;
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
    const name = fileName === '' ? key : fileName;
    yield `${separator}${json(key)}:{"name":${json(name)},"type":${json(file.type)},"content":"`;
    yield* filePieces(file, false).pieces;
    yield `"${linkMembers(file)}}`;
    separator = ',';
  }
  yield '}';
}
