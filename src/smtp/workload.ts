import type { Match } from '../inbound/types.ts';
import type { Transaction } from './session-state.ts';

// A message is kept once, but prepared and posted, or sent, for each delivery: a thousand recipients of one large
// message would be hours of work, and gigabytes of posts, for one transaction of a stranger. So recipients times bytes
// have a bound. Clients that declare the size get the reply at RCPT, and send the message to the other recipients in
// another transaction (RFC 5321 section 4.5.3.1.10); the others after the message.

/** Messages of any size may have this many recipients (RFC 5321 section 4.5.3.1.8). */
const ALWAYS = 100;
/** Declared sizes are estimates: the message may be larger by this factor, and by this many bytes. */
const SLACK = { times: 1.25, bytes: 65_536 };

/** Deliveries of a match: to the route, and to those that get a copy. */
const deliveriesOf = ({ match }: { readonly match: Match | null }): number => 1 + (match?.also?.length ?? 0);

function deliveries({ recipients }: Transaction): number {
  return [...recipients.values()].reduce((sum, recipient) => sum + deliveriesOf(recipient), 0);
}

/** Whether one more recipient is too many for a message of the size that was declared. */
export function isTooMany(transaction: Transaction, added: Match | null, maxMessageBytes: number): boolean {
  const { size, recipients } = transaction;
  if (size === undefined || recipients.size === 0) return false;
  return (deliveries(transaction) + deliveriesOf({ match: added })) * size > ALWAYS * maxMessageBytes;
}

/** How large the message of a transaction may be, by the number of its recipients. */
export function mostBytes(transaction: Transaction, maxMessageBytes: number): number {
  if (transaction.recipients.size <= 1) return maxMessageBytes;
  const each = (ALWAYS * maxMessageBytes) / deliveries(transaction);
  return Math.min(maxMessageBytes, Math.floor(each * SLACK.times) + SLACK.bytes);
}
