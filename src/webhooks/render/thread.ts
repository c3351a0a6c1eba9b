import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../../base/clock.ts';
import { createIds } from '../../base/ids.ts';
import type { EventName, Fields, Log } from '../../base/log.ts';
import { createThreadMetrics } from '../../base/metrics.ts';
import { createResolver } from '../../dns/resolver.ts';
import { createAuthenticator } from '../../inbound/verdicts/authenticate.ts';
import { createComposer } from '../../sending/compose/compose.ts';
import { CELL, type ThreadData, type ThreadJob, type ThreadReply } from './handle.ts';
import { createComposing, createMarked, createRender } from './render.ts';

// Replies share a message to the pool: each costs both threads a wake-up.
const REPLIES_AT_ONCE = 8;

/** The other end of webhooks/render/pool.ts: takes jobs, answers rendered forms. */
function runThread(port: NonNullable<typeof parentPort>, data: ThreadData): void {
  const cells = new Int32Array(data.pulse);
  const outbox = createOutbox(port);
  const log = createThreadLog(outbox.push);
  const metrics = createThreadMetrics(data.numbers);
  const resolver = createResolver(data.dns, { clock: systemClock, log, ids: createIds(systemClock), metrics });
  const authenticator = createAuthenticator({
    resolver,
    clock: systemClock,
    settings: {
      questionsPerMessage: data.dns.questionsPerMessage,
      budgetMs: data.dns.budgetMs,
      hostname: data.hostname,
    },
  });
  const marked = createMarked((number) => {
    Atomics.store(cells, CELL.parsing, number);
  });
  const render = createRender({
    authenticator,
    log,
    marked,
    parseSeconds: metrics.histogram('postern_message_parse_seconds'),
    clock: systemClock,
  });
  const compose = createComposing({ marked, compose: createComposer() });
  setInterval(() => {
    Atomics.add(cells, CELL.beat, 1);
  }, data.beatMs).unref();
  const take = (jobs: readonly ThreadJob[]): void => {
    for (const job of jobs) {
      const reply: Promise<ThreadReply> = job.kind === 'mail' ? compose(job) : render(job);
      reply.then(outbox.push, (error: unknown) => {
        outbox.push({
          kind: 'failed',
          number: job.number,
          message: error instanceof Error ? error.message : String(error),
        });
      });
    }
  };
  // A port hands over up to a thousand messages before the loop turns: under load that is seconds without a timer, a DNS answer or
  // a beat, and a busy thread looked like one that hangs. So work begins behind the port, once in every turn.
  port.on('message', (jobs: readonly ThreadJob[]) => void setImmediate(take, jobs));
  outbox.push({ kind: 'ready' });
}

function createOutbox(port: NonNullable<typeof parentPort>) {
  let replies: ThreadReply[] = [];
  let waiting = false;
  const flush = (): void => {
    const batch = replies;
    replies = [];
    if (batch.length === 0) return;
    port.postMessage(
      batch,
      batch.flatMap((reply) => bytesOf(reply).map(toBuffer)),
    );
  };
  return {
    push(reply: ThreadReply): void {
      replies.push(reply);
      if (replies.length >= REPLIES_AT_ONCE) return flush();
      if (waiting) return;
      waiting = true;
      setImmediate(() => {
        waiting = false;
        flush();
      });
    },
  };
}

/** What is handed over and not copied. */
function bytesOf(reply: ThreadReply): Uint8Array[] {
  if (reply.kind === 'composed') return [reply.composed.bytes];
  return reply.kind === 'rendered' && reply.body.kind === 'bytes' ? [reply.body.bytes] : [];
}

function toBuffer(bytes: Uint8Array): ArrayBuffer {
  if (bytes.buffer instanceof ArrayBuffer) return bytes.buffer;
  throw new TypeError('a form is in memory of its own');
}

/** Lines of this thread are written by the process. */
function createThreadLog(push: (reply: ThreadReply) => void): Log {
  const at =
    (level: 'info' | 'warn' | 'error' | 'debug') =>
    (event: EventName, fields: Fields = {}) =>
      push({ kind: 'log', level, event, fields });
  return { info: at('info'), warn: at('warn'), error: at('error'), debug: at('debug') };
}

const data: ThreadData = workerData;
if (parentPort) runThread(parentPort, data);
