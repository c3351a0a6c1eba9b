import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { type Metrics, NO_METRICS } from '../../base/metrics.ts';
import type { DnsSettings } from '../../dns/types.ts';
import type { ComposeJob, ComposeReply, Composer } from '../../sending/types.ts';
import type { Rendered, Renderer, RenderJob } from '../types.ts';
import { type Handle, RENDER_SCRIPT, startThread, type TaskReply, type ThreadEnd, type ThreadJob } from './handle.ts';

// As the pool names them.
const FORM_FILE = /^post-\d+\.form$/;
const HIGHEST_NUMBER = 0x7fffffff; // it has to fit a cell of the pulse

/**
 * Renders spooled messages on threads of its own. A message that is parsed for too long, needs too much memory or breaks the
 * thread is tried again alone, and if it does the same again it is rendered raw; those that were with it are rendered as ever.
 */
export function createRenderer(settings: RendererSettings, deps: RendererDeps): Renderer & Composer {
  const queue = createRenderQueue();
  const pool = createPool(settings, deps, queue);
  const swept = sweep(settings.tmpDir);
  let ready = false;
  swept.then(
    () => {
      ready = true;
    },
    () => undefined,
  ); // whoever renders first hears of a failure
  let number = 0;
  const add = (work: RenderWork, reject: (error: Error) => void) => {
    if (pool.stopped) return reject(stopped());
    number = (number % HIGHEST_NUMBER) + 1;
    queue.add({ number, work, parseError: null, breaches: 0, reject });
    schedule(pool);
  };
  return frozen({
    async render(job): Promise<Rendered> {
      if (!ready) await swept;
      return new Promise<Rendered>((resolve, reject) => add({ kind: 'post', job, resolve }, reject));
    },
    async compose(job): Promise<ComposeReply> {
      return new Promise<ComposeReply>((resolve, reject) => add({ kind: 'mail', job, resolve }, reject));
    },
    discard: (body) => (body.kind === 'file' ? rm(body.path, { force: true }) : undefined),
    async stop(): Promise<void> {
      const waiting = queue.drain();
      const inside = await stopPool(pool);
      for (const task of [...inside, ...waiting]) task.reject(stopped());
      await swept.catch(() => undefined);
    },
  });
}

function stopped(): Error {
  return new Error('the renderer has stopped');
}

/** Makes the folder, and removes what a process before us left in it. */
async function sweep(tmpDir: string): Promise<void> {
  await mkdir(tmpDir, { recursive: true });
  const left = (await readdir(tmpDir)).filter((name) => FORM_FILE.test(name));
  await Promise.all(left.map((name) => rm(join(tmpDir, name), { force: true })));
}

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

export interface RendererDeps {
  readonly clock: Clock;
  readonly log: Log;
  /** What the threads run instead, for tests of threads that break. */
  readonly script?: URL;
  readonly metrics?: Metrics | undefined;
}

/** The render threads and what waits for them. */
export interface Pool {
  readonly settings: RendererSettings;
  readonly deps: RendererDeps;
  readonly queue: RenderQueue;
  readonly threads: readonly Thread[];
  scheduled: boolean;
  stopped: boolean;
}

interface Thread {
  /** Started when it is first needed. */
  handle: Handle | undefined;
  readonly inside: Map<number, RenderTask>;
  /** What its threads count in, one after the other. */
  readonly numbers: SharedArrayBuffer;
  /** A task that broke a thread is in it, and nothing else. */
  alone: boolean;
}

// While one waits for the DNS others go on; beyond this number memory says stop.
const MOST_INSIDE = 200;

export function createPool(settings: RendererSettings, deps: RendererDeps, queue: RenderQueue): Pool {
  const { metrics = NO_METRICS } = deps;
  const threads = Array.from({ length: settings.workers }, () => ({
    handle: undefined,
    inside: new Map(),
    numbers: metrics.share(),
    alone: false,
  }));
  return { settings, deps, queue, threads, scheduled: false, stopped: false };
}

