import { toFileName } from '../../../mail/mime/filename.ts';
import { additions, replyIn } from '../payload.ts';
import { filePieces, json, jsonText, type Piece, sizeOfContent } from '../pieces.ts';
import type { ParsedMail } from './mail.ts';

/** CloudMailin's "JSON (normalized)". */
export function* cloudmailin(mail: ParsedMail): Iterable<Piece> {
  const { inbound } = mail;
  const { mailFrom, client } = inbound.message.envelope;
  const { spf } = inbound.senderAuth;
  const envelope = {
    to: inbound.recipient,
    recipients: [inbound.recipient],
    from: mailFrom,
    // Always text, also for mail from the API, which has neither.
    helo_domain: client.helo ?? '',
    remote_ip: client.address ?? '',
    tls: client.tls !== null,
    tls_cipher: client.tls,
    spf: { result: spf.result, domain: spf.domain ?? '' },
  };
  yield `{"headers":${headersJson(mail)},"envelope":${json(envelope)},"plain":`;
  yield* jsonText(mail.text ?? '');
  yield ',"html":';
  yield* jsonText(mail.html ?? '');
  yield ',"reply_plain":';
  yield* jsonText(replyIn(inbound.content).reply);
  yield ',"attachments":[';
  let separator = '';
  for (const file of mail.files) {
    const facts = {
      file_name: toFileName(file.name),
      content_type: file.type,
      size: sizeOfContent(file.content),
      disposition: file.disposition ?? 'attachment',
      ...(file.contentId !== null && { content_id: file.contentId }),
      ...(typeof file.link === 'string' && { url: file.link }),
    };
    yield `${separator}${json(facts).slice(0, -1)}`;
    if (file.link === undefined) {
      yield ',"content":"';
      yield* filePieces(file, false).pieces;
      yield '"';
    }
    yield '}';
    separator = ',';
  }
  yield `],"sender_auth":${json(inbound.senderAuth)}${additions(inbound)}}`;
}

/** Values by name in lower case with underscores; several of one name are a list. */
function headersJson({ fields }: ParsedMail): string {
  const byName = Map.groupBy(fields, ({ name }) => name.toLowerCase().replaceAll('-', '_'));
  const members = [...byName].map(([name, all]) => {
    const values = all.map(({ value }) => value);
    return `${json(name)}:${json(values.length === 1 ? values[0] : values)}`;
  });
  return `{${members.join()}}`;
}
