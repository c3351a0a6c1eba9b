import { createHmac, hash, timingSafeEqual } from 'node:crypto';

/** The id that the API, events and headers give to a message for one recipient: 32 hex digits, made of the delivery's id. */
export function sentId(deliveryId: string): string {
  return hash('sha256', `sent\0${deliveryId}`, 'hex').slice(0, 32);
}

/** What a link or an address of ours stands for. */
export type TokenKind = 'open' | 'click' | 'unsub' | 'bounce';

const SIGNATURE = 22; // characters of base64url: 132 bits

/**
 * A token that names a message, and that nobody else can make: `<account number in base 36>-<message id>-<signature>` with
 * the kind, and for a click the URL, under the signature. Letters, digits, - and _ only; in lower and upper case, but for `bounce`, whose
 * place is the local part of an address and which is lower case only (hex).
 */
export function toToken(secret: string, kind: TokenKind, account: number, message: string, about = ''): string {
  const subject = `${account.toString(36)}-${message}`;
  return `${subject}-${sign(secret, kind, subject, about)}`;
}

/** The account's number and message that a token names; undefined when we did not make it. */
export function readToken(secret: string, kind: TokenKind, token: string, about = ''): { readonly account: number; readonly message: string } | undefined {
  const [, subject = '', account = '', message = '', signature = ''] = /^(([0-9a-z]{1,11})-([0-9a-f]{32}))-([\w-]{20,40})$/.exec(token) ?? [];
  const expected = Buffer.from(sign(secret, kind, subject, about));
  const given = Buffer.from(signature);
  if (subject === '' || expected.length !== given.length || !timingSafeEqual(expected, given)) return undefined;
  return { account: Number.parseInt(account, 36), message };
}

function sign(secret: string, kind: TokenKind, subject: string, about: string): string {
  const digest = createHmac('sha256', secret).update(`${kind}\0${subject}\0${about}`);
  return kind === 'bounce' ? digest.digest('hex').slice(0, 32) : digest.digest('base64url').slice(0, SIGNATURE);
}
