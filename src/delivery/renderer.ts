import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { DnsSettings } from '../dns/types.ts';
import { createRenderQueue, type RenderTask } from './render-queue.ts';
import { startThread, type Handle, type ThreadEnd } from './renderer-handle.ts';
import type { ThreadJob, ThreadReply } from './renderer-protocol.ts';
import type { PostBody, Rendered, Renderer, RenderJob } from './types.ts';

export interface RendererSettings {
  /** Threads. */
  readonly workers: number;
  /** Milliseconds a message may be parsed, and megabytes of heap for a thread. */
  readonly timeoutMs: number;
  readonly memoryMb: number;
  /** Folder for the forms of large messages. */
  readonly tmpDir: string;
  readonly dns: DnsSettings;
  /** Our name, for SPF. */
  readonly hostname: string;
}

interface Thread {
  handle: Handle | undefined;
  readonly inside: Map<number, RenderTask>;
  /** A task that broke a thread is in it, and nothing else. */
  alone: boolean;
}

// While one waits for the DNS others go on; beyond this number of waiting messages memory says stop.
const MOST_INSIDE = 200;
const FORM_FILE = /^post-\d+\.form$/;

/** Renders spooled messages on threads of its own, which are started when they are first needed. */
export function createRenderer(settings: RendererSettings, deps: { clock: Clock; log: Log }): Renderer {
  const { log } = deps;
  const queue = createRenderQueue();
  const threads: Thread[] = Array.from({ length: settings.workers }, () => ({ handle: undefined, inside: new Map(), alone: false }));
  const swept = sweep(settings.tmpDir);
  let number = 0;
  let scheduled = false;
  let stopped = false;

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    queueMicrotask(() => { scheduled = false; if (!stopped) dispatch(); });
  }

  /** Tasks go where the least is going on; all that go to a thread at one time share one message. */
  function dispatch(): void {
    for (const thread of threads) {
      const task = thread.inside.size === 0 ? queue.takeAlone() : undefined;
      if (task !== undefined) { thread.alone = true; send(thread, [task]); }
    }
    const share = Math.ceil(queue.waiting() / threads.length);
    for (const thread of [...threads].sort((a, b) => a.inside.size - b.inside.size)) {
      if (thread.alone || (queue.aloneWaiting() && thread === threads[0])) continue;
      const tasks = queue.take(Math.min(share, MOST_INSIDE - thread.inside.size));
      if (tasks.length > 0) send(thread, tasks);
    }
  }

  function send(thread: Thread, tasks: readonly RenderTask[]): void {
    const handle = thread.handle ?? start(thread);
    const jobs: ThreadJob[] = [];
    const transfer: ArrayBuffer[] = [];
    for (const task of tasks) {
      thread.inside.set(task.number, task);
      const { job, owned } = toThreadJob(task, settings.tmpDir);
      jobs.push(job);
      if (owned !== undefined) transfer.push(owned);
    }
    handle.send(jobs, transfer);
    handle.watch(true);
  }

  function start(thread: Thread): Handle {
    const handle = startThread(
      { timeoutMs: settings.timeoutMs, memoryMb: settings.memoryMb, data: { dns: settings.dns, hostname: settings.hostname } },
      deps,
      { replied: (reply) => replied(thread, reply), ended: (end) => ended(thread, end) },
    );
    thread.handle = handle;
    return handle;
  }

  function replied(thread: Thread, reply: Exclude<ThreadReply, { kind: 'log' | 'ready' }>): void {
    const task = thread.inside.get(reply.number);
    if (task === undefined) return;
    leave(thread, task);
    if (reply.kind === 'failed') task.reject(new Error(`rendering failed: ${reply.message}`));
    else task.resolve({ body: reply.body, headers: reply.headers, verdicts: reply.verdicts, parseError: reply.parseError });
    schedule();
  }

  function leave(thread: Thread, task: RenderTask): void {
    thread.inside.delete(task.number);
    if (thread.inside.size > 0) return;
    thread.alone = false;
    thread.handle?.watch(false);
  }

  /** The task that was being parsed is suspect, and when none was, all are: they are tried again alone. */
  function ended(thread: Thread, { reason, parsing, error }: ThreadEnd): void {
    const tasks = [...thread.inside.values()];
    thread.handle = undefined;
    thread.inside.clear();
    if (stopped) return;
    log.warn('worker.ended', { reason, messages: tasks.length, ...(error === undefined ? {} : { error }) });
    const alone = thread.alone;
    thread.alone = false;
    for (const task of tasks) {
      void rm(formPath(settings.tmpDir, task.number), { force: true });
      if (alone) condemn(task, reason);
      else queue.again(task, parsing === 0 || parsing === task.number);
    }
    schedule();
  }

  /** It broke a thread that it had for itself. */
  function condemn(task: RenderTask, reason: string): void {
    if (task.parseError !== null) return task.reject(new Error(`rendering failed: ${reason}`));
    log.warn('message.parse_failed', { message: task.job.message.id, reason });
    queue.raw(task, reason);
  }

  return Object.freeze({
    async render(job: RenderJob): Promise<Rendered> {
      await swept;
      if (stopped) throw new Error('the renderer has stopped');
      number = (number % 0x7fffffff) + 1;
      const mine = number;
      return new Promise<Rendered>((resolve, reject) => {
        queue.add({ number: mine, job, parseError: null, breaches: 0, resolve, reject });
        schedule();
      });
    },
    async discard(body: PostBody): Promise<void> {
      if (body.kind === 'file') await rm(body.path, { force: true });
    },
    async stop(): Promise<void> {
      stopped = true;
      const tasks = [...queue.drain(), ...threads.flatMap(({ inside }) => [...inside.values()])];
      await Promise.all(threads.map(({ handle }) => handle?.stop()));
      for (const task of tasks) task.reject(new Error('the renderer has stopped'));
      await swept;
    },
  });
}

function toThreadJob({ number, job, parseError }: RenderTask, tmpDir: string): { job: ThreadJob; owned: ArrayBuffer | undefined } {
  const { message, body, delivery, keys, at } = job;
  // A copy of its own can be handed over; the original stays for another try.
  const bytes = body.kind === 'inline' ? new Uint8Array(body.bytes) : undefined;
  const source = body.kind === 'inline' ? { bytes: bytes ?? body.bytes } : { path: body.path };
  const { id, recipient, url } = delivery;
  return {
    job: { number, message, source, formPath: formPath(tmpDir, number), delivery: { id, recipient, url }, keys, at, parseError },
    owned: bytes?.buffer,
  };
}

function formPath(tmpDir: string, number: number): string {
  return join(tmpDir, `post-${number}.form`);
}

/** Makes the folder, and removes what a process before us left in it. */
async function sweep(tmpDir: string): Promise<void> {
  await mkdir(tmpDir, { recursive: true });
  const left = (await readdir(tmpDir)).filter((name) => FORM_FILE.test(name));
  await Promise.all(left.map((name) => rm(join(tmpDir, name), { force: true })));
}