/** Hands out what waits, soon: what comes at one time shares a message to the thread. */
export function schedule(pool: Pool): void {
  if (pool.scheduled) return;
  pool.scheduled = true;
  queueMicrotask(() => {
    pool.scheduled = false;
    if (pool.stopped) return;
    dispatchAlone(pool);
    dispatch(pool);
  });
}

/** Ends the threads; answers the tasks that were in them. */
export async function stopPool(pool: Pool): Promise<RenderTask[]> {
  pool.stopped = true;
  const tasks = pool.threads.flatMap(({ inside }) => [...inside.values()]);
  await Promise.all(pool.threads.map(({ handle }) => handle?.stop()));
  return tasks;
}

function dispatchAlone(pool: Pool): void {
  for (const thread of pool.threads) {
    const task = thread.inside.size === 0 ? pool.queue.takeAlone() : undefined;
    if (task === undefined) continue;
    thread.alone = true;
    send(pool, thread, [task]);
  }
}

/** Tasks go where the least is going on. While one waits to be alone, the first thread takes no others. */
function dispatch(pool: Pool): void {
  const { queue, threads } = pool;
  const share = Math.ceil(queue.waiting() / threads.length);
  for (const thread of [...threads].sort((a, b) => a.inside.size - b.inside.size)) {
    if (thread.alone || (queue.aloneWaiting() && thread === threads[0])) continue;
    const tasks = queue.take(Math.min(share, MOST_INSIDE - thread.inside.size));
    if (tasks.length > 0) send(pool, thread, tasks);
  }
}

function send(pool: Pool, thread: Thread, tasks: readonly RenderTask[]): void {
  const handle = thread.handle ?? start(pool, thread);
  const jobs: ThreadJob[] = [];
  const transfer: ArrayBuffer[] = [];
  for (const task of tasks) {
    thread.inside.set(task.number, task);
    const { job, owned } = toThreadJob(task, pool.settings.tmpDir);
    jobs.push(job);
    if (owned !== undefined) transfer.push(owned);
  }
  handle.send(jobs, transfer);
  handle.watch(true);
}

function start(pool: Pool, thread: Thread): Handle {
  const { timeoutMs, memoryMb, dns, hostname } = pool.settings;
  const settings = {
    timeoutMs,
    memoryMb,
    data: { dns, hostname, numbers: thread.numbers },
    script: pool.deps.script ?? RENDER_SCRIPT,
  };
  const handle = startThread(settings, pool.deps, {
    replied: (reply) => replied(pool, thread, reply),
    ended: (end) => ended(pool, thread, end),
  });
  thread.handle = handle;
  return handle;
}

function replied(pool: Pool, thread: Thread, reply: TaskReply): void {
  const task = thread.inside.get(reply.number);
  if (task === undefined) return;
  thread.inside.delete(task.number);
  if (thread.inside.size === 0) {
    thread.alone = false;
    thread.handle?.watch(false);
  }
  answer(task, reply);
  schedule(pool);
}

function answer({ work, reject }: RenderTask, reply: TaskReply): void {
  if (reply.kind === 'failed') return reject(new Error(`rendering failed: ${reply.message}`));
  if (work.kind === 'post' && reply.kind === 'rendered') {
    return work.resolve({
      body: reply.body,
      headers: reply.headers,
      verdicts: reply.verdicts,
      parseError: reply.parseError,
    });
  }
  if (work.kind === 'mail' && reply.kind === 'composed')
    return work.resolve({ kind: 'composed', composed: reply.composed });
  if (work.kind === 'mail' && reply.kind === 'refused')
    return work.resolve({ kind: 'refused', reason: reply.reason, final: reply.final });
  reject(new Error('rendering failed: a thread answered something else'));
}

/** The task that was being parsed is suspect, and when none was, all are: they are tried again alone. */
function ended(pool: Pool, thread: Thread, { reason, started, parsing, error }: ThreadEnd): void {
  const tasks = [...thread.inside.values()];
  const { alone } = thread;
  thread.handle = undefined;
  thread.inside.clear();
  thread.alone = false;
  if (pool.stopped) return;
  pool.deps.log.warn('worker.ended', { reason, messages: tasks.length, ...(error === undefined ? {} : { error }) });
  for (const task of tasks) {
    void rm(formPath(pool.settings.tmpDir, task.number), { force: true }).catch(() => undefined);
    if (!started) task.reject(new Error('rendering failed: the thread did not start'));
    else if (alone) condemn(pool, task, reason);
    else pool.queue.again(task, parsing === 0 || parsing === task.number);
  }
  schedule(pool);
}

