import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { Spool } from '../../src/queue/delivery.ts';
import type { AttemptResult } from '../../src/queue/settle.ts';
import type { HookEvent, UnsentEvent } from '../../src/store/rows/webhooks.ts';
import { type BatchingSettings, createBatching, createTallies } from '../../src/webhooks/batches.ts';
import { createDestinations } from '../../src/webhooks/destinations.ts';
import { createOutbox } from '../../src/webhooks/outbox.ts';
import { createSigningKeys } from '../../src/webhooks/signing.ts';
import type { Poster } from '../../src/webhooks/types.ts';
import { NO_EVENT_COPIES } from './copies.ts';
import { createTestLog } from './log.ts';
import { openRenderer } from './renderer.ts';
import { createWebhookDispatcher } from './roads.ts';
import { freshSpool } from './spool.ts';
import { openTestStore } from './store.ts';
import { until } from './until.ts';

/** A batch as an endpoint saw it. */
export interface Posted {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The `_id`s of its events. */
  readonly ids: readonly string[];
}

export type BatchWorld = Awaited<ReturnType<typeof openBatchWorld>>;

const ok: AttemptResult = { kind: 'answered', status: 200, retryAfter: null, answer: 'ok', durationMs: 1 };
const real = createIds(systemClock);
let number = 0;

/**
 * Everything between a row that carries events and the POST: real parts on a clock that is moved by hand; the endpoints
 * are functions.
 */
export async function openBatchWorld(change: Partial<BatchingSettings> = {}) {
  const opened = await freshSpool();
  const { clock } = opened;
  const log = createTestLog();
  const store = await openTestStore(log);
  const { renderer } = await openRenderer();
  const posts: Posted[] = [];
  let answer: (post: Posted) => AttemptResult | Promise<AttemptResult> = () => ok;
  const poster: Poster = {
    async post(url, headers, body) {
      if (body.kind === 'file') throw new Error('a batch is small');
      const text = Buffer.from(body.bytes).toString();
      const events: { _id: string }[] = JSON.parse(new URLSearchParams(text).get('mandrill_events') ?? '[]');
      const post = { url, headers, body: text, ids: events.map(({ _id }) => _id) };
      posts.push(post);
      return answer(post);
    },
    head: async () => ok,
    async stop() {},
  };
  const ids = { ...real, jitter: () => 0 };
  const signingKeys = createSigningKeys({ store, clock, ids });

  function build(spool: Spool) {
    const parts = { spool, store, clock, ids, log };
    return {
      spool,
      outbox: createOutbox({ ...parts, copies: NO_EVENT_COPIES }),
      batching: createBatching({ limits: { events: 1000, bytes: 1_048_576 }, waitMs: 1000, ...change }, parts),
      tallies: createTallies(parts),
      dispatcher: createWebhookDispatcher(
        {
          concurrency: 64,
          concurrencyPerEndpoint: 8,
          concurrencyAtStart: 2,
          batchBytes: 1024 ** 2,
          retryHours: 120,
          orderHoldMs: 900_000,
        },
        {
          ...parts,
          renderer,
          poster,
          signingKeys,
          time: createRunningTime(clock),
          destinations: createDestinations({
            store,
            clock,
            routing: { routeOf: () => undefined, isTooNew: () => false },
          }),
        },
      ),
    };
  }
  let parts = build(opened.spool);

  async function start(): Promise<void> {
    await parts.dispatcher.start();
    await parts.batching.start();
    await parts.tallies.start();
  }
  async function stop(): Promise<void> {
    const stopped = Promise.all([parts.batching.stop(), parts.dispatcher.stop()]);
    await clock.advance(10_000);
    await stopped;
    await parts.tallies.stop();
  }
  const world = {
    clock,
    log,
    store,
    posts,
    signingKeys,
    get spool() {
      return parts.spool;
    },
    get outbox() {
      return parts.outbox;
    },
    start,
    /** A new process over the same spool and store. */
    async restart() {
      await stop();
      parts = build(await opened.reopen());
      await start();
    },
    answer(next: typeof answer) {
      answer = next;
    },
    /** A webhook of `acme` at a host of its own name. */
    async hook(name: string, events: readonly HookEvent[] = []): Promise<{ id: string; url: string }> {
      const url = `https://${name}.example/hook`;
      const id = String(++number);
      await store.webhooks.insert({
        id,
        account: 'acme',
        number,
        url,
        description: null,
        events,
        createdAt: new Date(clock.now()),
      });
      parts.outbox.forget('acme');
      return { id, url };
    },
    publish: (events: readonly UnsentEvent[]) => parts.outbox.publish('acme', events),
    /** Lets the clock run, a step at a time, until it is so. */
    async run(what: string, probe: () => boolean | Promise<boolean>, step = 1000) {
      await until(
        what,
        async () => {
          await clock.advance(step);
          return probe();
        },
        60_000,
        step === 0 ? undefined : 5,
      );
    },
    /** Lets everything happen that needs no time. */
    settle: async (what: string, probe: () => boolean | Promise<boolean>) => world.run(what, probe, 0),
    postsTo: (url: string) => posts.filter((post) => post.url === url),
    /** What the store knows of a webhook, when all of it has been written. */
    async tally(id: string) {
      await until('the numbers are in the store', () => parts.tallies.idle());
      const [row] = await store.webhookTallies.many({ webhook: id });
      return row && { batches: row.batchesSent, events: row.eventsSent, sentAt: row.lastSentAt, error: row.lastError };
    },
    async close() {
      await stop();
      await renderer.stop();
      await store.close();
    },
  };
  return world;
}

/** Events of one kind, `m<from>` and so on. */
export function events(
  count: number,
  { from = 0, event = 'send', size = 200 }: { from?: number; event?: HookEvent; size?: number } = {},
): UnsentEvent[] {
  return Array.from({ length: count }, (_, n) => {
    const id = `m${from + n}`;
    return { id, event, at: 0, body: JSON.stringify({ event, _id: id, ts: 0, msg: 'x'.repeat(size) }) };
  });
}

export const answered = (status: number, text = ''): AttemptResult => ({
  kind: 'answered',
  status,
  retryAfter: null,
  answer: text,
  durationMs: 1,
});
export const refused: AttemptResult = {
  kind: 'unanswered',
  error: 'connection refused',
  connected: false,
  durationMs: 1,
};
