import { secondaryAuthorsOf } from '../../../mail/addresses/author.ts';
import { headerBlock } from '../../../mail/mime/header-section.ts';
import { type HeaderField, parseHeaders } from '../../../mail/mime/headers.ts';
import type { Draft, Outgoing } from '../../../mail/outgoing.ts';
import { operation } from '../../operation.ts';
import { findMessage, messageId } from './info.ts';
import { sentRecord } from './params.ts';
import { submit } from './send.ts';

const resend = operation({
  path: '/messages/resend',
  access: 'settings',
  extension: true,
  summary: 'Sends a message again to its recipient, as a new message with the same content and options.',
  notes:
    'The checks of /messages/send apply again: the rejection list, the domain of the sender, the subaccount, quotas. ' +
    'The message is composed again, so date merge tags have the current date; a MIME document keeps its Date and ' +
    'Message-ID, so some mailboxes drop it as a duplicate. Once the content is deleted (/messages/content), the ' +
    'error is Unknown_Message.',
  params: { id: messageId },
  returns: sentRecord,
  errors: ['Unknown_Subaccount', 'ServiceUnavailable'],
  notHereError: 'Unknown_Message',
  once: true,
  example: { id: '5c1e0d0000000000000000000000000a' },
  async handle({ id }, call) {
    const row = await findMessage(id, call);
    const note = await call.actions.begin();
    // One at a time, because each holds a whole message in memory.
    return call.inTurn('resend', async () => {
      const kept = row.delivery ? await call.messages.content(row.delivery, call.settings.maxMessageBytes) : undefined;
      const outgoing = kept?.message.envelope.outgoing;
      if (!kept || !outgoing) throw call.refuse('Unknown_Message', `${id}: its content is not kept any more`);
      const [sent] = await submit(
        {
          outgoing: { ...outgoing, apiKey: call.apiKey },
          otherAuthors: secondaryAuthorsOf(fieldsOf(outgoing, kept.bytes)),
          bytes: kept.bytes,
          recipients: [kept.delivery.recipient],
          sendAt: null,
          client: null,
        },
        call,
      );
      if (!sent) throw call.refuse('ServiceUnavailable');
      note('message sent again', 1, `${id} as ${sent._id}`);
      return sent;
    });
  },
});

function fieldsOf({ form }: Outgoing, bytes: Buffer): HeaderField[] {
  if (form === 'mime') return parseHeaders(headerBlock(bytes));
  const draft: Draft = JSON.parse(bytes.toString());
  return draft.headers.map(([name, value]) => ({ name, value }));
}

export const messagesResend = [resend];
