import { type Clock, withTimeout } from './clock.ts';
import { frozen } from './frozen.ts';
import type { Tools } from './tools.ts';
import { startThread, type Thread, type ThreadEnd } from './worker.ts';
import { CELL, type Packed, type TaskProtocol } from './worker-tasks.ts';

// Threads for work that untrusted input may hang or crash: parsing and composing messages. The pool knows tasks only by
// name; worker-tasks.ts is the threads' end.

/** The threads, and the limits of a task. */
export interface PoolSettings<Data> {
  /** The entry point of the threads, which calls `serveTasks`. */
  readonly script: URL;
  /** The data that it opens its tasks with. */
  readonly data: Data;
  readonly threads: number;
  /** Deadline for a guarded part of a task, in milliseconds. */
  readonly timeoutMs: number;
  /** Megabytes of heap per thread. */
  readonly memoryMb: number;
}

/**
 * Runs a task. `pack` is called again for each retry, because transferred buffers are gone. `first` puts the task at
 * the front of the queue. Rejects with `TaskBroken` if the task broke a thread on which it ran alone.
 */
export type PooledTask<In, Out> = (pack: () => Packed<In>, first?: boolean) => Promise<Out>;

/** A task exceeded its deadline or memory, or threw. The message is a predicate: the name of the work precedes it. */
export class TaskBroken extends Error {
  override readonly name = 'TaskBroken';
  readonly kind: Breach['kind'];

  constructor({ kind, text }: Breach) {
    super(text);
    this.kind = kind;
  }
}

interface Breach {
  readonly kind: 'time' | 'memory' | 'error';
  readonly text: string;
}

type PoolDeps = Pick<Tools, 'clock' | 'log' | 'metrics'>;

/**
 * Creates a pool that starts threads on demand, and ends those that have had no work for some time. If a thread fails,
 * the task that it was running is retried alone on a thread, and fails if that thread fails too. Other tasks of the
 * thread are requeued.
 */
export function createWorkerPool<Data>(settings: PoolSettings<Data>, deps: PoolDeps) {
  const { clock, log } = deps;
  const queue = createQueue();
  const slots = Array.from({ length: settings.threads }, () =>
    createSlot(settings, deps, { replied: dispatch, ended }),
  );
  let scheduled = false;
  let stopped = false;

  /** Schedules the distribution of waiting tasks; tasks added at the same time share a message to the thread. */
  function dispatch(): void {
    if (scheduled) return;
    scheduled = true;
    queueMicrotask(() => {
      scheduled = false;
      if (stopped) return;
      handOutAlone();
      handOut();
    });
  }

  function handOutAlone(): void {
    for (const slot of slots) {
      const job = slot.size() === 0 ? queue.takeAlone() : undefined;
      if (job) slot.send([job], true);
    }
  }

  /** Sends jobs to the least busy threads. While a job waits to run alone, the first thread gets no others. */
  function handOut(): void {
    const share = Math.ceil(queue.waiting() / slots.length);
    for (const slot of slots.toSorted((a, b) => a.size() - b.size())) {
      if (slot.alone() || (queue.aloneWaiting() && slot === slots[0])) continue;
      slot.send(queue.take(Math.min(share, MAX_INSIDE - slot.size())), false);
    }
  }

  /** The job that the thread was running is suspect; if it was running none, all are. Suspects are retried alone. */
  function ended({ breach, error, started, alone, at, jobs }: SlotEnd): void {
    if (stopped) return;
    log.warn('worker.ended', { reason: `a task ${breach.text}`, tasks: jobs.length, ...(error && { error }) });
    for (const job of jobs) {
      if (!started) job.reject(new Error('the thread did not start'));
      else if (alone) job.reject(new TaskBroken(breach));
      else queue.again(job, at === 0 || at === job.n);
    }
    dispatch();
  }

  return frozen({
    /** Returns the threads' task of this name. */
    task:
      <In, Out>(name: string): PooledTask<In, Out> =>
      (pack, first = false) =>
        new Promise<Out>((resolve, reject) => {
          if (stopped) return reject(hasStopped());
          queue.add({ name, pack, n: 0, breaches: 0, resolve, reject }, first);
          dispatch();
        }),
    /** Runs a short task on every thread that has work. Returns the results within `ms`; a stuck thread gives none. */
    async each<Out>(name: string, ms: number): Promise<readonly Out[]> {
      const answers: Out[] = [];
      const asked = slots.map(async (slot) => {
        const outcome = await slot.ask(name);
        if (outcome?.kind === 'done') answers.push(outcome.value);
      });
      await withTimeout(clock, ms, Promise.all(asked));
      return [...answers];
    },
    /** Rejects all waiting and running tasks. */
    async stop() {
      stopped = true;
      const left = [...slots.flatMap((slot) => slot.jobs()), ...queue.drain()];
      await Promise.all(slots.map((slot) => slot.stop()));
      for (const job of left) job.reject(hasStopped());
    },
  });
}

