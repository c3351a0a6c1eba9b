import { type Clock, createPauses } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { moduleUrl } from '../../base/module-url.ts';
import { SpoolFault } from './faults.ts';
import type { Queries } from './queries.ts';
import { type QueueOutcome, type QueueThread, startQueueThread, type ThreadData } from './thread.ts';

/** The reader thread as used from the main thread. */
export type Reader = Awaited<ReturnType<typeof openReader>>;

const READER = moduleUrl('./reader-thread.ts', import.meta.url);
const AGAIN_MS = 1000;
/** The tries of a query that kills its thread, or finds damage even after a repair. */
const TRIES = 3;

/** Starts the reader. `repair` is called when it finds damage. */
export async function openReader(
  data: ThreadData,
  deps: { clock: Clock; log: Log },
  repair: (reason: string) => Promise<void>,
) {
  const pauses = createPauses(deps.clock);
  let closed = false;
  let starting: Promise<QueueThread> = start();

  function start(): Promise<QueueThread> {
    return startQueueThread(READER, data, deps.log, {
      died(reason) {
        if (closed) return;
        deps.log.error('spool.fault', { reason: `the reader thread ended: ${reason}` });
        restart();
      },
    });
  }

  function restart(): void {
    starting = start();
    starting.catch(() => undefined); // the next query gets the error
  }

  async function ask(name: string, args: readonly unknown[]): Promise<QueueOutcome> {
    let failure: unknown;
    for (let tries = 0; tries < TRIES && !closed; tries++) {
      const reply = await starting.then(
        (thread) => thread.ask(name, args),
        (error: unknown) => {
          restart();
          const reply: QueueOutcome = { kind: 'fault', value: error };
          return reply;
        },
      );
      if (reply.kind === 'done') return reply;
      failure = reply.value;
      if (reply.kind === 'fault') break;
      if (reply.kind === 'damaged') await repair(String(reply.value));
      if (reply.kind === 'again') await pauses.wait(AGAIN_MS);
    }
    throw new SpoolFault(closed ? 'the queue is closed' : `the queue cannot be read: ${String(failure)}`);
  }

  await starting;
  return frozen({
    read: async <K extends keyof Queries>(name: K, ...args: Parameters<Queries[K]>): Promise<ReturnType<Queries[K]>> =>
      (await ask(name, args)).value,
    /** Opens the current file of that name. */
    async reopen() {
      const reply = await (await starting).ask('reopen', []);
      if (reply.kind !== 'done' && reply.kind !== 'died')
        throw new SpoolFault(`the new queue file cannot be read: ${String(reply.value)}`);
    },
    async close() {
      closed = true;
      pauses.end();
      await starting.then(
        (thread) => thread.end(),
        () => undefined,
      );
    },
  });
}
