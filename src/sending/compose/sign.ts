import { type KeyObject, sign as signWith } from 'node:crypto';
import { namesIn } from '../../base/tables.ts';
import { createSignedHeader, hashBody } from '../../inbound/verdicts/dkim/canonical.ts';
import { type FieldSpan, findFields } from '../../mail/compose/fields.ts';

/** A private key, its domain, and the selector of its public key. */
interface DkimKey {
  readonly domain: string;
  readonly selector: string;
  readonly privateKey: KeyObject;
}

/**
 * Fields that readers see or rely on. Each is listed once more than it occurs, so that adding another one breaks the
 * signature (RFC 6376 section 5.4.2 and 8.15); readers differ on which of two fields counts.
 */
const OVERSIGNED = [
  ...namesIn('from to cc subject date reply-to message-id mime-version content-type content-transfer-encoding'),
  // An added one would lead readers who unsubscribe to somebody else; RFC 8058 section 4 wants both signed.
  ...namesIn('list-unsubscribe list-unsubscribe-post'),
];
/** Signed exactly as often as they occur: mailing lists add Sender and the other List fields. */
const SIGNED = [
  ...namesIn('sender in-reply-to references list-id list-help list-post list-owner list-archive list-subscribe'),
];
const LINE_LENGTH = 76;

/** Prepends a DKIM-Signature (RFC 6376: relaxed/relaxed, rsa-sha256) to a message with CRLF. Throws for a bad key. */
export function sign(message: Buffer, { domain, selector, privateKey }: DkimKey): Buffer {
  if (privateKey.asymmetricKeyType !== 'rsa') throw new Error(`the DKIM key of ${domain} is not an RSA key`);
  const { fields, end = message.length } = findFields(message, 0);
  const names = namesToSign(fields);
  const field = [
    `DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=${domain};`,
    ` s=${selector};`,
    ` h=${folded(names.map((name, i) => (i === 0 ? name : `:${name}`)))};`,
    ` bh=${hashBody('relaxed', message.subarray(end + 2)).hash.toString('base64')};`,
    ' b=',
  ].join('\r\n');
  // The signature field comes last in what is signed (RFC 6376 section 3.7), wherever it stands in the message.
  const text = message.toString('latin1', 0, end) + field;
  const own = { name: 'dkim-signature', start: end, end: text.length };
  const octets = createSignedHeader({ text, fields }).octets(own, { headerForm: 'relaxed', names });
  const signature = signWith('sha256', octets, privateKey).toString('base64');
  return Buffer.concat([Buffer.from(`${field}${folded(signature.match(/.{1,70}/g) ?? [])}\r\n`), message]);
}

/** The names for h=. All fields of a name are signed, because a reader may show any of them. */
function namesToSign(fields: readonly FieldSpan[]): string[] {
  const present = Map.groupBy(fields, ({ name }) => name);
  const times = (name: string, count: number): string[] => Array<string>(count).fill(name);
  const there = (name: string) => present.get(name)?.length ?? 0;
  return [
    ...OVERSIGNED.flatMap((name) => times(name, there(name) + 1)),
    ...SIGNED.flatMap((name) => times(name, there(name))),
  ];
}

/** Joins pieces, folded where a verifier removes whitespace. */
function folded(pieces: readonly string[]): string {
  let text = '';
  let column = 3;
  for (const piece of pieces) {
    const breaks = column + piece.length > LINE_LENGTH;
    text += breaks ? `\r\n ${piece}` : piece;
    column = piece.length + (breaks ? 1 : column);
  }
  return text;
}