function hasStopped(): Error {
  return new Error('the threads were stopped');
}

/** A pending task. */
interface Job {
  readonly name: string;
  pack(): Packed<unknown>;
  /** The number of its call on its thread. */
  n: number;
  /** Number of threads that ended while they had it. */
  breaches: number;
  // biome-ignore lint/suspicious/noExplicitAny: values lose their types between threads; the caller knows them
  resolve(value: any): void;
  reject(error: Error): void;
}

/** The jobs that wait for a thread, and those that wait for a thread of their own. */
function createQueue() {
  let waiting: Job[] = [];
  let front: Job[] = [];
  let alone: Job[] = [];
  return {
    add(job: Job, first: boolean) {
      if (first) front.unshift(job);
      else waiting.push(job);
    },
    /** Requeues a job of a thread that ended: at the front, or to run alone if suspect or affected a second time. */
    again(job: Job, suspect: boolean) {
      job.breaches += 1;
      if (suspect || job.breaches > 1) alone.push(job);
      else front.push(job);
    },
    take(limit: number): Job[] {
      if (limit <= 0) return [];
      const taken = front.splice(0, limit);
      return taken.concat(waiting.splice(0, limit - taken.length));
    },
    takeAlone: () => alone.shift(),
    waiting: () => front.length + waiting.length,
    aloneWaiting: () => alone.length > 0,
    /** Empties it. */
    drain(): Job[] {
      const all = [...alone, ...front, ...waiting];
      waiting = [];
      front = [];
      alone = [];
      return all;
    },
  };
}

// Maximum number of jobs per thread: others continue while one waits for DNS. Limited for memory.
const MAX_INSIDE = 200;
// A thread that renders takes 40 MB, and more after a large message. The next task waits 0.4 s for another.
const IDLE_MS = 5 * 60_000;
// With an explicit size, the heap allocates its young generation once instead of shrinking and growing it, which saves
// 25 us of system time per message.
const YOUNG_MB = 24;

/** How the thread of a slot ended, and its jobs. */
interface SlotEnd extends Pick<ThreadEnd, 'error' | 'started'> {
  readonly breach: Breach;
  /** The number of the call that it was running; 0 if none. */
  readonly at: number;
  readonly alone: boolean;
  readonly jobs: readonly Job[];
}

