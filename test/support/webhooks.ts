import type { Store } from '../../src/store/store.ts';
import type { TestSpool } from './api-spool.ts';

const URL = 'https://app.example.com/hooks/events';

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

/** A batch of that webhook that was delivered. */
export function putBatch(spool: TestSpool, account: string): void {
  spool.put(
    {
      id: '01kcexamplebatch0000000000-ExampleHash1',
      kind: 'events',
      account,
      messageId: '01kcexamplebatch0000000000',
      routeId: '',
      pattern: '',
      recipient: '',
      url: URL,
      state: 'delivered',
      createdAt: Date.UTC(2026, 0, 5, 11, 30),
      endedAt: Date.UTC(2026, 0, 5, 11, 30, 1),
      lastStatus: 200,
      batch: { webhook: '4', events: 3 },
    },
    [{ at: Date.UTC(2026, 0, 5, 11, 30, 1), durationMs: 12, status: 200, error: null, answer: 'OK' }],
  );
}
