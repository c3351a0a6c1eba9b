import { isUtf8 } from 'node:buffer';
import { findFields } from '../compose/fields.ts';
import type { Addressing, Mailbox } from '../message.ts';
import { isOverlong, readFields } from '../mime/header-section.ts';
import { allValues, decodeWords, type HeaderField, parseHeaders } from '../mime/headers.ts';
import { parseAddress, toAsciiDomain, toWire } from './address.ts';
import { type FieldMailbox, parseAddressList } from './address-list.ts';

/** The author that a message claims. Verdicts, the payload, the API and the check of submissions use this answer. */
export interface Author {
  /** The author to show: the first mailbox of From, else the envelope sender. Undefined if there is neither. */
  readonly mailbox: Mailbox | undefined;
  /** Every domain that a reader may take for the author's, the mailbox's own first; lower-case A-labels. */
  readonly domains: readonly string[];
  /** Set if From names more domains than that. */
  readonly crowded?: true;
  /** Number of From fields. */
  readonly fields: number;
  /**
   * Whether the author is unambiguous: one From field that contains only mailboxes of one domain (RFC 9989 section
   * 5.3.1). If not, no signature can authenticate the author.
   */
  readonly certain: boolean;
}

/** A From field with more domains is not a serious one. */
const MAX_DOMAINS = 4;

/** Determines the author from the fields of a message; `mailFrom` is the reverse-path, used if From has no mailbox. */
export function authorOf(fields: readonly HeaderField[], mailFrom = ''): Author {
  const values = allValues(fields, 'from');
  const lists = values.map(parseAddressList);
  const mailboxes = lists.flatMap((list) => list.mailboxes);
  const named = [...mailboxes.map(({ domain }) => domain), ...lists.flatMap(({ otherDomains }) => otherDomains)];
  const domains = [...new Set(named.filter((domain) => domain !== undefined))];
  const [mailbox] = mailboxes;
  const certain = lists.length === 1 && lists.every(({ sound }) => sound) && domains.length === 1;
  if (mailbox) {
    return { mailbox: shown(mailbox), ...asked(domains), fields: lists.length, certain };
  }
  const sender = parseAddress(mailFrom);
  return {
    mailbox: mailFrom === '' ? undefined : { address: mailFrom, name: null },
    ...asked([...new Set([...(sender ? [sender.domain] : []), ...domains])]),
    fields: lists.length,
    certain: false,
  };
}

/** The domains whose DMARC is checked. */
function asked(domains: readonly string[]): Pick<Author, 'domains' | 'crowded'> {
  return { domains: domains.slice(0, MAX_DOMAINS), ...(domains.length > MAX_DOMAINS && { crowded: true }) };
}

/**
 * Determines the author from the bytes of a message or of its beginning; reads at most the largest header allowed. Of a
 * larger one the author is never certain.
 */
export function authorOfMessage(message: Uint8Array, mailFrom: string): Author {
  const author = authorOf(readFields(message), mailFrom);
  return isOverlong(message) ? { ...author, certain: false } : author;
}

/** The author of an outgoing message, on which all mail programs agree. */
export interface SoleAuthor extends Mailbox {
  /** Lower-case A-labels. */
  readonly domain: string;
  /** Whether the field is in the simple form that all parsers read alike. If not, it is rewritten before it leaves. */
  readonly plain: boolean;
  /** Addresses of other domains in its encoded words: some programs decode these before they look for addresses. */
  readonly hidden: readonly string[];
}

/** Why there is no sole author, as a predicate. `missing`: there is no From at all, and one may be added. */
interface Unclear {
  readonly unclear: string;
  readonly missing: boolean;
}

