import { singleLine } from '../../../mail/mime/headers.ts';
import type { Scan } from '../../../mail/scan.ts';
import { fieldOf, type ParsedMail, rawAsUtf8, toTexts, type Written } from './mail.ts';
import { additionFields, type FormField, linkField, multipart, toFormFiles } from './multipart.ts';

/** SendGrid's Inbound Parse. All text is UTF-8, which `charsets` says. */
export function sendgrid(mail: ParsedMail): Written {
  const files = toFormFiles(mail.files, (n) => `attachment${n}`);
  const info = files.map(({ name, fileName, file: { type, contentId } }) => [
    name,
    { filename: fileName, name: fileName, type, ...(contentId !== null && { 'content-id': contentId }) },
  ]);
  const ids = files.flatMap(({ name, file }) => (file.contentId === null ? [] : [[file.contentId, name]]));
  return multipart(
    [
      { name: 'headers', value: mail.fields.map(({ name, value }) => `${name}: ${singleLine(value)}\n`).join('') },
      ...common(mail),
      ...(mail.text === undefined ? [] : [{ name: 'text', value: mail.text }]),
      ...(mail.html === undefined ? [] : [{ name: 'html', value: mail.html }]),
      { name: 'attachments', value: String(files.length) },
      ...linkField('attachment-links', mail.files),
      ...(files.length === 0 ? [] : [{ name: 'attachment-info', value: JSON.stringify(Object.fromEntries(info)) }]),
      ...(ids.length === 0 ? [] : [{ name: 'content-ids', value: JSON.stringify(Object.fromEntries(ids)) }]),
    ],
    files,
  );
}

/** SendGrid's Inbound Parse with "POST the raw, full MIME message". */
export function sendgridRaw(mail: ParsedMail): Written {
  return multipart([...common(mail), { name: 'email', value: rawAsUtf8(mail) }]);
}

function common(mail: ParsedMail): FormField[] {
  const { inbound, from } = mail;
  const { mailFrom, client } = inbound.message.envelope;
  const utf8 = ['to', 'cc', 'from', 'subject', 'html', 'text'].map((name) => [name, 'UTF-8']);
  return [
    { name: 'dkim', value: dkimOf(mail) },
    { name: 'to', value: fieldOf(mail, 'to') === '' ? inbound.recipient : toTexts(mail.to) },
    { name: 'from', value: toTexts(from ? [from] : []) },
    { name: 'cc', value: toTexts(mail.cc) },
    { name: 'sender_ip', value: client.address ?? '' },
    { name: 'envelope', value: JSON.stringify({ to: [inbound.recipient], from: mailFrom }) },
    { name: 'subject', value: mail.subject },
    { name: 'charsets', value: JSON.stringify(Object.fromEntries(utf8)) },
    { name: 'SPF', value: inbound.verdicts.spf.result },
    ...spamFields(inbound.message.scan),
    { name: 'sender_auth', value: JSON.stringify(inbound.senderAuth) },
    ...additionFields(inbound),
  ];
}

function spamFields(scan: Scan | undefined): FormField[] {
  if (!scan || scan.score === null) return [];
  const rules = scan.rules.map(({ score, name, description }) => `${score} ${name} ${description}\n`).join('');
  return [
    { name: 'spam_score', value: String(scan.score) },
    { name: 'spam_report', value: rules },
  ];
}

/** `{@example.com : pass}`, or `none`. */
function dkimOf({ inbound: { senderAuth } }: ParsedMail): string {
  const { dkim } = senderAuth;
  return dkim.length === 0 ? 'none' : `{${dkim.map(({ domain, result }) => `@${domain} : ${result}`).join(', ')}}`;
}
