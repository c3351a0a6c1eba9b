import { parseAddress } from '../mail/address.ts';

/** Somebody who is to get a message. */
export interface Recipient {
  /** As the account wrote it, without spaces around it. */
  readonly email: string;
  /** As the envelope names it: the domain in its A-label form. */
  readonly recipient: string;
  readonly domain: string;
  /** `recipient` in lower case: what merge variables and metadata are kept under, and what counts as the same person. */
  readonly key: string;
}

/** Reads a recipient; undefined for what cannot be sent to. An address literal names no domain whose reputation or MX one could know. */
export function readRecipient(text: string): Recipient | undefined {
  const email = text.trim();
  const address = parseAddress(email);
  if (!address || address.domain.startsWith('[')) return undefined;
  const recipient = `${email.slice(0, email.lastIndexOf('@'))}@${address.domain}`;
  return { email, recipient, domain: address.domain, key: recipient.toLowerCase() };
}
