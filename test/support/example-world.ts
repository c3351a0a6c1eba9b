import type { Operation } from '../../src/api/operation.ts';
import { deliveryId } from '../../src/base/ids.ts';
import { sentId } from '../../src/mail/addresses/return-address.ts';
import { ACCOUNT, type ApiWorld, putAnswer, putDeadDelivery, startApi } from './api.ts';
import { putHistory } from './history.ts';
import { putMessages, putWaiting } from './messages.ts';
import { putPulled } from './pulled.ts';
import { putBatch } from './webhooks.ts';

/** Operations that ask the history. */
const REMEMBERING = /^\/(actions|jobs|inbound\/(search|causes|info|refusals|conversation))/;

/** An API in which the example call of an operation has the recorded answer; also for `npm run docs`, which records it. */
export async function startExample({ path }: Pick<Operation, 'path'>): Promise<ApiWorld> {
  const world = await startApi({ journal: REMEMBERING.test(path) });
  if (/^\/(inbound|webhooks|endpoints)\//.test(path))
    await Promise.all([putDeadDelivery(world), putBatch(world.spool, ACCOUNT)]);
  if (path === '/inbound/conversation') {
    await putMessages(world, ACCOUNT);
    await putAnswer(world, sentId(deliveryId('01kcexamplesent00000009001', '', 'reader@example.com')));
  }
  if (REMEMBERING.test(path)) await putHistory(world);
  // What waits to be sent counts as backlog elsewhere.
  if (path.startsWith('/messages/')) await putMessages(world, ACCOUNT);
  if (/^\/messages\/(retry|stop)$/.test(path)) await putWaiting(world, ACCOUNT);
  if (/^\/inbound\/(pull|ack|nack)$/.test(path)) await putPulled(world, ACCOUNT);
  if (/^\/inbound\/(ack|nack)$/.test(path)) await world.call('/inbound/pull');
  return world;
}
