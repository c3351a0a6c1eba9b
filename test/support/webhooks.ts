import type { HttpDetail } from '../../src/queue/detail.ts';
import type { Store } from '../../src/store/store.ts';
import { clockAt } from './clock.ts';
import type { TestSpool } from './shared-spool.ts';
import { attempt, settled } from './spool.ts';

const URL = 'https://app.example.com/hooks/events';
const BATCH = '01kcexamplebatch0000000000';

/** The webhook that the examples show, the first of the first account, with the numbers of two hosts. */
export async function seedWebhooks(store: Store, account: string): Promise<void> {
  await store.revisions.add(`webhooks:${account}`, { count: 1 }, { count: 0 });
  await store.webhooks.insert({
    id: '4',
    account,
    number: 4,
    url: URL,
    description: 'My Example Webhook',
    events: ['send', 'open', 'click'],
    createdAt: new Date('2026-01-05T11:00:00Z'),
  });
  const none = { lastError: null, lastErrorAt: null };
  await store.webhookTallies.insert({
    id: '4 one',
    account,
    webhook: '4',
    batchesSent: 40,
    eventsSent: 1800,
    lastSentAt: new Date('2026-01-05T11:30:00Z'),
    ...none,
  });
  await store.webhookTallies.insert({
    id: '4 two',
    account,
    webhook: '4',
    batchesSent: 2,
    eventsSent: 92,
    lastSentAt: new Date('2026-01-05T11:10:00Z'),
    ...none,
  });
}

/** A batch of that webhook that was delivered; answers the id of its delivery. */
export async function putBatch(spool: TestSpool, account: string): Promise<string> {
  const events = ['send', 'open', 'click'].map((id) => ({ id, body: '{}' }));
  const made = Date.UTC(2026, 0, 5, 11, 30);
  const batch = await spool.events.send({ hook: { id: '4', account, url: URL }, events }, BATCH, made);
  const clock = clockAt(made + 1000);
  const detail = JSON.stringify({
    address: '192.0.2.10:443',
    tls: 'TLSv1.3',
    reused: true,
    ms: { dns: 0.1, firstByte: 11.4 },
  } satisfies HttpDetail);
  await spool.settle(settled(clock, batch, { attempt: { ...attempt(clock), answer: 'OK', detail } }));
  return batch.id;
}
