import { createHash } from 'node:crypto';
import { type Bytes, readStart } from '../base/bytes.ts';
import { namesOf } from '../base/tables.ts';
import { foldCase, toAsciiDomain } from '../mail/addresses/address.ts';
import { authorOf } from '../mail/addresses/author.ts';
import { createFieldSearch, type FieldSearch, parseFound, START_BYTES } from '../mail/mime/field-search.ts';
import type { HeaderField } from '../mail/mime/headers.ts';
import { threadIdOf } from '../mail/replies/thread.ts';

// The order in which a route posts its messages (decision 0060).

/** The facts about an order for the API and for acceptance. */
interface OrderFacts {
  readonly about: string;
  /** Finds the header fields that determine it. */
  readonly find: FieldSearch;
  /** The key that consecutive messages share, from their header; null if the message is in no order. */
  readonly keyOf: (fields: readonly HeaderField[], mailFrom: string) => string | null;
}

export const ORDERS = {
  none: { about: 'as soon as possible', find: () => '', keyOf: () => null },
  sender: {
    about: 'messages of one author, one after another',
    find: createFieldSearch([{ name: 'from', most: 2 }]),
    keyOf: (fields, mailFrom) => folded(authorOf(fields, mailFrom).mailbox?.address ?? ''),
  },
  thread: {
    about: 'messages of one conversation, one after another',
    find: createFieldSearch(['references', 'in-reply-to', 'message-id'].map((name) => ({ name, most: 2 }))),
    keyOf: threadIdOf,
  },
} as const satisfies Readonly<Record<string, OrderFacts>>;

export type Order = keyof typeof ORDERS;

export const ORDER_NAMES = namesOf(ORDERS);

/** The order of this name; a route without one, or with one of a later version, has none. */
export const toOrder = (name: string | undefined): Order => ORDER_NAMES.find((order) => order === name) ?? 'none';

/** Returns the sequence of a message for a route with this order; undefined if it is in none. */
export type Sequencing = (order: Order | undefined, routeId: string) => string | undefined;

/**
 * Reads the header for routes with an order, within the limits of summaries: no header takes long on the thread that
 * accepts mail.
 */
export async function sequencingOf(body: Bytes, mailFrom: string): Promise<Sequencing> {
  const start = await readStart(body, START_BYTES);
  const keys = new Map<Order, string | null>();
  function keyOf(order: Order): string | null {
    const { find, keyOf }: OrderFacts = ORDERS[order];
    const key = keys.get(order) ?? keyOf(parseFound(find(start)), mailFrom);
    keys.set(order, key);
    return key;
  }
  return (order, routeId) => {
    const key = order === undefined ? null : keyOf(order);
    // Short, and without personal addresses. It includes the order, so that sequences of two orders never collide.
    if (key === null || key === '') return undefined;
    return `${order}:${createHash('sha256').update(`${routeId}\0${key}`).digest('base64url').slice(0, 22)}`;
  };
}

/** An address in canonical form. */
function folded(address: string): string {
  const at = address.lastIndexOf('@');
  const domain = address.slice(at + 1);
  return `${foldCase(address.slice(0, at + 1))}${toAsciiDomain(domain) ?? foldCase(domain)}`;
}
