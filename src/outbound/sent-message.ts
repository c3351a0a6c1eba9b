import type { NewSentMessage } from '../events/types.ts';
import type { Outgoing } from '../mail/sending.ts';
import { sentId } from '../mail/send-tokens.ts';
import type { Delivery } from '../spool/types.ts';

/** The row of the message that a delivery carries, before anything has happened to it; `receivedAt` is the spool message's. */
export function toSentMessage(outgoing: Outgoing, delivery: Pick<Delivery, 'id' | 'account' | 'recipient'>, receivedAt: number): NewSentMessage {
  const { sender, subject, tags, template, subaccount, apiKey } = outgoing;
  const metadata = { ...outgoing.metadata, ...outgoing.rcptMetadata[delivery.recipient.toLowerCase()] };
  return {
    id: sentId(delivery.id), account: delivery.account, createdAt: new Date(receivedAt), email: delivery.recipient, delivery: delivery.id,
    sender, subject, tags, template, subaccount, apiKey, metadata,
  };
}
