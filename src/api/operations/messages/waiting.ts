import { z } from 'zod';
import { text } from '../../../base/schema.ts';
import { type Call, operation } from '../../operation.ts';
import { findMessage } from './info.ts';

const params = { id: text(255).meta({ description: 'id of the message, as returned by sending' }) };
const returns = z.object({ _id: z.string() });
const ID = '5c1e0d0000000000000000000000000c';

/** The delivery of a message that waits for its next attempt on this host. Throws Unknown_Message. */
async function findWaiting(id: string, call: Call<'Unknown_Message'>): Promise<string> {
  const row = await findMessage(id, call);
  if (await call.store.scheduled.one({ id }))
    throw call.invalid('id', 'It is scheduled: please use /messages/reschedule or /messages/cancel-scheduled');
  if (typeof row.delivery !== 'string') throw notWaiting(id, call);
  return row.delivery;
}

const notWaiting = (id: string, call: Call<'Unknown_Message'>) =>
  call.refuse('Unknown_Message', `${id} that waits on this host`);

const retry = operation({
  path: '/messages/retry',
  extension: true,
  summary: 'Makes the next attempt of a message that waits now.',
  notes:
    'A pause and a quota still hold it. If its destination is down, this attempt is the probe. A message that does not wait on this host is Unknown_Message.',
  params,
  returns,
  errors: ['Unknown_Message'],
  example: { params: { id: ID }, answer: { _id: ID } },
  async handle({ id }, call) {
    const delivery = await findWaiting(id, call);
    const note = await call.actions.begin();
    if (!(await call.messages.retry(delivery))) throw notWaiting(id, call);
    note('retried', 1, `message ${id}`);
    return { _id: id };
  },
});

const stop = operation({
  path: '/messages/stop',
  extension: true,
  summary: 'Makes no further attempt at a message that waits.',
  notes:
    'An attempt that is being made is completed. The message gets no event, and its state stays as it was. A message that does not wait on this host is Unknown_Message.',
  params,
  returns,
  errors: ['Unknown_Message'],
  example: { params: { id: ID }, answer: { _id: ID } },
  async handle({ id }, call) {
    const delivery = await findWaiting(id, call);
    const note = await call.actions.begin();
    if (!(await call.messages.stop(delivery))) throw notWaiting(id, call);
    note('dropped', 1, `message ${id}`);
    return { _id: id };
  },
});

/** Messages that wait for another attempt; not part of Mandrill's API. */
export const messagesWaiting = [retry, stop];