/** A slot for one thread, which is replaced when it ends. */
function createSlot<Data>(
  { script, data, timeoutMs, memoryMb }: PoolSettings<Data>,
  { clock, log, metrics }: PoolDeps,
  events: { replied(): void; ended(end: SlotEnd): void },
) {
  const inside = new Set<Job>();
  /** The metrics memory of its successive threads. */
  const numbers = metrics.share();
  let thread: Thread<TaskProtocol<Data>> | undefined;
  let watch: Watch | undefined;
  let started = false;
  /** When it last had work, by the monotonic clock. */
  let usedAt = 0;
  let cancelIdle: (() => void) | undefined;
  let ending: Promise<void> | undefined;
  /** It has only one job, which is suspected of breaking a thread. */
  let alone = false;

  function start(): Thread<TaskProtocol<Data>> {
    const pulse = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
    const cells = new Int32Array(pulse);
    let late: { readonly at: number } | undefined;
    watch = createWatch(cells, timeoutMs, clock, (at) => {
      late = { at };
      thread?.kill('deadline exceeded');
    });
    const made = startThread<TaskProtocol<Data>>(
      {
        script,
        data: { own: data, pulse, numbers, beatMs: beatMs(timeoutMs) },
        limits: { maxOldGenerationSizeMb: memoryMb },
        youngMb: YOUNG_MB,
        gather: 'soon',
      },
      { log },
      {
        ended({ error, started: wasReady }) {
          watch?.stop();
          cancelIdle?.();
          const jobs = [...inside];
          const was = { alone, jobs, started: wasReady };
          inside.clear();
          thread = undefined;
          alone = false;
          const breach: Breach = late
            ? { kind: 'time', text: `took more than ${timeoutMs} ms` }
            : toBreach(error, memoryMb);
          events.ended({ ...was, breach, error, at: late?.at ?? Atomics.load(cells, CELL.at) });
        },
      },
    );
    started = false;
    // The deadline starts only when the thread has loaded.
    made.ready.then(
      () => {
        started = true;
        if (inside.size > 0) watch?.start();
      },
      () => undefined,
    );
    endWhenIdle(IDLE_MS);
    return made;
  }

  /** Checks at intervals, because a timer for each task would cost more. */
  function endWhenIdle(ms: number): void {
    cancelIdle = clock.after(ms, () => {
      const left = inside.size > 0 ? IDLE_MS : usedAt + IDLE_MS - clock.monotonic();
      if (left > 0) endWhenIdle(left);
      else end();
    });
  }

  function end(): void {
    watch?.stop();
    cancelIdle?.();
    ending = thread?.terminate() ?? ending;
    thread = undefined;
  }

  function settle(job: Job): void {
    inside.delete(job);
    if (inside.size > 0) return;
    alone = false;
    usedAt = clock.monotonic();
    watch?.stop();
  }

  return {
    size: () => inside.size,
    jobs: () => [...inside],
    alone: () => alone,
    /** Undefined if the thread has no work. */
    ask: async (name: string) => (inside.size > 0 ? thread?.ask(name, [undefined, []]) : undefined),
    send(jobs: readonly Job[], asOnly: boolean): void {
      const ready = jobs.flatMap(packed);
      if (ready.length < jobs.length) events.replied();
      if (ready.length === 0) return;
      thread ??= start();
      const { call } = thread;
      alone = asOnly;
      for (const { job, value, transfer } of ready) {
        inside.add(job);
        job.n = call(
          job.name,
          [value, transfer],
          (outcome) => {
            if (outcome.kind === 'died') return; // handled in `ended`
            settle(job);
            if (outcome.kind === 'done') job.resolve(outcome.value);
            else job.reject(new Error(outcome.value));
            events.replied();
          },
          transfer,
        );
      }
      if (started) watch?.start();
    },
    async stop() {
      end();
      await ending;
    },
  };
}

/** Packs a job. If this fails (because its buffers were already transferred), rejects only this job. */
function packed(job: Job): (Packed<unknown> & { readonly job: Job })[] {
  try {
    return [{ job, ...job.pack() }];
  } catch (error) {
    job.reject(error instanceof Error ? error : new Error(String(error)));
    return [];
  }
}

function toBreach(error: Error | undefined, memoryMb: number): Breach {
  const outOfMemory = error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY';
  return outOfMemory ? { kind: 'memory', text: `needed more than ${memoryMb} MB` } : { kind: 'error', text: 'failed' };
}

// Checks per deadline. Counts checks, not time, so that tasks do not time out while the machine is suspended.
const LOOKS = 20;

/** Milliseconds between beats of a thread with this deadline. */
function beatMs(timeoutMs: number): number {
  return Math.max(1, timeoutMs / LOOKS / 2);
}

type Watch = ReturnType<typeof createWatch>;

/** Calls `onBreach` (with the call number) if one guarded call takes too long, or no beat arrives for that long. */
function createWatch(cells: Int32Array, timeoutMs: number, clock: Clock, onBreach: (at: number) => void) {
  let cancel: (() => void) | undefined;
  let at = { value: 0, looks: 0 };
  let beat = { value: 0, looks: 0 };
  const seen = (before: typeof at, value: number) => ({ value, looks: before.value === value ? before.looks + 1 : 0 });
  const look = (): void => {
    at = seen(at, Atomics.load(cells, CELL.at));
    beat = seen(beat, Atomics.load(cells, CELL.beat));
    if ((at.value !== 0 && at.looks > LOOKS) || beat.looks > LOOKS) return onBreach(at.value);
    cancel = clock.after(timeoutMs / LOOKS, look);
  };
  return {
    /** Checks periodically until `stop`. Used only while the thread has work, because it takes a timer. */
    start() {
      if (cancel !== undefined) return;
      at = beat = { value: -1, looks: 0 };
      cancel = clock.after(timeoutMs / LOOKS, look);
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}
