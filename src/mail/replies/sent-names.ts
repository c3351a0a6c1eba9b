import { createHash } from 'node:crypto';
import { parseAddressList } from '../addresses/address-list.ts';
import { parseReplyAddress } from '../addresses/reply-address.ts';
import { allValues, type HeaderField } from '../mime/headers.ts';
import { idsIn, threadIdOf, threadOfRoot } from './thread.ts';

// Names by which a reply may refer to a sent message, besides our Message-ID, which has its `_id`: the Message-ID of
// the caller, the one that a relay gave it, and the reply address.

/** The conversation of a sent message, where it differs from the default. */
export interface SentConversation {
  /** Its thread (mail/replies/thread.ts), if that is not the one that its own Message-ID begins. */
  readonly thread?: string;
  /** Other names by which replies refer to it. */
  readonly names?: readonly string[];
}

/** Message-IDs that are sent as the caller gave them (RFC 5322 section 3.6.4, without obsolete forms). */
const GIVEN_ID = /^<[!-;=?-~]{1,200}@[!-;=?-~]{1,200}>$/;

/** The Message-ID that the caller gave in a list of fields, if it is sent as it is. */
export function givenMessageId(headers: Iterable<readonly [name: string, value: string]>): string | undefined {
  for (const [name, value] of headers)
    if (name.toLowerCase() === 'message-id' && GIVEN_ID.test(value.trim())) return value.trim();
  return undefined;
}

/** The conversation of a message, to be spread into its options; empty if it has none. */
export function toConversation(
  fields: readonly HeaderField[],
  sender: string,
): { readonly conversation?: SentConversation } {
  const thread = threadIdOf(fields);
  const names = [...idsIn(fields, 'message-id').slice(0, 1).map(nameOfId), ...replyAddressesIn(fields, sender)];
  if (thread === null && names.length === 0) return {};
  return { conversation: { ...(thread !== null && { thread }), ...(names.length > 0 && { names }) } };
}

/** As `toConversation`, from the headers of a draft; its Message-ID counts only if it is sent. */
export function conversationOfDraft(
  headers: Iterable<readonly [name: string, value: string]>,
  sender: string,
): ReturnType<typeof toConversation> {
  const all = [...headers];
  const id = givenMessageId(all);
  const others = all.filter(([name]) => name.toLowerCase() !== 'message-id');
  const sent = id === undefined ? others : [...others, ['message-id', id] as const];
  return toConversation(
    sent.map(([name, value]) => ({ name, value })),
    sender,
  );
}

/** The thread of a message that was sent, by its `_id`. */
export const threadOfSent = (id: string, { thread }: { readonly thread?: string | null | undefined } = {}): string =>
  thread ?? threadOfRoot(`${id}@`);

/** The most reply addresses of a message that are used. */
const MAX_ADDRESSES = 4;

function replyAddressesIn(fields: readonly HeaderField[], sender: string): string[] {
  const given = allValues(fields, 'reply-to').flatMap((value) =>
    parseAddressList(value.slice(0, LONGEST_LIST)).mailboxes.map(({ address }) => address),
  );
  return [...new Set([...given, sender].filter(isReplyAddress).map(nameOfAddress))].slice(0, MAX_ADDRESSES);
}

const LONGEST_LIST = 4096;

const isReplyAddress = (address: string): boolean =>
  parseReplyAddress(address.slice(0, address.lastIndexOf('@'))) !== undefined;

const nameOf = (kind: string, text: string): string =>
  createHash('sha256').update(`${kind}\0${text.toLowerCase()}`).digest('base64url').slice(0, 22);

const nameOfId = (id: string): string => nameOf('id', id);

/** The name of a message by its address for replies. */
export const nameOfAddress = (address: string): string => nameOf('address', address);

const nameOfToken = (token: string): string => nameOf('relayed', token);

/** The shortest and longest token of a relay for a message, and the most names taken from one reply. */
const [SHORTEST_TOKEN, LONGEST_TOKEN] = [16, 200];
const MAX_NAMES = 6;

/**
 * The names in the SMTP reply with which a relay accepted a message. Relays that write a Message-ID of their own name
 * it there: `250 Ok 0102018…` of SES becomes `<0102018…@email.amazonses.com>`, Exchange has the whole id.
 */
export function namesInSmtpReply(reply: string): string[] {
  const ids = [...reply.matchAll(/<([^<>\s]{1,500}@[^<>\s]{1,500})>/g)].map(([, id = '']) => nameOfId(id));
  const tokens = reply.split(/[\s,;:=<>()[\]"']+/).filter(isToken);
  return [...new Set([...ids, ...tokens.map(nameOfToken)])].slice(0, MAX_NAMES);
}

/** Whether it is random text, and no word, number, address or host name. */
function isToken(word: string): boolean {
  if (word.length < SHORTEST_TOKEN || word.length > LONGEST_TOKEN || !/^[\w.+/-]+$/.test(word)) return false;
  return /[a-z]/i.test(word) && (/\d/.test(word) || /[a-z][A-Z]/.test(word)) && !/\.[a-z]{2,}$/i.test(word);
}

/** The names that an id in a reply may stand for: itself, and the tokens in its left part. */
export function namesOfId(id: string): string[] {
  const local = id.slice(0, id.includes('@') ? id.lastIndexOf('@') : undefined);
  const pieces = [local, ...local.split(/[.+]/)].filter(isToken).slice(0, MAX_NAMES);
  return [...new Set([nameOfId(id), ...pieces.map(nameOfToken)])];
}
