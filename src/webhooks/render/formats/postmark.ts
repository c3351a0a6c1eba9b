import { createHash } from 'node:crypto';
import { toMailDate } from '../../../mail/addresses/envelope.ts';
import type { Mailbox } from '../../../mail/message.ts';
import { createNames, toFileName } from '../../../mail/mime/filename.ts';
import type { HeaderField } from '../../../mail/mime/headers.ts';
import type { Scan } from '../../../mail/scan.ts';
import { additions, type InboundEvent, replyIn, tagsOf } from '../payload.ts';
import { filePieces, json, jsonText, type Piece, sizeOfContent } from '../pieces.ts';
import { rawInJson } from './json.ts';
import { fieldOf, type ParsedMail, toTexts } from './mail.ts';

/** Postmark's inbound webhook. Its MessageID is an id of the delivery, not of the header. */
export function* postmark(mail: ParsedMail): Iterable<Piece> {
  const { inbound, from } = mail;
  const { recipient, message } = inbound;
  const sender = from ?? { address: '', name: null };
  yield json({
    From: sender.address,
    FromName: sender.name ?? '',
    FromFull: full(sender),
    To: toTexts(mail.to),
    ToFull: mail.to.map(full),
    Cc: toTexts(mail.cc),
    CcFull: mail.cc.map(full),
    Bcc: toTexts(mail.bcc),
    BccFull: mail.bcc.map(full),
    OriginalRecipient: recipient,
    Subject: mail.subject,
    MessageID: uuidOf(inbound.id),
    MessageStream: 'inbound',
    ReplyTo: fieldOf(mail, 'reply-to'),
    MailboxHash: hashOf(recipient),
    Date: fieldOf(mail, 'date') || toMailDate(message.receivedAt),
  }).slice(0, -1);
  yield ',"TextBody":';
  yield* jsonText(mail.text ?? '');
  yield ',"HtmlBody":';
  yield* jsonText(mail.html ?? '');
  yield ',"StrippedTextReply":';
  yield* jsonText(replyIn(inbound.content).reply);
  yield `,"Tag":${json(tagsOf(inbound)[0] ?? '')},"Headers":${json(headersOf(mail))},"Attachments":[`;
  const names = createNames();
  let separator = '';
  for (const file of mail.files) {
    const Name = names.take(toFileName(file.name), file.type);
    yield `${separator}{"Name":${json(Name)},"Content":"`;
    yield* filePieces(file, false).pieces;
    yield `","ContentType":${json(file.type)},"ContentLength":${sizeOfContent(file.content)}`;
    yield `,"ContentID":${json(file.contentId ?? '')}`;
    yield typeof file.link === 'string' ? `,"ContentURL":${json(file.link)}}` : '}';
    separator = ',';
  }
  yield ']';
  if (mail.withRaw) {
    yield ',"RawEmail":"';
    yield* rawInJson(mail);
    yield '"';
  }
  yield `,"SenderAuth":${json(inbound.senderAuth)}${additions(inbound, capitalized)}}`;
}

/**
 * Fields that are keys of the post, which Postmark leaves out because consumers would find two authors; and fields that
 * a sender must not set.
 */
const LEFT_OUT = /^(?:from|to|cc|bcc|subject|date|reply-to|x-spam-.*|received-spf)$/i;

/** The header fields, first Return-Path, where consumers find MAIL FROM. */
function headersOf({ fields, inbound }: ParsedMail) {
  const own = fields.filter(({ name }) => !LEFT_OUT.test(name));
  return [...own, receivedSpf(inbound), ...spamFields(inbound.message.scan)].map(({ name, value }) => ({
    Name: name,
    Value: value,
  }));
}

/** Received-SPF, where consumers find SPF and MAIL FROM (RFC 7208 section 9.1). */
function receivedSpf({ message, verdicts: { spf }, hostname }: InboundEvent): HeaderField {
  const { mailFrom, client } = message.envelope;
  const facts = [
    ['receiver', hostname],
    ['client-ip', client.address],
    ['helo', client.helo],
    ['envelope-from', mailFrom],
  ].flatMap(([name, value]) => (value ? [`${name}=${quoted(value)}`] : []));
  return { name: 'Received-SPF', value: `${capitalized(spf.result)}; ${facts.join('; ')}` };
}

/** The value, as a quoted string if necessary. */
function quoted(value: string): string {
  return /^[\w.@+-]+$/.test(value)
    ? value
    : `"${value.replace(/[\p{Cc}\u2028\u2029]/gu, '?').replace(/["\\]/g, '\\$&')}"`;
}

/** X-Spam fields, where consumers find the results of the spam filter. A sender cannot set them. */
function spamFields(scan: Scan | undefined): readonly HeaderField[] {
  if (!scan || scan.spam === 'unknown') return [];
  return [
    { name: 'X-Spam-Status', value: scan.spam === 'spam' ? 'Yes' : 'No' },
    ...(scan.score === null ? [] : [{ name: 'X-Spam-Score', value: String(scan.score) }]),
    ...(scan.rules.length === 0 ? [] : [{ name: 'X-Spam-Tests', value: scan.rules.map(({ name }) => name).join(',') }]),
  ];
}

function full({ address, name }: Mailbox) {
  return { Email: address, Name: name ?? '', MailboxHash: hashOf(address) };
}

/** The part after a plus in the mailbox name. */
function hashOf(address: string): string {
  return /^[^+@]*\+(.*)@[^@]*$/.exec(address)?.[1] ?? '';
}

/** The same UUID for the same delivery, at every attempt. */
function uuidOf(id: string): string {
  const hex = createHash('sha256').update(id).digest('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), `4${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    '-',
  );
}

const capitalized = (name: string): string => `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
