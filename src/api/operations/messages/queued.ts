import { z } from 'zod';
import { toTimestamp } from '../../../base/clock.ts';
import type { SentMessageRow } from '../../../store/rows/messages.ts';
import { type Call, operation } from '../../operation.ts';
import { timeOrNull } from '../fields.ts';
import { findMessage, messageId } from './info.ts';
import { sentRecord } from './params.ts';
import { submit, toSentRecord } from './send.ts';

// What can be done about a message after it was submitted: try it now, stop it, send it again.

const queuedRecord = z
  .object({
    _id: z.string().meta({ description: 'the id of the message' }),
    state: z
      .enum(['waiting', 'delivered', 'dead', 'dropped'])
      .meta({ description: 'of its delivery. dead: given up; dropped: stopped' }),
    next_attempt_at: timeOrNull('when it is attempted next', 'null if it is not waiting'),
  })
  .meta({ title: 'queued message' });

const DEFERRED = '5c1e0d0000000000000000000000000c';
const SENT = '5c1e0d0000000000000000000000000a';
const ONE_HOST = 'Only the host that accepted the message can do this.';
const NOT_WAITING = 'It does not wait on this host: it was sent, given up or stopped before, or another host has it';

/** The record of a message whose delivery this host has. */
async function toRecord(
  { id, delivery }: SentMessageRow,
  call: Call<'Unknown_Message'>,
): Promise<z.input<typeof queuedRecord>> {
  const kept = delivery ? await call.messages.delivery(delivery) : undefined;
  if (!kept) throw call.refuse('Unknown_Message', id);
  const { state, dueAt } = kept.delivery;
  return { _id: id, state, next_attempt_at: state === 'waiting' ? toTimestamp(new Date(dueAt)) : null };
}

/** The message, unless it is scheduled: then its time decides, and every host may change that. */
async function findUnscheduled(id: string, call: Call<'Unknown_Message'>): Promise<SentMessageRow> {
  const row = await findMessage(id, call);
  const scheduled = await call.store.scheduled.one({ id });
  if (scheduled && (scheduled.state === null || scheduled.state === 'moved'))
    throw call.invalid('id', 'The message is scheduled: use /messages/reschedule or /messages/cancel-scheduled');
  return row;
}

const retry = operation({
  path: '/messages/retry',
  extension: true,
  summary: 'Tries a message that waits now, without waiting for its next attempt.',
  notes: `For a message that was put off. A paused subaccount or a used-up quota still holds it back. If its destination does not answer at all, one message is tried there first, and the others follow. ${ONE_HOST}`,
  params: { id: messageId },
  returns: queuedRecord,
  errors: ['Unknown_Message'],
  example: {
    params: { id: DEFERRED },
    answer: { _id: DEFERRED, state: 'waiting', next_attempt_at: '2026-01-05 12:00:00' },
  },
  async handle({ id }, call) {
    const row = await findUnscheduled(id, call);
    const note = await call.actions.begin();
    if (!row.delivery || !(await call.messages.retry(row.delivery))) throw call.invalid('id', NOT_WAITING);
    note('message retried', 1, id);
    return toRecord(row, call);
  },
});

const stop = operation({
  path: '/messages/stop',
  extension: true,
  summary: 'Stops a message that waits: there are no more attempts.',
  notes: `Its state becomes \`rejected\`, with a reject event whose reason is \`rule\`. The recipient is told nothing, and is not put on the rejection list. An attempt that is under way is not interrupted; if their server takes the message, smtp_events of /messages/info shows that. ${ONE_HOST}`,
  params: { id: messageId },
  returns: queuedRecord,
  errors: ['Unknown_Message'],
  example: { params: { id: DEFERRED }, answer: { _id: DEFERRED, state: 'dropped', next_attempt_at: null } },
  async handle({ id }, call) {
    const row = await findUnscheduled(id, call);
    const note = await call.actions.begin();
    if ((await call.messages.stop(row)) === 'late') throw call.invalid('id', NOT_WAITING);
    note('message stopped', 1, id);
    return toRecord(row, call);
  },
});

const resend = operation({
  path: '/messages/resend',
  extension: true,
  summary: 'Sends a message again to its recipient, as a new message with the same content and options.',
  notes:
    'It passes the same checks as /messages/send: the rejection list, the domain of the sender, the subaccount, quotas. It is composed anew, so merge tags with the date have the date of today; a MIME document keeps its Date and Message-ID, by which some mailboxes drop it as a duplicate. ' +
    'Content is kept as /messages/content says; after that the answer is Unknown_Message.',
  params: { id: messageId },
  returns: sentRecord,
  errors: ['Unknown_Message', 'Unknown_Subaccount', 'ServiceUnavailable'],
  example: {
    params: { id: SENT },
    answer: {
      email: 'reader@example.com',
      status: 'queued',
      reject_reason: null,
      queued_reason: 'sending-backlog',
      _id: '83eebe65b521f0ca9f85caf81d98d15b',
    },
  },
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
          bytes: kept.bytes,
          recipients: [kept.delivery.recipient],
          sendAt: null,
          client: null,
        },
        call,
      );
      if (!sent) throw call.refuse('ServiceUnavailable');
      note('message sent again', 1, `${id} as ${sent.id}`);
      return toSentRecord(sent);
    });
  },
});

/** What can be done about a message that was submitted; not part of Mandrill's API. */
export const messagesQueued = [retry, stop, resend];
