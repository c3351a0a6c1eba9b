import { z } from 'zod';
import { type Call, operation } from '../../operation.ts';
import { findMessage, messageId } from './info.ts';

// Operations on a message that waits for its next attempt.

const ofWaiting = {
  params: { id: messageId },
  returns: z.object({ _id: z.string() }),
  notHereError: 'Unknown_Message',
  example: { id: '5c1e0d0000000000000000000000000c' },
} as const;

const NOT_WAITING = 'If the message is not waiting, the error is Unknown_Message.';

/** Changes its delivery, and notes the action. `change` resolves to false if the delivery does not wait here. */
async function changeWaiting(
  id: string,
  noted: string,
  change: (delivery: string) => Promise<boolean>,
  call: Call<'Unknown_Message'>,
) {
  const { delivery } = await findMessage(id, call);
  if (await call.store.scheduled.one({ id }))
    throw call.invalid('id', 'It is scheduled: please use /messages/reschedule or /messages/cancel-scheduled');
  const note = await call.actions.begin();
  if (typeof delivery !== 'string' || !(await change(delivery)))
    throw call.refuse('Unknown_Message', `${id} that waits`);
  note(noted, 1, `message ${id}`);
  return { _id: id };
}

const retry = operation({
  path: '/messages/retry',
  access: 'settings',
  extension: true,
  summary: 'Attempts a waiting message now.',
  notes: `Pauses and quotas still apply. If its destination is down, this attempt is the probe. ${NOT_WAITING}`,
  ...ofWaiting,
  handle: ({ id }, call) => changeWaiting(id, 'retried', call.messages.retry, call),
});

const stop = operation({
  path: '/messages/stop',
  access: 'settings',
  extension: true,
  summary: 'Stops further attempts at a waiting message.',
  notes:
    'An attempt in progress is completed. The message gets no event, and its state does not change. ' + NOT_WAITING,
  ...ofWaiting,
  handle: ({ id }, call) => changeWaiting(id, 'dropped', call.messages.stop, call),
});

export const messagesWaiting = [retry, stop];
