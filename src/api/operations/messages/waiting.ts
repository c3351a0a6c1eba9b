import { z } from 'zod';
import type { AccountParts } from '../../account.ts';
import { type Call, operation } from '../../operation.ts';
import { findMessage, messageId } from './info.ts';

interface Change<N extends `/messages/${string}`> {
  readonly path: N;
  readonly summary: string;
  readonly notes: string;
  /** The name of the action in the list of actions. */
  readonly noted: string;
  /** Changes a delivery; false if it does not wait on this host. */
  change(messages: AccountParts['messages'], delivery: string): Promise<boolean>;
}

/** Declares an operation on a message that waits for its next attempt. */
function changing<N extends `/messages/${string}`>({ path, summary, notes, noted, change }: Change<N>) {
  return operation({
    path,
    access: 'settings',
    extension: true,
    summary,
    notes: `${notes} If the message is not waiting, the answer is Unknown_Message.`,
    params: { id: messageId },
    returns: z.object({ _id: z.string() }),
    elsewhere: 'Unknown_Message',
    example: { id: '5c1e0d0000000000000000000000000c' },
    async handle({ id }, call) {
      const { delivery } = await findUnscheduled(id, call);
      const note = await call.actions.begin();
      if (typeof delivery !== 'string' || !(await change(call.messages, delivery)))
        throw call.refuse('Unknown_Message', `${id} that waits`);
      note(noted, 1, `message ${id}`);
      return { _id: id };
    },
  });
}

async function findUnscheduled(id: string, call: Call<'Unknown_Message'>) {
  const row = await findMessage(id, call);
  if (await call.store.scheduled.one({ id }))
    throw call.invalid('id', 'It is scheduled: please use /messages/reschedule or /messages/cancel-scheduled');
  return row;
}

const retry = changing({
  path: '/messages/retry',
  summary: 'Attempts a waiting message now.',
  notes: 'Pauses and quotas still apply. If its destination is down, this attempt is the probe.',
  noted: 'retried',
  change: (messages, delivery) => messages.retry(delivery),
});

const stop = changing({
  path: '/messages/stop',
  summary: 'Stops further attempts at a waiting message.',
  notes: 'An attempt in progress is completed. The message gets no event, and its state does not change.',
  noted: 'dropped',
  change: (messages, delivery) => messages.stop(delivery),
});

export const messagesWaiting = [retry, stop];
