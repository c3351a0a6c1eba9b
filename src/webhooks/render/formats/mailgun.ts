import { createHmac, randomBytes } from 'node:crypto';
import { pattern } from '../../../base/pattern.ts';
import { decodeWords, type HeaderField, singleLine, toTitleCase } from '../../../mail/mime/headers.ts';
import type { Scan } from '../../../mail/scan.ts';
import { replyIn } from '../payload.ts';
import type { ParsedMail, Written } from './mail.ts';
import { rawAsUtf8, toTexts } from './mail.ts';
import { additionFields, type FormField, linkField, multipart, toFormFiles } from './multipart.ts';

/** Names of header fields that become form fields; others could collide with our own fields. */
const FIELD_NAME = /^[a-z][a-z0-9-]{0,99}$/i;
/**
 * Mailgun's own form fields, in any letter case; also those that our posts do not have, such as a URL to fetch the
 * message from.
 */
const OWN = pattern('i')`
  ^(?:recipient|sender|body-.*|stripped-.*|attachments?|attachment-.*|content-id-map|message-(?:headers|url)|domain
  |event-.*|sender-auth|automated|thread|answers|facts|timestamp|token|signature)$
`;
/** Header fields that are form fields already, in lower case, with the same value. */
const TWICE: ReadonlySet<string> = new Set(['from', 'subject']);
/** Django and PHP accept a thousand form fields. */
const MAX_HEADER_FIELDS = 500;

/** Mailgun's route that forwards a parsed message. */
export function mailgun(mail: ParsedMail): Written {
  const { inbound, text, html } = mail;
  const files = toFormFiles(mail.files, (n) => `attachment-${n}`);
  const byId = files.flatMap(({ name, file }) =>
    file.contentId === null ? [] : [[`<${file.contentId}>`, name] as const],
  );
  // The sender must not set the results of our spam filter.
  const own = mail.fields.filter(({ name }) => !/^x-mailgun-/i.test(name)).map((field) => toUtf8(field, mail));
  const found = [...spamFields(inbound.message.scan), ...resultFields(mail)];
  const headers = [...formHeaders(own, mail), ...found];
  return multipart(
    [
      ...addressing(mail),
      ...headers.map(({ name, value }) => ({ name: toTitleCase(name), value })),
      { name: 'X-Mailgun-Incoming', value: 'Yes' },
      { name: 'body-plain', value: text ?? '' },
      { name: 'stripped-text', value: replyIn(inbound.content).reply },
      { name: 'stripped-signature', value: '' },
      ...(html === undefined ? [] : ['body-html', 'stripped-html'].map((name) => ({ name, value: html }))),
      { name: 'attachment-count', value: String(files.length) },
      ...linkField('attachments', mail.files),
      ...(byId.length === 0 ? [] : [{ name: 'content-id-map', value: JSON.stringify(Object.fromEntries(byId)) }]),
      { name: 'message-headers', value: JSON.stringify([...own, ...found].map(({ name, value }) => [name, value])) },
      { name: 'sender-auth', value: JSON.stringify(inbound.senderAuth) },
      ...additionFields(inbound),
      ...signed(mail),
    ],
    files,
  );
}

/**
 * The header fields that become form fields. There is one From and one Subject, with the values of `from` and
 * `subject`.
 */
function formHeaders(fields: readonly HeaderField[], mail: ParsedMail): HeaderField[] {
  const values = new Map(addressing(mail).map(({ name, value }) => [name, value]));
  const seen = new Set<string>();
  return fields
    .filter(({ name }) => FIELD_NAME.test(name) && !OWN.test(name))
    .flatMap(({ name, value }) => {
      const field = name.toLowerCase();
      if (!TWICE.has(field)) return [{ name, value }];
      if (seen.has(field)) return [];
      seen.add(field);
      return [{ name, value: values.get(field) ?? '' }];
    })
    .slice(0, MAX_HEADER_FIELDS);
}

/** A field in UTF-8: encoded words are decoded, mailboxes one by one, because a name may hold a comma. */
function toUtf8({ name, value }: HeaderField, { from, to, cc }: ParsedMail): HeaderField {
  const mailboxes = new Map([
    ['from', from ? [from] : []],
    ['to', to],
    ['cc', cc],
  ]).get(name.toLowerCase());
  const text = mailboxes && mailboxes.length > 0 ? toTexts(mailboxes) : decodeWords(value);
  return { name, value: singleLine(text) };
}

/** As the spam filter of Mailgun adds them to the header. */
function spamFields(scan: Scan | undefined): HeaderField[] {
  if (!scan || scan.spam === 'unknown') return [];
  return [
    { name: 'X-Mailgun-Sflag', value: scan.spam === 'spam' ? 'Yes' : 'No' },
    ...(scan.score === null ? [] : [{ name: 'X-Mailgun-Sscore', value: String(scan.score) }]),
  ];
}

/** Mailgun's words for SPF results; it omits the others. */
const SPF_WORDS: ReadonlyMap<string, string> = new Map([
  ['pass', 'Pass'],
  ['neutral', 'Neutral'],
  ['fail', 'Fail'],
  ['softfail', 'SoftFail'],
]);

/** The findings about the sender, as Mailgun's spam filter adds them to the header. */
function resultFields({ inbound: { senderAuth } }: ParsedMail): HeaderField[] {
  const spf = SPF_WORDS.get(senderAuth.spf.result);
  const { dkim } = senderAuth;
  const passed = dkim.some(({ result }) => result === 'pass');
  return [
    ...(spf === undefined ? [] : [{ name: 'X-Mailgun-Spf', value: spf }]),
    ...(dkim.length === 0 ? [] : [{ name: 'X-Mailgun-Dkim-Check-Result', value: passed ? 'Pass' : 'Fail' }]),
  ];
}

/** Mailgun's route to a URL that ends in `mime`. */
export function mailgunMime(mail: ParsedMail): Written {
  return multipart([...addressing(mail), { name: 'body-mime', value: rawAsUtf8(mail) }, ...signed(mail)]);
}

function addressing({
  inbound,
  from,
  subject,
}: ParsedMail): readonly { readonly name: string; readonly value: string }[] {
  return [
    { name: 'recipient', value: inbound.recipient },
    { name: 'sender', value: inbound.message.envelope.mailFrom },
    { name: 'from', value: toTexts(from ? [from] : []) },
    { name: 'subject', value: subject },
  ];
}

/** Mailgun's signature, which covers the time but not the message; webhook-signature covers both. */
function signed({ key, at }: ParsedMail): FormField[] {
  const timestamp = String(Math.floor(at / 1000));
  const token = randomBytes(25).toString('hex');
  const signature = createHmac('sha256', key)
    .update(timestamp + token)
    .digest('hex');
  return Object.entries({ timestamp, token, signature }).map(([name, value]) => ({ name, value }));
}
