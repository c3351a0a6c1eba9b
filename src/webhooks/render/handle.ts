import { Worker } from 'node:worker_threads';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { EventName, Fields, Log } from '../../base/log.ts';
import type { DnsSettings } from '../../dns/types.ts';
import type { Verdicts } from '../../mail/envelope.ts';
import type { Message } from '../../queue/delivery.ts';
import type { Composed, ComposeJob } from '../../sending/types.ts';
import type { PostBody } from '../types.ts';

export interface HandleSettings {
  readonly timeoutMs: number;
  readonly memoryMb: number;
  readonly data: Pick<ThreadData, 'dns' | 'hostname' | 'numbers'>;
  readonly script: URL;
}

// Said outright, the heap of a thread takes its room once instead of giving it back and taking it again: 25 us of system time per message.
const YOUNG_MB = 24;

/** What a render thread runs. */
export const RENDER_SCRIPT = new URL('./thread.ts', import.meta.url);

/** How a thread ended: what to say of it, and the number of the job that was being parsed (0 when none was). */
export interface ThreadEnd {
  readonly reason: string;
  /** Whether it had started; if not, no message is to blame. */
  readonly started: boolean;
  readonly parsing: number;
  readonly error: Error | undefined;
}

/** The reply to a job. */
export type TaskReply = Exclude<ThreadReply, { kind: 'log' | 'ready' }>;

export interface HandleEvents {
  replied(reply: TaskReply): void;
  /** Once, however it ended. */
  ended(end: ThreadEnd): void;
}

/** One render thread, watched. */
export interface Handle {
  send(jobs: readonly ThreadJob[], transfer: readonly ArrayBuffer[]): void;
  /** Watching costs a timer, so it is done only while the thread has work. */
  watch(busy: boolean): void;
  stop(): Promise<void>;
}

/** Starts a thread. It takes jobs at once; they wait until it has loaded everything, and no deadline runs before that. */
export function startThread(settings: HandleSettings, deps: { clock: Clock; log: Log }, events: HandleEvents): Handle {
  const { timeoutMs, memoryMb } = settings;
  const pulse = new SharedArrayBuffer(8);
  const cells = new Int32Array(pulse);
  const data: ThreadData = { ...settings.data, pulse, beatMs: beatMs(timeoutMs) };
  const worker = new Worker(settings.script, {
    workerData: data,
    resourceLimits: { maxOldGenerationSizeMb: memoryMb, maxYoungGenerationSizeMb: YOUNG_MB },
  });
  const state = { started: false, busy: false };
  let end: Omit<ThreadEnd, 'started'> = { reason: 'the thread ended', parsing: 0, error: undefined };
  const watch = createWatch(cells, timeoutMs, deps.clock, (parsing) => {
    end = { reason: `parsing took more than ${timeoutMs} ms`, parsing, error: undefined };
    void worker.terminate();
  });
  worker.on('message', (replies: readonly ThreadReply[]) => {
    for (const reply of replies) {
      if (reply.kind === 'log') deps.log[reply.level](reply.event, reply.fields);
      else if (reply.kind !== 'ready') events.replied(reply);
      else {
        state.started = true;
        if (state.busy) watch.start();
      }
    }
  });
  worker.on('error', (error: unknown) => {
    end = toEnd(error, memoryMb, Atomics.load(cells, CELL.parsing));
  });
  worker.on('exit', () => {
    watch.stop();
    events.ended({ ...end, started: state.started });
  });
  return frozen({
    send(jobs, transfer) {
      worker.postMessage(jobs, transfer);
    },
    watch(busy) {
      state.busy = busy;
      if (!busy) watch.stop();
      else if (state.started) watch.start();
    },
    async stop() {
      await worker.terminate();
    },
  });
}

function toEnd(error: unknown, memoryMb: number, parsing: number): Omit<ThreadEnd, 'started'> {
  const outOfMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY';
  const reason = outOfMemory ? `parsing needed more than ${memoryMb} MB` : 'the parser failed';
  return { reason, parsing, error: error instanceof Error ? error : undefined };
}

