import { Worker } from 'node:worker_threads';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { CELL, type ThreadData, type ThreadJob, type ThreadReply } from './protocol.ts';
import { beatMs, createWatch } from './pulse.ts';

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
  return Object.freeze({
    send(jobs: readonly ThreadJob[], transfer: readonly ArrayBuffer[]) {
      worker.postMessage(jobs, transfer);
    },
    watch(busy: boolean) {
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
