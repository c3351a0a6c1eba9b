import { createHmac, hash, timingSafeEqual } from 'node:crypto';

/** The id that the API, events and headers give to a message for one recipient: 32 hex digits, made of the delivery's id. */
export function sentId(deliveryId: string): string {
  return hash('sha256', `sent\0${deliveryId}`, 'hex').slice(0, 32);
}

/** What a link or an address of ours stands for; a bare click is told without the query of its URL. */
export type TokenKind = 'open' | 'click' | 'bare-click' | 'unsub' | 'bounce';

/** Kinds that stand in local parts of addresses, which servers on the way may have written in another case. */
const IN_ADDRESSES: ReadonlySet<TokenKind> = new Set<TokenKind>(['unsub', 'bounce']);
const LINK_SIGNATURE = 22; // characters of base64url: 132 bits
/**
 * Characters of base 32: 80 bits. A local part has 64 octets (RFC 5321 section 4.5.3.1.1): `unsub-`, an account number of up to 8
 * digits in base 36, 32 of the message and two hyphens leave 16.
 */
const ADDRESS_SIGNATURE = 16;
const DIGITS = '0123456789abcdefghijklmnopqrstuv';
const TOKEN = /^(([0-9a-z]{1,8})-([0-9a-f]{32}))-([\w-]{16,22})$/;

/**
 * A token that names a message, and that nobody else can make: `<account number in base 36>-<message id>-<signature>` with
 * the kind, and for clicks the URL, under the signature. Letters, digits, - and _ only; those of `unsub` and `bounce`, which stand in
 * the local part of addresses, are lower case and may be read in any.
 */
export function toToken(secret: string, kind: TokenKind, account: number, message: string, about = ''): string {
  const subject = `${account.toString(36)}-${message}`;
  return `${subject}-${sign(secret, kind, subject, about)}`;
}

/** The account's number and message that a token names; undefined when we did not make it. */
export function readToken(
  secret: string,
  kind: TokenKind,
  token: string,
  about = '',
): { readonly account: number; readonly message: string } | undefined {
  const written = IN_ADDRESSES.has(kind) ? token.toLowerCase() : token;
  const [, subject = '', account = '', message = '', signature = ''] = TOKEN.exec(written) ?? [];
  if (subject === '') return undefined;
  const expected = Buffer.from(sign(secret, kind, subject, about));
  const given = Buffer.from(signature);
  if (expected.length !== given.length || !timingSafeEqual(expected, given)) return undefined;
  return { account: Number.parseInt(account, 36), message };
}

function sign(secret: string, kind: TokenKind, subject: string, about: string): string {
  const digest = createHmac('sha256', secret).update(`${kind}\0${subject}\0${about}`).digest();
  return IN_ADDRESSES.has(kind)
    ? toBase32(digest, ADDRESS_SIGNATURE)
    : digest.toString('base64url').slice(0, LINK_SIGNATURE);
}

/** The first digits of base32hex (RFC 4648 section 7) in lower case. */
function toBase32(bytes: Buffer, length: number): string {
  let text = '';
  let held = 0; // bits that are no digit yet
  let bits = 0;
  for (const byte of bytes) {
    held = ((held & 31) << 8) | byte; // fewer than five are left over
    for (bits += 8; bits >= 5; bits -= 5) text += DIGITS.charAt((held >> (bits - 5)) & 31);
    if (text.length >= length) break;
  }
  return text.slice(0, length);
}
