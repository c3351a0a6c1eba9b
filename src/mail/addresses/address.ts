import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/** A mailbox as defined in RFC 5321 section 4.1.2. */
export interface Address {
  /** As given. */
  readonly text: string;
  /** The local part without quotes and escapes, in its original case. */
  readonly mailbox: string;
  /** The domain as lower-case A-labels, or the address literal with its brackets. */
  readonly domain: string;
}

// Octets, not characters, also with SMTPUTF8 (RFC 6531 section 3.2). RFC 5321 section 4.5.3.1 has 64 for local parts
// and 256 for paths, and asks implementations to impose no limit: SRS, VERP and token addresses are longer, and other
// servers take them.
const MAX_DOMAIN = 255;
const MAX_ADDRESS = 1000;
// RFC 1035: 255 octets on the wire are 253 characters as text.
const MAX_NAME = 253;

// atext of RFC 5321, plus everything beyond ASCII (RFC 6531 section 3.3), and dots anywhere: carriers have given out
// `foo..bar` and `foo.` without quotes. `toWire` writes them with quotes.
const DOT_STRING = /^[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}.-]+$/u;
const QUOTED_STRING = /^"(?:[ !#-[\]-~\u0080-\u{10ffff}]|\\[ -~])*"$/u;
// C0 and C1 controls, bytes that are not UTF-8 (decoded to U+FFFD), and characters that reverse the text direction or
// break lines in a log. None is of use in an address.
const UNSAFE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\ufffd\ufeff]/u;

/** Whether a text contains a character that must not be in an address. */
export function hasUnsafeCharacter(text: string): boolean {
  return UNSAFE.test(text);
}

/** Parses a mailbox, including quoted local parts and SMTPUTF8. Rejects source routes, controls and missing domains. */
export function parseAddress(text: string): Address | undefined {
  if (text.length > MAX_ADDRESS || Buffer.byteLength(text) > MAX_ADDRESS || UNSAFE.test(text)) return undefined;
  // A domain contains no @, so the last one is the separator, even if a quoted local part contains others.
  const at = text.lastIndexOf('@');
  const local = text.slice(0, Math.max(at, 0));
  if (local === '') return undefined;
  const mailbox = toMailbox(local);
  const domain = toDomain(text.slice(at + 1));
  return mailbox === undefined || domain === undefined ? undefined : { text, mailbox, domain };
}

/** The domain of an address, as written. */
export const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1);

/**
 * A domain name as used in DNS lookups: A-labels (IDNA, UTS 46), lower case, no final dot. `undefined` if it cannot be
 * a mail host: wrong characters or lengths, and names that end in a number (those are addresses).
 */
export function toAsciiDomain(domain: string): string | undefined {
  const bare = domain.endsWith('.') ? domain.slice(0, -1) : domain;
  if (bare.length > MAX_DOMAIN) return undefined;
  const ascii = /^[\w.-]+$/.test(bare) ? bare.toLowerCase() : mapped(bare);
  return ascii.length <= MAX_NAME && NAME.test(ascii) && !ENDS_IN_NUMBER.test(ascii) ? ascii : undefined;
}

// RFC 5321 forbids underscores, but sender domains in daily use have them.
const NAME = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;
const ENDS_IN_NUMBER = /(?:^|\.)\d+$/;

/** `domainToASCII` parses its argument as the host of a URL, so only the ASCII characters of a name are let through. */
function mapped(domain: string): string {
  return /[^\w.\u0080-\u{10ffff}-]/u.test(domain) || UNSAFE.test(domain) ? '' : domainToASCII(domain);
}

function toMailbox(local: string): string | undefined {
  if (DOT_STRING.test(local)) return local;
  return QUOTED_STRING.test(local) ? local.slice(1, -1).replace(/\\(.)/g, '$1') : undefined;
}

function toDomain(domain: string): string | undefined {
  if (domain.startsWith('[')) return toLiteral(domain);
  // RFC 5321 allows no final dot in an address, although the DNS does.
  return domain.endsWith('.') || Buffer.byteLength(domain) > MAX_DOMAIN ? undefined : toAsciiDomain(domain);
}

function toLiteral(text: string): string | undefined {
  const inner = text.endsWith(']') ? text.slice(1, -1) : '';
  if (isIPv4(inner)) return text;
  const v6 = /^ipv6:(.+)$/i.exec(inner)?.[1];
  return v6 !== undefined && !v6.includes('%') && isIPv6(v6) ? `[IPv6:${v6.toLowerCase()}]` : undefined;
}

/** The form in which texts are compared: lower case, NFC. */
export function foldCase(text: string): string {
  return text.toLowerCase().normalize('NFC');
}

// RFC 5321 section 4.1.2: local parts that need quotes.
const NEEDS_QUOTES = /[\s"(),:;<>@[\\\]]|^\.|\.$|\.\.|^$/;

/** A mailbox as local part, in quotes where the grammar demands them. */
function quoted(mailbox: string): string {
  return NEEDS_QUOTES.test(mailbox) ? `"${mailbox.replace(/["\\]/g, '\\$&')}"` : mailbox;
}

/** An address for commands and header fields: by the grammar, its domain in A-labels. */
export function toWire({ mailbox, domain }: Address): string {
  return `${quoted(mailbox)}@${domain}`;
}

/**
 * An address in the form that lists store and compare: the domain as lower-case A-labels, the mailbox in lower case and
 * without unnecessary quotes.
 */
export function toCanonicalAddress(address: Address): string {
  return `${quoted(foldCase(address.mailbox))}@${address.domain.toLowerCase()}`;
}

/** `toCanonicalAddress` for a text; undefined if it is not an address. */
export function canonicalAddress(text: string): string | undefined {
  const address = parseAddress(text.trim());
  return address && toCanonicalAddress(address);
}

/** The prefix of an address to search for, in the form that lists store. A U-label domain must be complete. */
export function canonicalPrefix(text: string): string {
  return canonicalAddress(text) ?? foldCase(text.trim());
}

/** A recipient of an account's mail. */
export interface Recipient {
  /** As the account wrote it, trimmed. */
  readonly email: string;
  /** As in the envelope: the domain in A-labels. */
  readonly recipient: string;
  readonly domain: string;
  /** `recipient` in lower case: the key of merge variables and metadata, and of deduplication. */
  readonly key: string;
}

/** Parses a recipient; undefined if invalid. Address literals are: they have no domain with a reputation or an MX. */
export function readRecipient(text: string): Recipient | undefined {
  const email = text.trim();
  const address = parseAddress(email);
  if (!address || address.domain.startsWith('[')) return undefined;
  const recipient = `${email.slice(0, email.lastIndexOf('@'))}@${address.domain}`;
  return { email, recipient, domain: address.domain, key: recipient.toLowerCase() };
}