/** Most bytes of a From field; RFC 5322 has no limit, and no real name comes near. */
const LONGEST_FROM = 4096;
/** Line ends to some mail programs, though not by RFC 5322; in bytes: U+0085, U+2028 and U+2029 are UTF-8. */
const LINE_ENDS = /[\r\n\0\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;
/** The same in a block that is not UTF-8, where U+0085 is one byte. */
const EIGHT_BIT_LINE_ENDS = new RegExp(`${LINE_ENDS.source}|\\x85`);
const FOLDED = /\r?\n[ \t]+/g;
/** Words, encoded words or one quoted string. */
const PLAIN_DISPLAY = /(?:[\w!#$%&'*+/=?^`{|}~.\u0080-\u{10ffff}\t -]*|"[^"\\]*"[ \t]*)/u.source;
/** Without quotes, comments or routes. */
const PLAIN_ADDRESS = /[\w!#$%&'*+/=?^`{|}~.-]+@[\w.-]+/.source;
const PLAIN_FROM = new RegExp(`^(?:${PLAIN_DISPLAY}<${PLAIN_ADDRESS}>|${PLAIN_ADDRESS})$`, 'u');
const PLAIN_NAME = /^From:/im;
const ENCODED_WORDS = /=\?[^\s?]+\?[bq]\?/i;
const ENDS_IN_WORD = /[^\s<>"(),:;\\]$/;
const BEGINS_WITH_WORD = /^[^\s<>"(),:;\\]+/;

/**
 * Determines the author of a message that an account sends, from its header block. The account must be allowed to write
 * as this author, so anything that a mail program could take for another author makes it unclear: a second From, also
 * in disguise (`F rom`, behind a bare CR), a second address, a form that parsers read differently.
 */
export function soleAuthorOf(block: Buffer, longest = LONGEST_FROM): SoleAuthor | Unclear {
  const fields = parseHeaders(block);
  const [value, ...others] = allValues(fields, 'from');
  const lines = fromLines(block);
  if (value === undefined && lines === 0) return { unclear: 'has no From', missing: true };
  if (others.length > 0 || lines > 1) return unclear('has more than one From');
  if (value === undefined) return unclear('has a From that mail programs read differently');
  if (Buffer.byteLength(value) > longest) return unclear(`has a From of more than ${longest} bytes`);
  const { mailboxes, unreadable, sound } = parseAddressList(value);
  const [mailbox, another] = mailboxes;
  if (another) return unclear('names more than one author in From');
  if (!mailbox) return unclear('names no author in From');
  const { domain } = mailbox;
  if (!sound || unreadable.length > 0 || domain === undefined || !isUnambiguousAddress(mailbox.address))
    return unclear('has a From that mail programs read differently');
  const hidden = ENCODED_WORDS.test(value) ? otherAddressesIn(decodeWords(value), domain) : [];
  const plain = hidden.length === 0 && PLAIN_FROM.test(value) && PLAIN_NAME.test(block.toString('latin1'));
  return { ...shown(mailbox), domain, plain, hidden };
}

const unclear = (why: string): Unclear => ({ unclear: why, missing: false });

/** The message has no author that every reader agrees on, or another than its account was allowed. */
export class UnclearAuthor extends Error {
  override readonly name = 'UnclearAuthor';
  constructor(why: string) {
    super(`the message ${why}`);
  }
}

/**
 * Throws `UnclearAuthor` unless a composed message names the sender, and no other, as its author: a domain that signs
 * mail, or whose SPF record covers it, speaks for the author in From (RFC 9989).
 */
export function assertAuthor(message: Buffer, sender: string): void {
  const author = soleAuthorOf(message.subarray(0, findFields(message, 0).end), Infinity); // merged names are long
  if ('unclear' in author) throw new UnclearAuthor(author.unclear);
  if (!isAuthor(author, sender)) throw new UnclearAuthor('names another author than its sender');
}

/** Whether two addresses are the same mailbox to a reader of From: neither case nor the form of the domain matters. */
export function isAuthor({ address }: { readonly address: string }, sender: string): boolean {
  const [given, wanted] = [parseAddress(address), parseAddress(sender)];
  if (!given || !wanted) return false;
  return given.domain === wanted.domain && given.mailbox.toLowerCase() === wanted.mailbox.toLowerCase();
}

/** Whether all mail programs read an address alike as the author: without quotes and address literals. */
export function isUnambiguousAddress(address: string): boolean {
  const parsed = parseAddress(address);
  return parsed !== undefined && !`${address}${toWire(parsed)}`.includes('"') && !parsed.domain.startsWith('[');
}

/** The addresses in a text whose domain is not `domain`, each as `@` and its domain. */
export function otherAddressesIn(text: string, domain: string): string[] {
  const pieces = text.split('@');
  return pieces.slice(1).flatMap((behind, at) => {
    const name = toAsciiDomain(BEGINS_WITH_WORD.exec(behind)?.[0] ?? '');
    return ENDS_IN_WORD.test(pieces[at] ?? '') && name?.includes('.') && name !== domain ? [`@${name}`] : [];
  });
}

/** The number of lines that a mail program may take for a From field. */
function fromLines(block: Buffer): number {
  return block
    .toString('latin1')
    .replace(FOLDED, ' ')
    .split(isUtf8(block) ? LINE_ENDS : EIGHT_BIT_LINE_ENDS)
    .filter((line) => /^from$/i.test(line.slice(0, Math.max(0, line.indexOf(':'))).replace(/[^!-~]/g, ''))).length;
}

/** Addresses that mail programs show beside the author, as `x on behalf of y`: of Sender and the Resent fields. */
export function secondaryAuthorsOf(fields: readonly HeaderField[]): string[] {
  return ['sender', 'resent-from', 'resent-sender']
    .flatMap((name) => allValues(fields, name))
    .map(parseAddressList)
    .flatMap(({ mailboxes, otherDomains }) => [
      ...mailboxes.map(({ address }) => address),
      ...otherDomains.map((domain) => `@${domain}`),
    ]);
}

/** The mailboxes in the address fields of a message: its author and its recipients. */
export function addressFieldsOf(fields: readonly HeaderField[]): Omit<Addressing, 'subject'> {
  const copies = allValues(fields, 'cc');
  const cc = copies.length === 0 ? undefined : mailboxesIn(copies);
  return { from: authorOf(fields).mailbox, to: mailboxesIn(allValues(fields, 'to')), cc };
}

function mailboxesIn(values: readonly string[]): Mailbox[] {
  return values.flatMap((value) => parseAddressList(value).mailboxes.map(shown));
}

function shown({ address, name }: FieldMailbox): Mailbox {
  return { address, name };
}
