import { Worker } from 'node:worker_threads';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { beatMs, createWatch } from './render-pulse.ts';
import type { ThreadData, ThreadJob, ThreadReply } from './renderer-protocol.ts';

export interface HandleSettings {
  readonly timeoutMs: number;
  readonly memoryMb: number;
  readonly data: Pick<ThreadData, 'dns' | 'hostname'>;
}

/** How a thread ended: what to say of it, and the number of the job that was being parsed (0 when none was). */
export interface ThreadEnd {
  readonly reason: string;
  readonly parsing: number;
  readonly error: Error | undefined;
}

export interface HandleEvents {
  replied(reply: Exclude<ThreadReply, { kind: 'log' | 'ready' }>): void;
  ended(end: ThreadEnd): void;
}

/** One render thread, watched. It ends once: by a breach, by a crash or by `stop`. */
export interface Handle {
  send(jobs: readonly ThreadJob[], transfer: readonly ArrayBuffer[]): void;
  /** Watching costs a timer, so it is done only while the thread has work. */
  watch(busy: boolean): void;
  stop(): Promise<void>;
}

const START_BREACH = 'the thread did not start';

export function startThread(settings: HandleSettings, deps: { clock: Clock; log: Log }, events: HandleEvents): Handle {
  const { timeoutMs, memoryMb } = settings;
  const pulse = new SharedArrayBuffer(8);
  const cells = new Int32Array(pulse);
  const data: ThreadData = { ...settings.data, pulse, beatMs: beatMs(timeoutMs) };
  const worker = new Worker(new URL('./renderer-thread.ts', import.meta.url), {
    workerData: data, resourceLimits: { maxOldGenerationSizeMb: memoryMb },
  });
  let ready = false;
  let busy = false;
  let end: ThreadEnd = { reason: 'the thread ended', parsing: 0, error: undefined };
  const watch = createWatch(cells, timeoutMs, deps.clock, (parsing) => {
    end = { reason: `parsing took more than ${timeoutMs} ms`, parsing, error: undefined };
    void worker.terminate();
  });
  worker.on('message', (replies: readonly ThreadReply[]) => {
    for (const reply of replies) {
      if (reply.kind === 'log') deps.log[reply.level](reply.event, reply.fields);
      else if (reply.kind !== 'ready') events.replied(reply);
      else { ready = true; if (busy) watch.start(); }
    }
  });
  worker.on('error', (error: unknown) => {
    const outOfMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY';
    const reason = outOfMemory ? `parsing needed more than ${memoryMb} MB` : ready ? 'the parser failed' : START_BREACH;
    end = { reason, parsing: Atomics.load(cells, 0), error: error instanceof Error ? error : undefined };
  });
  worker.on('exit', () => { watch.stop(); events.ended(end); });
  return {
    send: (jobs, transfer) => { worker.postMessage(jobs, transfer); },
    watch(now) {
      busy = now;
      if (!now) watch.stop();
      else if (ready) watch.start();
    },
    stop: async () => { await worker.terminate(); },
  };
}
