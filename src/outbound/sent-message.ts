import type { Steps } from '../base/steps.ts';
import type { NewSentMessage } from '../events/types.ts';
import { sentId } from '../mail/send-tokens.ts';
import type { Outgoing } from '../mail/sending.ts';
import type { Delivery } from '../spool/types.ts';
import { fillingSubject } from './compose/filling.ts';

/**
 * The row of the message that a delivery carries, before anything has happened to it; `receivedAt` is the spool message's. In steps, because
 * its subject is merged, and a call may have a thousand recipients.
 */
export function* makingSentMessage(
  outgoing: Outgoing,
  delivery: Pick<Delivery, 'id' | 'account' | 'recipient'>,
  receivedAt: number,
): Steps<NewSentMessage> {
  const { sender, tags, template, subaccount, apiKey } = outgoing;
  const subject = yield* fillingSubject(outgoing, delivery.recipient, new Date(receivedAt));
  const metadata = { ...outgoing.metadata, ...outgoing.rcptMetadata[delivery.recipient.toLowerCase()] };
  return {
    id: sentId(delivery.id),
    account: delivery.account,
    createdAt: new Date(receivedAt),
    email: delivery.recipient,
    delivery: delivery.id,
    sender,
    subject,
    tags,
    template,
    subaccount,
    apiKey,
    metadata,
  };
}
