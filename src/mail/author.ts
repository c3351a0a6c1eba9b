import { parseAddress } from './address.ts';
import { type ListedMailbox, parseAddressList } from './address-list.ts';
import { headerBlock, isHeadless, isOverlong } from './header-section.ts';
import { allValues, type HeaderField, parseHeaders } from './headers.ts';
import type { Addressing, Mailbox } from './message.ts';

/**
 * The author that a message claims to have. Verdicts, the payload, the API and the check of submissions all use this
 * one answer.
 */
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
const MOST_DOMAINS = 4;

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

/** The domains that are asked about. */
function asked(domains: readonly string[]): Pick<Author, 'domains' | 'crowded'> {
  return { domains: domains.slice(0, MOST_DOMAINS), ...(domains.length > MOST_DOMAINS && { crowded: true }) };
}

/**
 * Determines the author from the bytes of a message or of its beginning; reads at most the largest header allowed. Of a
 * larger one the author is never certain.
 */
export function authorOfMessage(message: Uint8Array, mailFrom: string): Author {
  const author = authorOf(isHeadless(message) ? [] : parseHeaders(headerBlock(message)), mailFrom);
  return isOverlong(message) ? { ...author, certain: false } : author;
}

/**
 * The only mailbox in From, which may stand for the submitter; undefined if From is missing, unclear, or names several.
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

/** The mailboxes in the address fields of a message: its author and its recipients. */
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
