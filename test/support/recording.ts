import { createIds } from '../../src/base/ids.ts';
import { createLists } from '../../src/events/lists.ts';
import type { MessageEvent, NewSentMessage } from '../../src/events/record.ts';
import { createRecorder } from '../../src/events/record.ts';
import { COUNTS, type Counts } from '../../src/mail/stats.ts';
import type { CounterRow, CounterSubject } from '../../src/store/rows/counters.ts';
import type { UnsentEvent } from '../../src/store/rows/webhooks.ts';
import type { Store } from '../../src/store/store.ts';
import { createTestClock } from './clock.ts';
import { createTestLog } from './log.ts';

export const ACCOUNT = 'RecordAccountId0000001';
export const MESSAGE = '0123456789abcdef0123456789abcdef';

/** A recorder over a store, with the real lists; what goes to webhooks is kept, or fails while `spool.broken`. */
export function createRecording(store: Store, clock = createTestClock()) {
  const log = createTestLog();
  const ids = createIds(clock);
  const published: UnsentEvent[] = [];
  const spool = { broken: false };
  const outbox = {
    async publish(_: string, events: readonly UnsentEvent[]) {
      if (spool.broken) throw new Error('the spool is full');
      published.push(...events);
    },
  };
  const lists = createLists({ store, outbox: { publish: async () => {} }, clock, ids, log });
  return {
    recorder: createRecorder({ store, lists, outbox, clock, log }),
    lists,
    clock,
    log,
    spool,
    published,
    bodies: () => published.map(({ body }): any => JSON.parse(body)),
  };
}

/** A message as the sending side hands it over. */
export function newMessage(fields: Partial<NewSentMessage> = {}): NewSentMessage {
  return {
    id: MESSAGE,
    account: ACCOUNT,
    createdAt: new Date('2026-01-05T11:00:00Z'),
    sender: 'News@Example.com',
    email: 'person@example.net',
    subject: 'Hello',
    tags: ['one', 'two'],
    template: 'welcome',
    subaccount: 'cust-1',
    metadata: { user: 7 },
    apiKey: 'key',
    ...fields,
  };
}

/** Something that happened to it. */
export function newEvent(kind: MessageEvent['kind'], fields: Partial<MessageEvent> = {}): MessageEvent {
  return {
    id: `event-${kind}`,
    account: ACCOUNT,
    message: MESSAGE,
    kind,
    at: new Date('2026-01-05T11:30:00Z'),
    ...fields,
  };
}

/** What was counted of one thing in one span, without zeros; undefined when there is no row. */
export async function countsOf(
  store: Store,
  kind: CounterSubject,
  key: string,
  span: CounterRow['span'] = 'total',
): Promise<Partial<Counts> | undefined> {
  const rows = await store.counters.many({ account: ACCOUNT, kind, span, key });
  if (rows.length > 1) throw new Error('more than one row');
  const [row] = rows;
  return row && Object.fromEntries(COUNTS.flatMap((name) => (row[name] === 0 ? [] : [[name, row[name]]])));
}