/** It broke a thread that it had for itself. */
function condemn(pool: Pool, task: RenderTask, reason: string): void {
  if (task.work.kind === 'mail') return task.work.resolve({ kind: 'refused', reason, final: true });
  if (task.parseError !== null) return task.reject(new Error(`rendering failed: ${reason}`));
  pool.deps.log.warn('message.parse_failed', { message: task.work.job.message.id, reason });
  pool.queue.raw(task, reason);
}

function toThreadJob(task: RenderTask, tmpDir: string): { job: ThreadJob; owned: ArrayBuffer | undefined } {
  const { number, work, parseError } = task;
  const { body } = work.job;
  // A copy of its own can be handed over; the original stays for another try.
  const bytes = body.kind === 'inline' ? new Uint8Array(body.bytes) : undefined;
  if (work.kind === 'mail') {
    return {
      job: { kind: 'mail', number, compose: bytes ? { ...work.job, body: { kind: 'inline', bytes } } : work.job },
      owned: bytes?.buffer,
    };
  }
  const { message, delivery, keys, at } = work.job;
  const source = body.kind === 'inline' ? { bytes: bytes ?? body.bytes } : { path: body.path };
  const { id, recipient, url } = delivery;
  return {
    job: {
      kind: 'post',
      number,
      message,
      source,
      formPath: formPath(tmpDir, number),
      delivery: { id, recipient, url },
      isBatch: delivery.batch !== undefined,
      keys,
      at,
      parseError,
    },
    owned: bytes?.buffer,
  };
}

function formPath(tmpDir: string, number: number): string {
  return `${tmpDir}/post-${number}.form`;
}

/** What is to be done with a message, and who waits for it. */
export type RenderWork =
  | { readonly kind: 'post'; readonly job: RenderJob; resolve(rendered: Rendered): void }
  | { readonly kind: 'mail'; readonly job: ComposeJob; resolve(reply: ComposeReply): void };

/** A message that waits to be rendered or composed, or is being. */
export interface RenderTask {
  /** Also names its form file. */
  readonly number: number;
  readonly work: RenderWork;
  /** Set: deliver raw, for this reason. */
  parseError: string | null;
  /** Threads that ended while it was inside. */
  breaches: number;
  reject(error: Error): void;
}

/** What waits for a thread, and what waits to have a thread for itself. */
export interface RenderQueue {
  add(task: RenderTask): void;
  /** Back from a thread that ended: to the front, or, when suspect or unlucky for the second time, to be tried alone. */
  again(task: RenderTask, suspect: boolean): void;
  /** Next, and without parsing, so that it needs no thread for itself. */
  raw(task: RenderTask, reason: string): void;
  take(limit: number): RenderTask[];
  takeAlone(): RenderTask | undefined;
  waiting(): number;
  aloneWaiting(): boolean;
  /** Empties it. */
  drain(): RenderTask[];
}

export function createRenderQueue(): RenderQueue {
  let waiting: RenderTask[] = [];
  let back: RenderTask[] = [];
  let alone: RenderTask[] = [];
  return frozen({
    add(task) {
      waiting.push(task);
    },
    again(task, suspect) {
      task.breaches += 1;
      if (suspect || task.breaches > 1) alone.push(task);
      else back.push(task);
    },
    raw(task, reason) {
      task.parseError = reason;
      back.unshift(task);
    },
    take(limit) {
      if (limit <= 0) return [];
      const taken = back.splice(0, limit);
      return taken.concat(waiting.splice(0, limit - taken.length));
    },
    takeAlone: () => alone.shift(),
    waiting: () => back.length + waiting.length,
    aloneWaiting: () => alone.length > 0,
    drain() {
      const all = [...alone, ...back, ...waiting];
      waiting = [];
      back = [];
      alone = [];
      return all;
    },
  });
}
