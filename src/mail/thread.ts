import { createHash } from 'node:crypto';
import { allValues, type HeaderField } from './headers.ts';

// The conversation that a message belongs to, from its identification fields (RFC 5322 section 3.6.4).

/** Characters of a field in which ids are looked for, and ids that are used. A root is at the beginning. */
const MOST_TEXT = 64 * 1024;
const MOST_IDS = 100;
/** What is longer is no id that a mail program wrote (RFC 5322 section 2.1.1). */
const ID = /<([^<>\s]{1,996})>/g;

/** The ids in all fields of this name, without their brackets, in the order of the message. */
export function idsIn(fields: readonly HeaderField[], name: 'references' | 'in-reply-to' | 'message-id'): string[] {
  const ids: string[] = [];
  for (const value of allValues(fields, name))
    for (const [, id = ''] of value.slice(0, MOST_TEXT).matchAll(ID)) {
      if (ids.length >= MOST_IDS) return ids;
      ids.push(id);
    }
  return ids;
}

/**
 * A stable id of the conversation: the same for its first message and for every answer to it. The root is the first id
 * in References, else the one in In-Reply-To, else the message itself; null if it names none.
 */
export function threadIdOf(fields: readonly HeaderField[]): string | null {
  const root = (['references', 'in-reply-to', 'message-id'] as const)
    .map((name) => idsIn(fields, name)[0])
    .find((id) => id !== undefined);
  return root === undefined ? null : createHash('sha256').update(root).digest('base64url').slice(0, 22);
}
