import type { Bytes } from '../../src/base/bytes.ts';
import type { Ids } from '../../src/base/ids.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { Outgoing } from '../../src/mail/outgoing.ts';
import type { Delivery, QueuedDelivery } from '../../src/queue/delivery.ts';
import type { Dispatcher } from '../../src/queue/dispatcher.ts';
import type { Roads } from '../../src/queue/road.ts';
import type { AttemptResult } from '../../src/queue/settle.ts';
import type { Destinations } from '../../src/webhooks/destinations.ts';
import { PLAIN_TARGET } from '../../src/webhooks/destinations.ts';
import type { WebhookRoadSettings } from '../../src/webhooks/road.ts';
import type { Poster, Post as RenderedPost, Renderer, RenderJob } from '../../src/webhooks/types.ts';
import { afterTest } from './cleanup.ts';
import { createTestClock, createWatch, type TestClock, type Watch } from './clock.ts';
import { answered } from './delivery.ts';
import { createTestLog } from './log.ts';
import { createWebhookDispatcher, type WebhookDispatcherDeps } from './roads.ts';
import { borrowSpool, type TestSpool } from './shared-spool.ts';

/** One post as the endpoint saw it. */
export interface Post {
  readonly url: string;
  readonly id: string;
  readonly keys: readonly string[];
  /** Test clock, milliseconds that only grow. */
  readonly at: number;
}

export type Endpoint = (post: Post) => AttemptResult | Promise<AttemptResult>;

/**
 * A dispatcher on a bench: the real queue, endpoints as functions, a clock that is moved by hand and waits for the
 * queue.
 */
export interface Bench {
  readonly clock: TestClock;
  /** Of calls that the clock waits for. */
  readonly watch: Watch;
  readonly spool: TestSpool;
  /** Accepts a message for each of these, as a session would, or as an account would send it. */
  put(deliveries: readonly Delivery[], outgoing?: Outgoing): Promise<void>;
  /** Everything on the queue, the oldest first. */
  rows(): Promise<QueuedDelivery[]>;
  /** Reads of what is due, so far. */
  readonly reads: { readonly url: string; readonly limit: number }[];
  readonly log: ReturnType<typeof createTestLog>;
  readonly posts: Post[];
  readonly jobs: RenderJob[];
  readonly discarded: Bytes[];
  /** What endpoints answer from now on; 200 at first. */
  endpoint(answer: Endpoint): void;
  keys(answer: readonly string[] | undefined): void;
  renderer(fail: boolean): void;
  /** Deliveries that take twenty seconds to render. */
  slow(which: (id: string) => boolean): void;
  postsTo(url: string): Post[];
  /** Posts that wait for an answer, now and at most. */
  readonly inFlight: { now: number; most: number };
  readonly dispatcher: Dispatcher;
  /** A new process over the same spool. */
  restart(): Promise<Dispatcher>;
}

export const ids: Ids = { message: () => 'm', key: () => 'k', signingKey: () => 's', jitter: () => 0 };

/** Given back after each test. */
const borrowed: TestSpool[] = [];
afterTest(async () => {
  for (const spool of borrowed.splice(0)) await spool.close();
});

const BYTES = new TextEncoder().encode('Subject: hello\r\n\r\nhello\r\n');

