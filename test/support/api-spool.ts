import type {
  AcceptOutcome,
  AttemptRecord,
  Body,
  BodyWriter,
  Delivery,
  DeliveryState,
  NewMessage,
  QueuedDelivery,
  Selection,
  Spool,
} from '../../src/queue/delivery.ts';
import type { EventQueue, EventsForHook } from '../../src/queue/events.ts';

/** A queue in memory, for tests of those who fill it and look at it: it can be told to be full or to fail. */
export interface TestSpool extends Spool {
  readonly messages: NewMessage[];
  readonly deliveries: QueuedDelivery[];
  readonly redirects: { readonly routeId: string; readonly url: string }[];
  /** Batches that were sent, and what was forgotten and redirected of webhooks. */
  readonly sent: EventsForHook[];
  readonly tended: string[];
  /** What `accept` answers, and whether there is room. */
  outcome: AcceptOutcome;
  room: boolean;
  breaks: boolean;
  aborted: number;
  put(
    delivery: Partial<QueuedDelivery> & Pick<QueuedDelivery, 'id' | 'account'>,
    attempts?: readonly AttemptRecord[],
  ): void;
  /** The whole text of an accepted message. */
  text(message: NewMessage | undefined): string;
}

const BASE = {
  kind: 'inbound' as const,
  messageId: 'm',
  url: 'https://app.example.com/hooks/mail',
  routeId: '1.1',
  pattern: '*',
  recipient: 'a@inbound.example.com',
  state: 'waiting' as DeliveryState,
  createdAt: 0,
  dueAt: 0,
  attempts: 0,
  endedAt: null,
  budgetFrom: 0,
  parked: false,
  lastStatus: null,
  lastError: null,
};

function fits(delivery: QueuedDelivery, wanted: Selection): boolean {
  return (
    (wanted.ids?.includes(delivery.id) ?? true) &&
    (wanted.account === undefined || wanted.account === delivery.account) &&
    (wanted.routeIds?.includes(delivery.routeId) ?? true) &&
    (wanted.states?.includes(delivery.state) ?? true) &&
    (wanted.kinds?.includes(delivery.kind) ?? true) &&
    (wanted.webhook === undefined || wanted.webhook === delivery.batch?.webhook) &&
    (wanted.from === undefined || delivery.createdAt >= wanted.from) &&
    (wanted.to === undefined || delivery.createdAt < wanted.to)
  );
}

export function createTestSpool(): TestSpool {
  const history = new Map<string, readonly AttemptRecord[]>();
  const unused = () => Promise.reject(new Error('not part of this double'));
  const spoolOf = () => spool;
  const change = (wanted: Selection, states: readonly DeliveryState[], patch: Partial<QueuedDelivery>): number => {
    const chosen = spool.deliveries.filter((one) => states.includes(one.state) && fits(one, wanted));
    for (const one of chosen) spool.deliveries[spool.deliveries.indexOf(one)] = { ...one, ...patch };
    return chosen.length;
  };
  const spool: TestSpool = {
    messages: [],
    deliveries: [],
    redirects: [],
    sent: [],
    tended: [],
    outcome: 'accepted',
    room: true,
    breaks: false,
    aborted: 0,
    put(delivery, attempts = []) {
      spool.deliveries.push({ ...BASE, ...delivery });
      history.set(delivery.id, attempts);
    },
    text: (message) => (message?.body.kind === 'inline' ? Buffer.from(message.body.bytes).toString() : ''),
    body: () => writer(spool),
    async accept(message: NewMessage, deliveries: readonly Delivery[]) {
      if (spool.outcome !== 'accepted') return spool.outcome;
      spool.messages.push(message);
      for (const delivery of deliveries)
        spool.put({
          ...delivery,
          createdAt: message.receivedAt,
          dueAt: Math.max(message.receivedAt, delivery.notBefore ?? 0),
        });
      return 'accepted';
    },
    hasRoom: () => spool.room,
    backlog: (account) => spool.deliveries.filter((one) => one.account === account && one.state === 'waiting').length,
    attempts: (id) => Promise.resolve([...(history.get(id) ?? [])]),
    list: async (wanted, limit) =>
      spool.deliveries
        .filter((one) => fits(one, wanted))
        .toSorted((a, b) => b.createdAt - a.createdAt)
        .slice(0, limit),
    async replay(wanted, now) {
      const chosen = spool.deliveries.filter((one) => one.state !== 'waiting' && fits(one, wanted));
      for (const one of chosen)
        spool.deliveries[spool.deliveries.indexOf(one)] = { ...one, state: 'waiting', dueAt: now, endedAt: null };
      return chosen.length;
    },
    async redirect(routeId, url) {
      return spool.redirects.push({ routeId, url });
    },
    async message(id) {
      const found = spool.messages.find((one) => one.id === id);
      return found && { message: { ...found, verdicts: null }, body: found.body };
    },
    delivery: async (id) => spool.deliveries.find((one) => one.id === id),
    async reschedule(wanted, at) {
      return change(wanted, ['waiting'], { dueAt: at, budgetFrom: at });
    },
    async drop(wanted, now) {
      return change(wanted, ['waiting', 'dead'], { state: 'dropped', endedAt: now });
    },
    due: unused,
    endpoints: unused,
    settle: unused,
    keepEndpoint: unused,
    lastTime: unused,
    keepTime: unused,
    events: testEvents(spoolOf),
    reports: async () => [],
    reported: async () => {},
    count: unused,
    retry: unused,
    purge: unused,
    onChange() {},
    check: unused,
    close: () => Promise.resolve(),
  };
  return spool;
}

/** Batches go out at once under the id of the examples; nothing else is there. */
function testEvents(spoolOf: () => TestSpool): EventQueue {
  const unused = () => Promise.reject(new Error('not part of this double'));
  return {
    async send(wanted, messageId) {
      const spool = spoolOf();
      if (spool.outcome !== 'accepted') throw new Error('the queue cannot be written');
      spool.sent.push(wanted);
      const { id: webhook, account, url } = wanted.hook;
      return {
        id: '01kcexamplebatch0000000000-ExampleHash1',
        kind: 'events',
        messageId,
        account,
        url,
        routeId: '',
        pattern: '',
        recipient: '',
        batch: { webhook, events: wanted.events.length },
      };
    },
    async forget(webhook) {
      spoolOf().tended.push(`forget ${webhook}`);
    },
    async redirect(webhook, url) {
      spoolOf().tended.push(`redirect ${webhook} ${url}`);
    },
    publish: unused,
    freeze: unused,
    pending: unused,
    hooks: unused,
    tallies: unused,
    expire: unused,
    onNews() {},
  };
}

function writer(spool: TestSpool): BodyWriter {
  const chunks: Uint8Array[] = [];
  return {
    async write(chunk) {
      if (spool.breaks) throw new Error('the disk failed');
      chunks.push(Uint8Array.from(chunk));
    },
    finish: async (): Promise<Body> => ({ kind: 'inline', bytes: Buffer.concat(chunks) }),
    async abort() {
      spool.aborted++;
    },
  };
}
