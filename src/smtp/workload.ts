import type { Match } from '../inbound/types.ts';
import type { Transaction } from './session-state.ts';

// A message is stored once, but prepared and posted, or sent, for each delivery: a thousand recipients of one large
// message would cost hours of work and gigabytes of posts. So recipients times bytes are limited. A client that
// declares the size gets the reply at RCPT, and sends to the remaining recipients in another transaction (RFC 5321
// section 4.5.3.1.10); any other gets it after the message.

/** Messages of any size may have this many recipients (RFC 5321 section 4.5.3.1.8). */
const ALWAYS = 100;
/** Declared sizes are estimates: the message may be larger by this factor, and by this many bytes. */
const SLACK = { times: 1.25, bytes: 65_536 };

/** The number of deliveries of a match: one for the route, and one for each of its further URLs. */
const deliveriesOf = ({ match }: { readonly match: Match | null }): number => 1 + (match?.also?.length ?? 0);

function deliveries({ recipients }: Transaction): number {
  return [...recipients.values()].reduce((sum, recipient) => sum + deliveriesOf(recipient), 0);
}

/** Whether one more recipient is too many for a message of the size that was declared. */
export function exceedsWorkload(transaction: Transaction, added: Match | null, maxMessageBytes: number): boolean {
  const { size, recipients } = transaction;
  if (size === undefined || recipients.size === 0) return false;
  return (deliveries(transaction) + deliveriesOf({ match: added })) * size > ALWAYS * maxMessageBytes;
}

/** The maximum size of the message of a transaction, by the number of its deliveries. */
export function maxBytesFor(transaction: Transaction, maxMessageBytes: number): number {
  if (transaction.recipients.size <= 1) return maxMessageBytes;
  const each = (ALWAYS * maxMessageBytes) / deliveries(transaction);
  return Math.min(maxMessageBytes, Math.floor(each * SLACK.times) + SLACK.bytes);
}
