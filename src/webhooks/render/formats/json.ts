import type { Mailbox } from '../../../mail/message.ts';
import { toFileName } from '../../../mail/mime/filename.ts';
import { additions, envelopeOf, replyIn, scanJson, spamReport, tagsOf } from '../payload.ts';
import { filePieces, jsonText, type Piece, rawText, sizeOfContent, json as toJson } from '../pieces.ts';
import { type ParsedMail, rawAsUtf8 } from './mail.ts';

/** Our own format: every key is always there, lists are lists, and files are base64. */
export function* json(mail: ParsedMail): Iterable<Piece> {
  const { inbound, text, html } = mail;
  const { id, message, verdicts, content } = inbound;
  yield `{"event":"inbound","id":${toJson(id)},"message_id":${toJson(message.id)}`;
  yield `,"received_at":${toJson(new Date(message.receivedAt).toISOString())}`;
  yield `,"envelope":${toJson(envelopeOf(inbound))},"sender_auth":${toJson(inbound.senderAuth)}`;
  yield `,"verdicts":${toJson({ spf: verdicts.spf, dkim: verdicts.dkim, dmarc: verdicts.dmarc, arc: verdicts.arc })}`;
  yield `,"from":${mail.from ? mailbox(mail.from) : 'null'},"to":${list(mail.to)},"cc":${list(mail.cc)}`;
  yield `,"subject":${toJson(mail.subject)}`;
  yield `,"headers":${toJson(mail.fields.map(({ name, value }) => [name, value]))}`;
  yield ',"text":';
  yield* text === undefined ? ['null'] : jsonText(text);
  yield ',"html":';
  yield* html === undefined ? ['null'] : jsonText(html);
  const { reply, quoted } = replyIn(content);
  yield ',"reply_text":';
  yield* jsonText(reply);
  yield ',"quoted_text":';
  yield* jsonText(quoted);
  yield ',"attachments":[';
  let separator = '';
  for (const file of mail.files) {
    const { contentId, disposition, type } = file;
    const facts = {
      name: toFileName(file.name),
      type,
      content_id: contentId,
      disposition,
      size: sizeOfContent(file.content),
      url: file.link ?? null,
    };
    yield `${separator}${toJson(facts).slice(0, -1)},"content":`;
    if (file.link !== undefined) yield 'null}';
    else {
      yield '"';
      yield* filePieces(file, false).pieces;
      yield '"}';
    }
    separator = ',';
  }
  yield ']';
  if (mail.withRaw) {
    yield ',"raw":"';
    yield* rawInJson(mail);
    yield '"';
  }
  const { replyData, captures } = message.envelope;
  yield `,"reply_data":${toJson(replyData?.[inbound.recipient] ?? null)}`;
  yield `,"captures":${toJson(captures?.[inbound.recipient] ?? {})}`;
  yield `,"tags":${toJson(tagsOf(inbound))}`;
  yield `,"spam_report":${spamReport(message.scan)},"scan":${message.scan ? scanJson(message.scan) : 'null'}`;
  yield `,"parse_error":${toJson('parseError' in content ? content.parseError : null)}`;
  yield `${additions(inbound)}}`;
}

/** The raw message as the content of a JSON string. */
export function* rawInJson(mail: ParsedMail): Iterable<Piece> {
  yield* rawText(
    '',
    [...rawAsUtf8(mail)].map(({ bytes }) => bytes),
    false,
  );
}

const mailbox = ({ address, name }: Mailbox): string => toJson({ address, name });

const list = (mailboxes: readonly Mailbox[]): string => `[${mailboxes.map(mailbox).join()}]`;
