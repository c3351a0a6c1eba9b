import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import { toBase32Hex } from './base32hex.ts';

/** The endpoint of returned mail, which is processed here. */
export const RETURN_URL = 'return:';

/** The endpoint of mail to the postmaster, which is forwarded to the operator. */
export const POSTMASTER_URL = 'postmaster:';

/** The scheme of the endpoint of reports to senders, followed by the domain. */
export const REPORT_SCHEME = 'report:';

/** The purpose of a mailbox at the return domain. `complaints` does not identify a message: the mail itself must. */
export type ReturnMailbox =
  | { readonly kind: 'bounce' | 'unsub'; readonly account: number; readonly message: string }
  | { readonly kind: 'complaints' };

const UNSUB = 'unsub-';
/** Where feedback loops send their reports; abuse@ is the mailbox of RFC 2142 for these. */
const COMPLAINTS = new Set(['fbl', 'abuse']);

/**
 * The reverse-path of a message (VERP), which identifies the message in returned mail. `about` repeats the domain if it
 * is not our return domain; the token is then valid at that domain only.
 */
export function bounceAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${toToken(secret, 'bounce', account, message, about)}@${domain}`;
}

/** The address that unsubscribes the recipient of a message (List-Unsubscribe, RFC 2369); `about` as above. */
export function unsubAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${UNSUB}${toToken(secret, 'unsub', account, message, about)}@${domain}`;
}

/**
 * Parses the local part of an address at our return domain, or at the domain `about`; undefined if there is no such
 * mailbox. Case is ignored, because relays may change it.
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
/** Maximum number of tokens to check per text: one of our headers has three. */
const MAX_TOKENS = 20;

/** Finds the message that one of our tokens in a text identifies, as in the Return-Path of one of our messages. */
export function findReturnAddress(
  secret: string,
  text: string,
): { readonly account: number; readonly message: string } | undefined {
  let looked = 0;
  for (const [, token = '', domain = ''] of text.matchAll(TOKEN)) {
    if (++looked > MAX_TOKENS) break;
    for (const about of new Set(['', domain.toLowerCase().replace(/\.+$/, '')])) {
      const named = readToken(secret, 'bounce', token, about) ?? readToken(secret, 'unsub', token, about);
      if (named) return named;
    }
  }
  return undefined;
}

/** The id of a message to one recipient in the API, events and headers: 32 hex digits, a hash of the delivery's id. */
export function sentId(deliveryId: string): string {
  return hash('sha256', `sent\0${deliveryId}`, 'hex').slice(0, 32);
}

/** What a token is used for; a bare click is reported without the query of its URL. */
export type TokenKind = 'open' | 'click' | 'bare-click' | 'unsub' | 'bounce';

/** Kinds used in the local part of addresses, whose case relays may change. */
const IN_ADDRESSES: ReadonlySet<TokenKind> = new Set<TokenKind>(['unsub', 'bounce']);
const LINK_SIGNATURE = 22; // characters of base64url: 132 bits
/**
 * 16 characters of base 32. A local part has 64 octets (RFC 5321 section 4.5.3.1.1): `unsub-`, an account number
 * of up to 8 digits in base 36, the 32 digits of the message and two hyphens leave 16.
 */
const ADDRESS_SIGNATURE_BYTES = 10;
const SEND_TOKEN = /^(([0-9a-z]{1,8})-([0-9a-f]{32}))-([\w-]{16,22})$/;

/**
 * Creates an unforgeable token for a message: `<account number in base 36>-<message id>-<signature>`. The signature
 * also covers the kind and, for clicks, the URL. Tokens contain only letters, digits, - and _; those of `unsub` and
 * `bounce`, used in the local part of addresses, are lower case and accepted in any case.
 */
export function toToken(secret: string, kind: TokenKind, account: number, message: string, about = ''): string {
  const subject = `${account.toString(36)}-${message}`;
  return `${subject}-${sign(secret, kind, subject, about)}`;
}

/** The account number and the message in a token; undefined if the signature is not ours. */
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
    ? toBase32Hex(digest.subarray(0, ADDRESS_SIGNATURE_BYTES))
    : digest.toString('base64url').slice(0, LINK_SIGNATURE);
}
