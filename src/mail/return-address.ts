import { createHmac, hash, timingSafeEqual } from 'node:crypto';

/** The endpoint of mail that came back: it is read here. */
export const RETURN_URL = 'return:';

/** The endpoint of mail to the postmaster: it is forwarded to the operator. */
export const POSTMASTER_URL = 'postmaster:';

/** What the endpoint of reports to senders begins with; the domain stands behind. */
export const REPORT_SCHEME = 'report:';

/** What a mailbox of the return domain is for. `complaints` names no message: the mail itself has to. */
export type ReturnMailbox =
  | { readonly kind: 'bounce' | 'unsub'; readonly account: number; readonly message: string }
  | { readonly kind: 'complaints' };

const UNSUB = 'unsub-';
/** Where providers of feedback loops report to; abuse@ is the mailbox of RFC 2142 for that. */
const COMPLAINTS = new Set(['fbl', 'abuse']);

/**
 * The reverse-path of a message (VERP): whatever comes back to it is about that message. `about`: the domain again when
 * it is not our return domain; then the token is good at that domain alone.
 */
export function bounceAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${toToken(secret, 'bounce', account, message, about)}@${domain}`;
}

/**
 * Where a mail unsubscribes the recipient of a message (RFC 2369 List-Unsubscribe); `about` as for the reverse-path.
 */
export function unsubAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${UNSUB}${toToken(secret, 'unsub', account, message, about)}@${domain}`;
}

/**
 * Reads the local part of an address of our return domain, or of the domain `about`; undefined for a mailbox that there
 * is not. Servers on the way may have changed the case.
 */
export function readReturnMailbox(secret: string, mailbox: string, about = ''): ReturnMailbox | undefined {
  const name = mailbox.toLowerCase();
  if (COMPLAINTS.has(name)) return about === '' ? { kind: 'complaints' } : undefined;
  const kind = name.startsWith(UNSUB) ? 'unsub' : 'bounce';
  const token = kind === 'unsub' ? name.slice(UNSUB.length) : name;
  const named = readToken(secret, kind, token, about);
  return named && { kind, ...named };
}

const TOKEN = /([0-9a-z]{1,11}-[0-9a-f]{32}-[\w-]{10,40})(?:@([\w.-]{1,253}))?/gi;
/** Tokens of one text that are looked at: a header of ours holds three. */
const MOST_TOKENS = 20;

/**
 * The message that a text names by one of our tokens, as the header of a message of ours does in its Return-Path and
 * List-Unsubscribe.
 */
export function findMessage(
  secret: string,
  text: string,
): { readonly account: number; readonly message: string } | undefined {
  let looked = 0;
  for (const [, token = '', domain = ''] of text.matchAll(TOKEN)) {
    if (++looked > MOST_TOKENS) break;
    for (const about of new Set(['', domain.toLowerCase().replace(/\.+$/, '')])) {
      const named = readToken(secret, 'bounce', token, about) ?? readToken(secret, 'unsub', token, about);
      if (named) return named;
    }
  }
  return undefined;
}

/**
 * The id that the API, events and headers give to a message for one recipient: 32 hex digits, made of the delivery's
 * id.
 */
export function sentId(deliveryId: string): string {
  return hash('sha256', `sent\0${deliveryId}`, 'hex').slice(0, 32);
}

/** What a link or an address of ours stands for; a bare click is told without the query of its URL. */
export type TokenKind = 'open' | 'click' | 'bare-click' | 'unsub' | 'bounce';

/** Kinds that stand in local parts of addresses, which servers on the way may have written in another case. */
const IN_ADDRESSES: ReadonlySet<TokenKind> = new Set<TokenKind>(['unsub', 'bounce']);
const LINK_SIGNATURE = 22; // characters of base64url: 132 bits
/**
 * Characters of base 32: 80 bits. A local part has 64 octets (RFC 5321 section 4.5.3.1.1): `unsub-`, an account number
 * of up to 8 digits in base 36, 32 of the message and two hyphens leave 16.
 */
const ADDRESS_SIGNATURE = 16;
const DIGITS = '0123456789abcdefghijklmnopqrstuv';
const SEND_TOKEN = /^(([0-9a-z]{1,8})-([0-9a-f]{32}))-([\w-]{16,22})$/;

/**
 * A token that names a message, and that nobody else can make: `<account number in base 36>-<message id>-<signature>`
 * with the kind, and for clicks the URL, under the signature. Letters, digits, - and _ only; those of `unsub` and
 * `bounce`, which stand in the local part of addresses, are lower case and may be read in any.
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
  const [, subject = '', account = '', message = '', signature = ''] = SEND_TOKEN.exec(written) ?? [];
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
