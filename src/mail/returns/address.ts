import { readToken, toToken } from '../send-tokens.ts';

/** The URL of deliveries that are mail come back to us: nothing is posted, the mail is read here. */
export const RETURN_URL = 'return:';

/** Whether a delivery is mail come back to us. */
export function isReturnUrl(url: string): boolean {
  return url === RETURN_URL;
}

/** The URL of deliveries that are mail to our postmaster: nothing is posted, the mail is forwarded to the operator. */
export const POSTMASTER_URL = 'postmaster:';

/** Whether a delivery is mail to our postmaster. */
export function isPostmasterUrl(url: string): boolean {
  return url === POSTMASTER_URL;
}

/** What the URL of a delivery begins with that is a report of ours to a sender who asked for it; the domain it goes to stands behind. */
export const REPORT_SCHEME = 'report:';

/** Whether a delivery is a report of ours. */
export function isReportUrl(url: string): boolean {
  return url.startsWith(REPORT_SCHEME);
}

/** Whether a delivery is mail for ourselves or from us, which no account gets. */
export function isForUs(url: string): boolean {
  return isReturnUrl(url) || isPostmasterUrl(url) || isReportUrl(url);
}

/** What a mailbox of the return domain is for. `complaints` names no message: the mail itself has to. */
export type ReturnMailbox =
  | { readonly kind: 'bounce' | 'unsub'; readonly account: number; readonly message: string }
  | { readonly kind: 'complaints' };

const UNSUB = 'unsub-';
/** Where providers of feedback loops report to; abuse@ is the mailbox of RFC 2142 for that. */
const COMPLAINTS = new Set(['fbl', 'abuse']);

/**
 * The reverse-path of a message (VERP): whatever comes back to it is about that message. `about`: the domain again when it is not
 * our return domain; then the token is good at that domain alone.
 */
export function bounceAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${toToken(secret, 'bounce', account, message, about)}@${domain}`;
}

/** Where a mail unsubscribes the recipient of a message (RFC 2369 List-Unsubscribe); `about` as for the reverse-path. */
export function unsubAddress(secret: string, account: number, message: string, domain: string, about = ''): string {
  return `${UNSUB}${toToken(secret, 'unsub', account, message, about)}@${domain}`;
}

/**
 * Reads the local part of an address of our return domain, or of the domain `about`; undefined for a mailbox that there is not.
 * Servers on the way may have changed the case.
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

/** The message that a text names by one of our tokens, as the header of a message of ours does in its Return-Path and List-Unsubscribe. */
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
