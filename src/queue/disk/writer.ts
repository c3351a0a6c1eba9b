import { type Clock, createPauses } from '../../base/clock.ts';
import { errorText } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { moduleUrl } from '../../base/module-url.ts';
import { SpoolFault } from './faults.ts';
import { type News, type QueueThread, startQueueThread, type ThreadData } from './thread.ts';

/** Keeps a writer thread with a trusted file: after a failed sync, after damage, after the thread's death. */
export type Writer = Awaited<ReturnType<typeof openWriter>>;

interface WriterListener {
  news(news: News): void;
  /** A new file replaced the old one, which must no longer be read. */
  replaced(): Promise<void>;
}

/** Milliseconds between tries of a failed repair. */
const REPAIR_MS = 3000;

const WRITER = moduleUrl('./writer-thread.ts', import.meta.url);

interface Life {
  thread: QueueThread;
  dead: boolean;
  untrusted: { readonly damaged: boolean } | null;
  /** Messages whose thread died before it confirmed their acceptance. */
  readonly unanswered: Set<string>;
}

/** Starts the writer. A visitor repairs nothing: the file belongs to the daemon. */
export async function openWriter(data: ThreadData, deps: { clock: Clock; log: Log }, listener: WriterListener) {
  const pauses = createPauses(deps.clock);
  let trouble: Promise<void> | null = null;
  let closed = false;
  const start = () => startQueueThread(WRITER, data, deps.log, { news, died });
  const life: Life = { thread: await start(), dead: false, untrusted: null, unanswered: new Set() };
  const { rebuilt, loaded } = life.thread.opened;
  if (loaded) listener.news({ loaded });
  const step = createRepair(life, start, deps, listener);

  const repairing = async () => {
    await Promise.resolve(); // sets `trouble` before the first step runs
    while (!closed && !(await step())) await pauses.wait(REPAIR_MS);
  };
  const mend = () => {
    trouble ??= repairing().finally(() => {
      trouble = null;
    });
  };

  /** Stops writing to the file: everything readable is moved to a new one. */
  function distrust(reason: string, damaged: boolean): void {
    if (!life.untrusted) deps.log.error('spool.fault', { reason });
    if (data.role === 'visitor') return;
    life.untrusted ??= { damaged };
    mend();
  }
  function news(change: News): void {
    listener.news(change);
    if (change.broken) distrust(change.broken.reason, change.broken.damaged);
  }
  function died(reason: string): void {
    life.dead = true;
    if (closed) return;
    deps.log.error('spool.fault', { reason: `the writer thread ended: ${reason}` });
    mend();
  }

  return frozen({
    /** The counts of salvaged rows at the start; null: the file was sound. */
    rebuilt,
    ask: (...call: Parameters<QueueThread['ask']>) => life.thread.ask(...call),
    /** False while nothing can be written. */
    sound: () => trouble === null,
    /** Resolves when writes are possible again, or never will be. */
    async repaired() {
      while (trouble && !closed) await trouble;
    },
    distrust,
    /** Takes back a message that was refused to its sender although it may have been written. */
    takeBackLater: (messageId: string) => {
      life.unanswered.add(messageId);
    },
    async close() {
      closed = true;
      pauses.end();
      await trouble;
      await life.thread.end();
    },
  });
}

/** Creates a function that tries to repair everything once; it returns false if something is left to do. */
function createRepair(
  life: Life,
  start: () => Promise<QueueThread>,
  { clock, log }: { clock: Clock; log: Log },
  listener: WriterListener,
) {
  const demand = async (name: string, args: readonly unknown[]) => {
    const reply = await life.thread.ask(name, args);
    if (reply.kind !== 'done') throw new SpoolFault(String(reply.value));
    return reply.value;
  };
  const restart = async () => {
    life.thread = await start();
    life.dead = false;
    const { loaded } = life.thread.opened;
    if (loaded) listener.news({ loaded });
  };
  const replace = async (damaged: boolean) => {
    const rebuilt = await demand('rebuild', [clock.now(), damaged]);
    await listener.replaced();
    life.untrusted = null;
    log.warn('spool.recovered', { rebuilt });
  };
  const takeBack = async () => {
    const ids = [...life.unanswered];
    await demand('unaccept', [ids, clock.now()]);
    for (const id of ids) life.unanswered.delete(id);
  };
  return async () => {
    try {
      if (life.dead) await restart();
      if (life.untrusted) await replace(life.untrusted.damaged);
      if (life.unanswered.size > 0) await takeBack();
      return !life.dead && !life.untrusted;
    } catch (error) {
      log.debug('spool.fault', { reason: errorText(error) });
      return false;
    }
  };
}
