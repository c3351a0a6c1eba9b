import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { startThread, type Thread, type ThreadEnd } from './worker.ts';
import { CELL, type Packed, type TaskProtocol } from './worker-tasks.ts';

// Threads for work that input from outside may hang or break: parsing a message, composing one. The pool knows tasks by
// name and nothing of what they do; worker-tasks.ts is the threads' end.

/** The threads, and how much of them a task may use. */
export interface PoolSettings<Data> {
  /** Calls `serveTasks`. */
  readonly script: URL;
  /** What it opens its tasks with. */
  readonly data: Data;
  readonly threads: number;
  /** Milliseconds that a guarded part of a task may take. */
  readonly timeoutMs: number;
  /** Megabytes of heap of a thread. */
  readonly memoryMb: number;
}

/**
 * Runs a task. `pack` is called once more for each try after the first, because what was handed over is gone. `first`
 * puts it in front of what waits. Rejects with `TaskBroken` when it broke a thread that it had for itself.
 */
export type PooledTask<In, Out> = (pack: () => Packed<In>, first?: boolean) => Promise<Out>;

interface WorkerPool {
  /** The task that the threads have under this name. */
  task<In, Out>(name: string): PooledTask<In, Out>;
  /**
   * Runs a small task without input on every thread that has work, beside that work. Answers what those say that are
   * done within so many milliseconds: one that is stuck says nothing.
   */
  each<Out>(name: string, ms: number): Promise<readonly Out[]>;
  /** What waits and what runs is rejected. */
  stop(): Promise<void>;
}

/**
 * A task took too long, needed too much memory, or threw where nothing caught it. The message goes on after the name of
 * the work.
 */
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

interface PoolDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/**
 * Starts threads as they are needed. When one ends, the task that it was at is tried again alone, and is given up if
 * that thread ends as well; those that were with it go on elsewhere.
 */
export function createWorkerPool<Data>(settings: PoolSettings<Data>, deps: PoolDeps): WorkerPool {
  const { clock, log } = deps;
  const queue = createQueue();
  const slots = Array.from({ length: settings.threads }, () =>
    createSlot(settings, deps, { replied: dispatch, ended }),
  );
  let scheduled = false;
  let stopped = false;

  /** Hands out what waits, soon: what comes at one time shares a message to the thread. */
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

  /** Jobs go where the least is going on. While one waits to be alone, the first thread takes no others. */
  function handOut(): void {
    const share = Math.ceil(queue.waiting() / slots.length);
    for (const slot of slots.toSorted((a, b) => a.size() - b.size())) {
      if (slot.alone() || (queue.aloneWaiting() && slot === slots[0])) continue;
      slot.send(queue.take(Math.min(share, MOST_INSIDE - slot.size())), false);
    }
  }

  /** The job that the thread was at is suspect, and when it was at none, all are: they are tried again alone. */
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
    task:
      <In, Out>(name: string): PooledTask<In, Out> =>
      (pack, first = false) =>
        new Promise<Out>((resolve, reject) => {
          if (stopped) return reject(hasStopped());
          queue.add({ name, pack, n: 0, breaches: 0, resolve, reject }, first);
          dispatch();
        }),
    async each<Out>(name: string, ms: number) {
      const answers: Out[] = [];
      const asked = slots.map(async (slot) => {
        const outcome = await slot.ask(name);
        if (outcome?.kind === 'done') answers.push(outcome.value);
      });
      const late = Promise.withResolvers<void>();
      const cancel = clock.after(ms, late.resolve);
      await Promise.race([Promise.all(asked), late.promise]);
      cancel();
      return [...answers];
    },
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

/** A task that somebody waits for. */
interface Job {
  readonly name: string;
  pack(): Packed<unknown>;
  /** The number of its call on the thread that has it. */
  n: number;
  /** Threads that ended while it was inside. */
  breaches: number;
  // biome-ignore lint/suspicious/noExplicitAny: values lose their types between threads; who asks for a task says what it answers
  resolve(value: any): void;
  reject(error: Error): void;
}

/** What waits for a thread, and what waits to have a thread for itself. */
function createQueue() {
  let waiting: Job[] = [];
  let front: Job[] = [];
  let alone: Job[] = [];
  return {
    add(job: Job, first: boolean) {
      if (first) front.unshift(job);
      else waiting.push(job);
    },
    /**
     * Back from a thread that ended: to the front, or, when suspect or unlucky for the second time, to be tried alone.
     */
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

// While one waits for the DNS others go on; beyond this number memory says stop.
const MOST_INSIDE = 200;
// Said outright, the heap of a thread takes its room once instead of giving it back and taking it again: 25 us of
// system time per message.
const YOUNG_MB = 24;

/** How the thread of a slot ended, and with what inside. */
interface SlotEnd extends Pick<ThreadEnd, 'error' | 'started'> {
  readonly breach: Breach;
  /** The number of the call that it was at; 0 when it was at none. */
  readonly at: number;
  readonly alone: boolean;
  readonly jobs: readonly Job[];
}

/** A place for one thread after the other. */
function createSlot<Data>(
  { script, data, timeoutMs, memoryMb }: PoolSettings<Data>,
  { clock, log, metrics }: PoolDeps,
  events: { replied(): void; ended(end: SlotEnd): void },
) {
  const inside = new Set<Job>();
  /** What its threads count in, one after the other. */
  const numbers = metrics.share();
  let thread: Thread<TaskProtocol<Data>> | undefined;
  let watch: Watch | undefined;
  let started = false;
  /** A job that broke a thread is in it, and nothing else. */
  let alone = false;

  function start(): Thread<TaskProtocol<Data>> {
    const pulse = new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
    const cells = new Int32Array(pulse);
    let late: { readonly at: number } | undefined;
    watch = createWatch(cells, timeoutMs, clock, (at) => {
      late = { at };
      thread?.kill('it was too late');
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
    // No deadline runs before everything is loaded.
    made.ready.then(
      () => {
        started = true;
        if (inside.size > 0) watch?.start();
      },
      () => undefined,
    );
    return made;
  }

  function settle(job: Job): void {
    inside.delete(job);
    if (inside.size > 0) return;
    alone = false;
    watch?.stop();
  }

  return {
    size: () => inside.size,
    jobs: () => [...inside],
    alone: () => alone,
    /** Nothing when it has no work. */
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
            if (outcome.kind === 'died') return; // `ended` knows more
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
      watch?.stop();
      await thread?.terminate();
    },
  };
}

/** Nothing when what it is made of was given away: then it fails, and nothing else with it. */
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

// Looks per deadline. Counting looks instead of time keeps a machine that was asleep from blaming its messages.
const LOOKS = 20;

/** Milliseconds between beats of a thread that is watched with this deadline. */
function beatMs(timeoutMs: number): number {
  return Math.max(1, timeoutMs / LOOKS / 2);
}

interface Watch {
  /** Looks again and again until `stop`. It costs a timer, so it is done only while the thread has work. */
  start(): void;
  stop(): void;
}

/**
 * Calls `onBreach` when a thread is at one call for too long (with its number), or does not move at all for that long.
 */
function createWatch(cells: Int32Array, timeoutMs: number, clock: Clock, onBreach: (at: number) => void): Watch {
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
