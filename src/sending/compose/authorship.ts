import { parseAddress } from '../../mail/address.ts';
import { soleAuthorOf } from '../../mail/author.ts';
import { findFields } from '../../mail/compose/fields.ts';

// A domain that signs mail, or whose SPF record covers it, speaks for the author in From (RFC 9989). So the author that
// was checked when the message was submitted must be the one that every reader finds in what leaves.

/** The message has no author that every reader agrees on, or another than its account was allowed. */
export class UnclearAuthor extends Error {
  override readonly name = 'UnclearAuthor';
  constructor(why: string) {
    super(`the message ${why}`);
  }
}

/** Throws `UnclearAuthor` unless a composed message names the sender, and no other, as its author. */
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