export async function createBench(
  settings: Partial<WebhookRoadSettings> = {},
  replace: Partial<WebhookDispatcherDeps> = {},
  others: (parts: Pick<Bench, 'clock' | 'spool' | 'log'>) => Partial<Roads> = () => ({}),
): Promise<Bench> {
  const watch = createWatch();
  const clock = createTestClock(undefined, watch.quiet);
  const log = createTestLog();
  const spool = await borrowSpool({ clock, log }, watch);
  borrowed.push(spool);
  const { due } = spool;
  const reads: { url: string; limit: number }[] = [];
  spool.due = (account, url, now, limit, except) => {
    reads.push({ url, limit });
    return due(account, url, now, limit, except);
  };
  async function putOne(delivery: Delivery, outgoing: Outgoing | undefined): Promise<void> {
    const client = { address: '192.0.2.1', helo: 'there', tls: null };
    const envelope = { mailFrom: 'a@example.org', client, ...(outgoing && { outgoing }) };
    const body = { kind: 'memory', bytes: BYTES.slice() } as const;
    const message = { id: delivery.messageId, receivedAt: clock.now(), envelope, trace: '', body };
    const outcome = await spool.accept(message, [delivery]);
    if (outcome !== 'accepted') throw new Error(`not accepted but ${outcome}`);
  }
  const posts: Post[] = [];
  const jobs: RenderJob[] = [];
  const discarded: Bytes[] = [];
  const inFlight = { now: 0, most: 0 };
  let answer: Endpoint = () => answered(200);
  let keys: readonly string[] | undefined = ['present'];
  let rendererFails = false;
  let isSlow = (_id: string): boolean => false;

  const renderer: Renderer = {
    async render(job): Promise<RenderedPost> {
      if (rendererFails) throw new Error('no thread');
      jobs.push(job);
      const id = job.mails[0]?.delivery.id ?? '';
      if (isSlow(id))
        await new Promise<void>((resolve) => {
          clock.after(20_000, resolve);
        });
      return {
        id,
        linked: 0,
        body: { kind: 'memory', bytes: new Uint8Array(1) },
        headers: { 'webhook-id': id, 'x-keys': job.keys.join(' ') },
        found: [
          {
            parseError: null,
            summary: null,
            verdicts: {
              spf: { result: 'pass', detail: '' },
              dkim: { signed: false, valid: false },
              dmarc: { result: 'none', policy: null, aligned: false },
              arc: { result: 'none' },
            },
          },
        ],
      };
    },
    renderShared: async () => undefined,
    async discard(body) {
      discarded.push(body);
    },
  };
  const poster: Poster = {
    async post(url, headers) {
      const post: Post = {
        url,
        id: headers['webhook-id'] ?? '',
        keys: (headers['x-keys'] ?? '').split(' '),
        at: clock.monotonic(),
      };
      posts.push(post);
      inFlight.most = Math.max(inFlight.most, ++inFlight.now);
      try {
        return await answer(post);
      } finally {
        inFlight.now--;
      }
    },
    head: async () => answered(200),
    async stop() {},
  };
  const signingKeys = { keysFor: async () => keys, rotate: async () => '', carryOver: async () => undefined };
  const destinations: Destinations = {
    of: async () => ({ kind: 'here' }),
    batchEvents: () => 1,
    target: () => PLAIN_TARGET,
  };
  const open = () =>
    createWebhookDispatcher(
      {
        concurrency: 64,
        concurrencyPerEndpoint: 8,
        concurrencyAtStart: 2,
        batchBytes: 1024 ** 2,
        retryHours: 120,
        orderHoldMs: 900_000,
        ...settings,
      },
      {
        spool,
        renderer,
        poster,
        destinations,
        signingKeys,
        time: createRunningTime(clock),
        clock,
        ids,
        log,
        ...replace,
      },
      others({ clock, spool, log }),
    );
  const dispatcher = open();

  return {
    clock,
    watch,
    spool,
    async put(deliveries, outgoing) {
      await Promise.all(deliveries.map((delivery) => putOne(delivery, outgoing)));
    },
    rows: async () => (await spool.list({}, 100_000)).reverse(),
    reads,
    log,
    posts,
    jobs,
    discarded,
    inFlight,
    dispatcher,
    endpoint(next) {
      answer = next;
    },
    keys(next) {
      keys = next;
    },
    renderer(fail) {
      rendererFails = fail;
    },
    slow(which) {
      isSlow = which;
    },
    postsTo: (url) => posts.filter((post) => post.url === url),
    async restart() {
      const next = open();
      await next.start();
      return next;
    },
  };
}

/** Lets everything happen that needs no time. */
export async function settleDown(bench: Bench): Promise<void> {
  for (let i = 0; i < 5; i++) await bench.clock.advance(0);
}
