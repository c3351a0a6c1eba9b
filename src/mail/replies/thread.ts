import { createHash } from 'node:crypto';
import { createFieldSearch, parseFound } from '../mime/field-search.ts';
import { allValues, decodeWords, type HeaderField } from '../mime/headers.ts';
import { MESSAGE_LIMITS } from '../outgoing.ts';

// The conversation that a message belongs to, from its identification fields (RFC 5322 section 3.6.4).

/** Characters of a field that are searched for ids: its root is at the beginning, the latest at the end. */
const MAX_TEXT = 64 * 1024;
/** Ids of a field that are used: the first and the last of them. */
const MAX_IDS = 100;
/** Mail programs write no longer ids (RFC 5322 section 2.1.1). */
const LONGEST_ID = 996;
/** Some programs encode long fields (RFC 2047), which only text may be; characters that are decoded. */
const MAX_ENCODED = 8192;
const [OPEN, CLOSE, BACKSLASH, LESS] = [0x28, 0x29, 0x5c, 0x3c];

/** The fields that hold ids, in lower case. */
export const ID_FIELDS = ['references', 'in-reply-to', 'message-id'] as const;

/**
 * The ids in all fields of this name, in the order of the message, without their brackets and without blanks. Text
 * around them and comments are left out.
 */
export function idsIn(fields: readonly HeaderField[], name: (typeof ID_FIELDS)[number]): string[] {
  const ids = allValues(fields, name).flatMap((value) => piecesOf(value).flatMap(idsOf));
  return ids.length <= MAX_IDS ? ids : [...ids.slice(0, MAX_IDS / 2), ...ids.slice(-MAX_IDS / 2)];
}

/**
 * A stable id of the conversation: the same for its first message and for every reply. The root is the first id in
 * References, else the one in In-Reply-To, else the message itself; null if it names none.
 */
export function threadIdOf(fields: readonly HeaderField[]): string | null {
  for (const name of ID_FIELDS) {
    const [root] = idsIn(fields, name);
    if (root !== undefined) return threadOfRoot(root);
  }
  return null;
}

/** The id of the conversation that a message with this Message-ID begins. */
export function threadOfRoot(id: string): string {
  return createHash('sha256')
    .update(sentIdIn(id) ?? id.toLowerCase())
    .digest('base64url')
    .slice(0, 22);
}

const SENT_ID = /^([0-9a-f]{32})@/i;

/** The `_id` of a message that a Message-ID of ours has: `<_id>@<host>`. Hosts change their names, ids stay. */
export function sentIdIn(id: string): string | undefined {
  return SENT_ID.exec(id)?.[1]?.toLowerCase();
}

function piecesOf(value: string): string[] {
  if (value.length > MAX_TEXT) return [value.slice(0, MAX_TEXT / 2), value.slice(-MAX_TEXT / 2)];
  return [value.length <= MAX_ENCODED && value.includes('=?') ? decodeWords(value) : value];
}

/** The ids in a text, in one pass. */
function idsOf(text: string): string[] {
  const ids: string[] = [];
  let hasComments = true;
  let hasBrackets = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === OPEN && hasComments) {
      const end = endOfComment(text, at);
      // One that is never closed is text, and so are those behind it: nothing is read twice.
      if (end === -1) hasComments = false;
      else at = end;
    } else if (code === LESS) {
      hasBrackets = true;
      const end = text.indexOf('>', at);
      if (end === -1) break;
      const id = text.slice(text.lastIndexOf('<', end) + 1, end).replace(/\s+/g, '');
      if (id !== '' && id.length <= LONGEST_ID) ids.push(id);
      at = end;
    }
  }
  return hasBrackets ? ids : bareIdsOf(text);
}

/** The last character of the comment that begins at `start`; -1 if it has no end. */
function endOfComment(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH) at++;
    else if (code === OPEN) depth++;
    else if (code === CLOSE && --depth === 0) return at;
  }
  return -1;
}

/** Without brackets, if there is nothing else: a sentence may name an address, which is no id. */
function bareIdsOf(text: string): string[] {
  const words = text.split(/[\s,]+/).filter((word) => word !== '');
  return words.every((word) => word.length <= LONGEST_ID && /^[^\s@]+@[^\s@]+$/.test(word)) ? words : [];
}

/** The most ids that are looked up, in all and from In-Reply-To: some programs name several parents. */
const MAX_LOOKED_UP = 20;
const MAX_PARENTS = 5;

const findReplyFields = createFieldSearch(
  ['references', 'in-reply-to', 'from', 'subject', 'content-type'].map((name) => ({ name, most: 10 })),
  { startBytes: MESSAGE_LIMITS.headerBytes, fieldBytes: MESSAGE_LIMITS.headerBytes },
);

/** The fields that identify a reply and describe it, from the first octets of a message. */
export const replyFieldsIn = (start: Uint8Array): HeaderField[] => parseFound(findReplyFields(start));

/** The ids of the messages that a message replies to, the nearest first; none if it is no reply. */
export function repliedToIds(fields: readonly HeaderField[]): string[] {
  const parents = idsIn(fields, 'in-reply-to').slice(0, MAX_PARENTS);
  return [...new Set([...parents, ...idsIn(fields, 'references').toReversed()])].slice(0, MAX_LOOKED_UP);
}
