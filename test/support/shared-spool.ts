import { readFile } from 'node:fs/promises';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import type { Log } from '../../src/base/log.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import type { Delivery, Message, QueuedDelivery, Spool } from '../../src/queue/delivery.ts';
import type { EventNews } from '../../src/queue/events.ts';
import { openSpool } from '../../src/queue/spool.ts';
import { afterFile } from './cleanup.ts';
import { createWatch, type Watch } from './clock.ts';
import { createTestLog } from './log.ts';
import { spoolSettings } from './spool.ts';
import { tempDir } from './temp.ts';

/**
 * The real queue, in a folder of its own. Every function can be replaced, so that a test makes single calls fail:
 * `spool.accept = async () => 'full'`.
 */
export type TestSpool = { -readonly [Name in keyof Spool]: Spool[Name] };

/** The input that the queue gets from its current user. */
interface Holder {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly log: Log;
}

interface Shared {
  readonly spool: Spool;
  /** Who hears of what happens on it. */
  readonly onChange: Set<(fresh: readonly Delivery[]) => void>;
  readonly onTurn: Set<(due: readonly QueuedDelivery[]) => void>;
  readonly onNews: Set<(news: EventNews) => void>;
  handTo(holder: Holder): void;
}

const EVER = 8.64e15;

/** The free ones, and all of this file. */
const spare: Shared[] = [];
const all: Spool[] = [];
afterFile(async () => {
  spare.splice(0);
  for (const spool of all.splice(0)) await spool.close();
});

/**
 * A queue with nothing on it. To open one takes two threads and a tenth of a second, so the tests of a file hand one on
 * to the next. Its dates are those of the test's clock; it looks after its file and its disk in the time of the machine.
 */
export async function borrowSpool(holder: Holder, watch = createWatch()): Promise<TestSpool> {
  const shared = spare.pop() ?? (await open());
  shared.handTo(holder);
  return lend(shared, watch);
}

const NOBODY: Holder = { clock: systemClock, log: createTestLog() };

async function open(): Promise<Shared> {
  let { clock, log } = NOBODY;
  const spool = await openSpool(spoolSettings(await tempDir()), {
    clock: { now: () => clock.now(), monotonic: () => clock.monotonic(), after: systemClock.after },
    log: {
      debug: (...line) => log.debug(...line),
      info: (...line) => log.info(...line),
      warn: (...line) => log.warn(...line),
      error: (...line) => log.error(...line),
    },
    role: 'daemon',
    metrics: NO_METRICS,
  });
  all.push(spool);
  const shared: Shared = {
    spool,
    onChange: new Set(),
    onTurn: new Set(),
    onNews: new Set(),
    handTo(holder) {
      ({ clock, log } = holder);
    },
  };
  spool.onChange((fresh) => {
    for (const listener of shared.onChange) listener(fresh);
  });
  spool.onTurn((due) => {
    for (const listener of shared.onTurn) listener(due);
  });
  spool.events.onNews((news) => {
    for (const listener of shared.onNews) listener(news);
  });
  return shared;
}

function lend(shared: Shared, watch: Watch): TestSpool {
  const { spool } = shared;
  const { events, ...rest } = spool;
  let closing: Promise<void> | undefined;
  const giveBack = async () => {
    await watch.quiet();
    shared.onChange.clear();
    shared.onTurn.clear();
    shared.onNews.clear();
    shared.handTo(NOBODY);
    if (watch.used()) await empty(spool);
    spare.push(shared);
  };
  return {
    ...watch.over(rest),
    events: {
      ...watch.over(events),
      onNews: (listener) => {
        shared.onNews.add(listener);
      },
    },
    onChange: (listener) => {
      shared.onChange.add(listener);
    },
    onTurn: (listener) => {
      shared.onTurn.add(listener);
    },
    close: () => (closing ??= giveBack()),
  };
}

/** Lets everything go that is on the queue, by what operators and tasks have for it. */
export async function empty(spool: Spool): Promise<void> {
  const [hooks, tallies, reports] = await Promise.all([
    spool.events.hooks(),
    spool.events.tallies(),
    spool.reports(100_000),
  ]);
  const webhooks = new Set([...hooks, ...tallies.map(({ hook }) => hook)].map(({ id }) => id));
  await Promise.all([
    ...[...webhooks].map((id) => spool.events.forget(id, 0)),
    spool.reported(reports.map(({ id }) => id)),
    spool.drop({}, 0),
  ]);
  await spool.purge({ deliveredBefore: EVER, deadBefore: EVER, deliveredBytes: 0 });
  await Promise.all((await spool.endpoints()).map((endpoint) => spool.keepEndpoint(endpoint, null)));
  const marks = await spool.copies.due(0, 100_000);
  if (marks.length > 0) await spool.copies.end(marks.map((mark) => ({ ...mark, has: false })));
  const left = [...(await spool.list({}, 1)), ...(await spool.endpoints())];
  if (left.length > 0) throw new Error(`still queued: ${JSON.stringify(left)}`);
}

/** A message as it is on the queue, with what goes out of it. */
export interface Queued extends Message {
  readonly text: string;
  readonly deliveries: readonly Delivery[];
}

/** All messages on the queue, in the order in which they came. */
export async function queued(spool: Spool): Promise<Queued[]> {
  const deliveries = (await spool.list({}, 100_000)).reverse();
  const ids = new Set(deliveries.map(({ messageId }) => messageId));
  return await Promise.all(
    [...ids].map(async (id) => {
      const found = await spool.message(id);
      if (!found) throw new Error(`the queue has no message ${id}`);
      const { message, body } = found;
      const bytes = body.kind === 'memory' ? Buffer.from(body.bytes) : await readFile(body.path);
      return { ...message, text: bytes.toString(), deliveries: deliveries.filter(({ messageId }) => messageId === id) };
    }),
  );
}
