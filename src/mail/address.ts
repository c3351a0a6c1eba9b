import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/** A mailbox as RFC 5321 section 4.1.2 writes it. */
export interface Address {
  /** As it was given. */
  readonly text: string;
  /** The local part without quotes and escapes, letters in the case they came in. */
  readonly mailbox: string;
  /** The domain as lower-case A-labels, or the address literal with its brackets. */
  readonly domain: string;
}

// RFC 5321 section 4.5.3.1: octets, not characters, because SMTPUTF8 counts them so (RFC 6531 section 3.2).
const MAX_LOCAL = 64;
const MAX_DOMAIN = 255;
// A path is 256 with its angle brackets.
const MAX_ADDRESS = 254;
// RFC 1035: 255 octets on the wire are 253 characters of text.
const MAX_NAME = 253;

// RFC 5321 atext, and everything beyond ASCII (RFC 6531 section 3.3).
const DOT_STRING = /^[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+(?:\.[\w!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+)*$/u;
const QUOTED_STRING = /^"(?:[ !#-[\]-~\u0080-\u{10ffff}]|\\[ -~])*"$/u;
// Controls of both sets, bytes that were no UTF-8 (they arrive as U+FFFD), and what turns the order of text around or
// breaks lines in a log. None has a use in an address.
const UNSAFE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\ufffd\ufeff]/u;

/** Whether a text holds what has no use in an address. */
export function hasUnsafeCharacter(text: string): boolean {
  return UNSAFE.test(text);
}

/** Reads a mailbox, quoted local parts and SMTPUTF8 included. No source routes, no controls, no domain-less names. */
export function parseAddress(text: string): Address | undefined {
  if (text.length > MAX_ADDRESS || Buffer.byteLength(text) > MAX_ADDRESS || UNSAFE.test(text)) return undefined;
  // A domain holds no @, so the last one is the one that divides, whatever a quoted local part contains.
  const at = text.lastIndexOf('@');
  const local = text.slice(0, Math.max(at, 0));
  if (local === '' || Buffer.byteLength(local) > MAX_LOCAL) return undefined;
  const mailbox = toMailbox(local);
  const domain = toDomain(text.slice(at + 1));
  return mailbox === undefined || domain === undefined ? undefined : { text, mailbox, domain };
}

/**
 * A domain name as DNS is asked for it: A-labels (IDNA, UTS 46), lower case, no final dot. `undefined` for what can be
 * no host of mail: wrong characters or lengths, and names that end in a number (those are addresses).
 */
export function toAsciiDomain(domain: string): string | undefined {
  const bare = domain.endsWith('.') ? domain.slice(0, -1) : domain;
  if (bare.length > MAX_DOMAIN) return undefined;
  const ascii = /^[\w.-]+$/.test(bare) ? bare.toLowerCase() : mapped(bare);
  return ascii.length <= MAX_NAME && NAME.test(ascii) && !ENDS_IN_NUMBER.test(ascii) ? ascii : undefined;
}

// Underscores are against RFC 5321 but stand in sender domains that receive mail every day.
const NAME = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;
const ENDS_IN_NUMBER = /(?:^|\.)\d+$/;

/** `domainToASCII` reads its argument as the host of a URL: of ASCII only what a name may hold gets there. */
function mapped(domain: string): string {
  return /[^\w.\u0080-\u{10ffff}-]/u.test(domain) || UNSAFE.test(domain) ? '' : domainToASCII(domain);
}

function toMailbox(local: string): string | undefined {
  if (DOT_STRING.test(local)) return local;
  return QUOTED_STRING.test(local) ? local.slice(1, -1).replace(/\\(.)/g, '$1') : undefined;
}

function toDomain(domain: string): string | undefined {
  if (domain.startsWith('[')) return toLiteral(domain);
  // RFC 5321 has no final dot in an address, though DNS does.
  return domain.endsWith('.') || Buffer.byteLength(domain) > MAX_DOMAIN ? undefined : toAsciiDomain(domain);
}

function toLiteral(text: string): string | undefined {
  const inner = text.endsWith(']') ? text.slice(1, -1) : '';
  if (isIPv4(inner)) return text;
  const v6 = /^ipv6:(.+)$/i.exec(inner)?.[1];
  return v6 !== undefined && !v6.includes('%') && isIPv6(v6) ? `[IPv6:${v6.toLowerCase()}]` : undefined;
}

/** What texts are compared by: letters in any case, composed characters in one form. */
export function fold(text: string): string {
  return text.toLowerCase().normalize('NFC');
}

// RFC 5321 section 4.1.2: what needs no quotes. `parseAddress` has refused what is no mailbox at all.
const NEEDS_QUOTES = /[\s"(),:;<>@[\\\]]|^\.|\.$|\.\.|^$/;

/**
 * An address as the lists keep and compare it: the domain as lower-case A-labels, the mailbox in lower case and without
 * quotes it does not need.
 */
export function toListed(address: Address): string {
  const mailbox = fold(address.mailbox);
  return `${NEEDS_QUOTES.test(mailbox) ? `"${mailbox.replace(/["\\]/g, '\\$&')}"` : mailbox}@${address.domain.toLowerCase()}`;
}

/** `toListed` of a text; undefined for what is no address. */
export function listedAddress(text: string): string | undefined {
  const address = parseAddress(text.trim());
  return address && toListed(address);
}

/**
 * The beginning of an address as a search gives it, in the form the lists keep. A U-label domain is found when it is
 * whole.
 */
export function listedPrefix(text: string): string {
  return listedAddress(text) ?? fold(text.trim());
}
