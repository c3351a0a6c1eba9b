import { toAsciiDomain } from '../mail/address.ts';

// Much less than RFC 5321 allows, on purpose: what cannot be quoted, escaped or routed on (`!`, `%`, `|`, `/`) cannot be
// misread by any server on the way, nor end up in a header as anything but an address.
const MAILBOX = /^[A-Za-z0-9_+=~&-]+(?:\.[A-Za-z0-9_+=~&-]+)*$/;
const LONGEST_MAILBOX = 64; // RFC 5321 section 4.5.3.1.1

/** Whether we write to a mailbox of this name: letters, digits, `_ + = ~ & -`, and dots between them. */
export function isPlainMailbox(text: string): boolean {
  return text.length <= LONGEST_MAILBOX && MAILBOX.test(text);
}

/** An address that we write to, with its domain as lower-case A-labels; undefined for one that we do not. */
export function toPlainAddress(text: string): string | undefined {
  const at = text.lastIndexOf('@');
  const domain = toAsciiDomain(text.slice(at + 1));
  if (at < 1 || domain === undefined || !domain.includes('.') || !isPlainMailbox(text.slice(0, at))) return undefined;
  return `${text.slice(0, at)}@${domain}`;
}
