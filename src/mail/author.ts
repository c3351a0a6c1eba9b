import { parseAddress } from './address.ts';
import { type ListedMailbox, parseAddressList } from './address-list.ts';
import { isHeadless } from './header-section.ts';
import { allValues, type HeaderField, parseHeaders } from './headers.ts';
import type { Addressing, Mailbox } from './message.ts';
import { CAPS } from './outgoing.ts';

/**
 * Who a message says wrote it. There is one answer, and it is asked for here: the verdicts judge it, the payload and
 * the API show it, the submission holds its account to it.
 */
export interface Author {
  /** Who is shown: the first mailbox of From, else the sender of the envelope. Undefined when nobody is named. */
  readonly mailbox: Mailbox | undefined;
  /** Every domain that a reader might take for the author's, that of the mailbox first; in lower case, as A-labels. */
  readonly domains: readonly string[];
  /** How many From fields there are. */
  readonly fields: number;
  /**
   * Whether it is beyond doubt: one From field, with nothing in it but mailboxes of one domain (RFC 9989 section
   * 5.3.1). If not, nobody can vouch for the author, whatever was signed.
   */
  readonly certain: boolean;
}

/** More domains than that in one From field are somebody's joke. */
const MOST_DOMAINS = 4;

/**
 * The author by the fields of a message; `mailFrom` is the reverse-path of its envelope, for messages whose From names
 * nobody.
 */
export function authorOf(fields: readonly HeaderField[], mailFrom = ''): Author {
  const values = allValues(fields, 'from');
  const lists = values.map(parseAddressList);
  const mailboxes = lists.flatMap((list) => list.mailboxes);
  const named = [...mailboxes.map(({ domain }) => domain), ...lists.flatMap(({ otherDomains }) => otherDomains)];
  const domains = [...new Set(named.filter((domain) => domain !== undefined))];
  const [mailbox] = mailboxes;
  const certain = lists.length === 1 && lists.every(({ sound }) => sound) && domains.length === 1;
  if (mailbox) {
    return { mailbox: shown(mailbox), domains: domains.slice(0, MOST_DOMAINS), fields: lists.length, certain };
  }
  const sender = parseAddress(mailFrom);
  return {
    mailbox: mailFrom === '' ? undefined : { address: mailFrom, name: null },
    domains: [...new Set([...(sender ? [sender.domain] : []), ...domains])].slice(0, MOST_DOMAINS),
    fields: lists.length,
    certain: false,
  };
}

/** The author by the bytes of a message, or by its beginning: no more of it is read than a header may have. */
export function authorOfMessage(message: Uint8Array, mailFrom: string): Author {
  return authorOf(isHeadless(message) ? [] : parseHeaders(headerBlock(message)), mailFrom);
}

/**
 * The one mailbox that may stand for whoever hands a message over; undefined when From is missing, unclear, or names
 * several.
 */
export function soleAuthor(fields: readonly HeaderField[]): Mailbox | undefined {
  const [value, ...others] = allValues(fields, 'from');
  if (value === undefined || others.length > 0) return undefined;
  const {
    mailboxes: [mailbox, another],
    sound,
  } = parseAddressList(value);
  return mailbox && !another && sound ? shown(mailbox) : undefined;
}

/** Whom the address fields of a message name: its author, and whom it is for. */
export function correspondentsOf(fields: readonly HeaderField[]): Omit<Addressing, 'subject'> {
  const copies = allValues(fields, 'cc');
  const cc = copies.length === 0 ? undefined : mailboxesIn(copies);
  return { from: authorOf(fields).mailbox, to: mailboxesIn(allValues(fields, 'to')), cc };
}

function mailboxesIn(values: readonly string[]): Mailbox[] {
  return values.flatMap((value) => parseAddressList(value).mailboxes.map(shown));
}

function shown({ address, name }: ListedMailbox): Mailbox {
  return { address, name };
}

/** Up to the empty line that ends the header section. */
function headerBlock(message: Uint8Array): Buffer {
  const start = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, CAPS.headerBytes));
  for (let at = 0; at < start.length; ) {
    if (start[at] === 0x0a || (start[at] === 0x0d && start[at + 1] === 0x0a)) return start.subarray(0, at);
    const end = start.indexOf(0x0a, at);
    if (end === -1) break;
    at = end + 1;
  }
  return start;
}