// Looks per deadline. Counting looks instead of time keeps a machine that was asleep from blaming its messages.
const LOOKS = 20;

export interface Watch {
  /** Looks again and again until `stop`. */
  start(): void;
  stop(): void;
}

/**
 * Watches the cells of a render thread: `onBreach` is called once when one job is parsed for longer than `timeoutMs`
 * (with its number), or when the thread does not move at all for that long (with 0).
 */
export function createWatch(
  cells: Int32Array,
  timeoutMs: number,
  clock: Clock,
  onBreach: (number: number) => void,
): Watch {
  let cancel: (() => void) | undefined;
  let parsing = { value: 0, looks: 0 };
  let beat = { value: 0, looks: 0 };
  const look = (): void => {
    parsing = seen(parsing, Atomics.load(cells, CELL.parsing));
    beat = seen(beat, Atomics.load(cells, CELL.beat));
    if (parsing.value !== 0 && parsing.looks > LOOKS) return onBreach(parsing.value);
    if (beat.looks > LOOKS) return onBreach(parsing.value);
    cancel = clock.after(timeoutMs / LOOKS, look);
  };
  return {
    start() {
      if (cancel !== undefined) return;
      parsing = beat = { value: -1, looks: 0 };
      cancel = clock.after(timeoutMs / LOOKS, look);
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}

function seen(before: { value: number; looks: number }, value: number): { value: number; looks: number } {
  return { value, looks: before.value === value ? before.looks + 1 : 0 };
}

/** Milliseconds between beats of a thread that is watched with this deadline. */
export function beatMs(timeoutMs: number): number {
  return Math.max(1, timeoutMs / LOOKS / 2);
}

/** What a render thread is started with. */
export interface ThreadData {
  readonly dns: DnsSettings;
  readonly hostname: string;
  /** Two cells shared with the pool: see `CELL`. */
  readonly pulse: SharedArrayBuffer;
  /** What the thread counts in (base/metrics.ts `createThreadMetrics`). */
  readonly numbers: SharedArrayBuffer;
  /** Milliseconds between beats. */
  readonly beatMs: number;
}

/** The cells of the pulse: the number of the job that is being parsed (0: none), and a count that moves while the thread is not stuck. */
export const CELL = Object.freeze({ parsing: 0, beat: 1 });

/** One job on its way to a thread. */
export type ThreadJob = PostJob | MailJob;

/** Mail going out, to be composed. */
export interface MailJob {
  readonly kind: 'mail';
  readonly number: number;
  readonly compose: ComposeJob;
}

/** A message that came in, or a batch of events, to be made into a POST. */
export interface PostJob {
  readonly kind: 'post';
  readonly number: number;
  readonly message: Message;
  readonly source: { readonly bytes: Uint8Array } | { readonly path: string };
  /** Where the form goes when the source is a file. */
  readonly formPath: string;
  readonly delivery: { readonly id: string; readonly recipient: string; readonly url: string };
  /** The source is a JSON array of events, to be sent as it is. */
  readonly isBatch: boolean;
  readonly keys: readonly string[];
  readonly at: number;
  /** Set: do not parse, deliver raw for this reason. */
  readonly parseError: string | null;
}

export type ThreadReply =
  /** Everything is loaded; from now on the pulse moves. */
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'rendered';
      readonly number: number;
      readonly body: PostBody;
      readonly headers: Readonly<Record<string, string>>;
      readonly verdicts: Verdicts;
      readonly parseError: string | null;
    }
  | { readonly kind: 'composed'; readonly number: number; readonly composed: Composed }
  /** It cannot be composed; `final`: however often it is tried. */
  | { readonly kind: 'refused'; readonly number: number; readonly reason: string; readonly final: boolean }
  /** The disk failed us. */
  | { readonly kind: 'failed'; readonly number: number; readonly message: string }
  | {
      readonly kind: 'log';
      readonly level: 'info' | 'warn' | 'error' | 'debug';
      readonly event: EventName;
      readonly fields: Fields;
    };
