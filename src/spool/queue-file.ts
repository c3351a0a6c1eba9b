import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { SpoolFault } from './faults.ts';
import { createPauses } from './pauses.ts';
import type { News, ThreadData, WriterAsk } from './protocol.ts';
import type { Rebuilt } from './rebuild.ts';
import { createTally, type Tally } from './tally.ts';
import { startThread, type Thread } from './thread.ts';
import type { MessageRow } from './changes.ts';
import type { AcceptOutcome, Delivery } from './types.ts';

/** The writer thread from main's side: what it is asked survives a failed sync, a full disk and the death of the thread. */
export interface QueueFile {
  readonly tally: Tally;
  /** What was salvaged while it was opened. */
  readonly rebuilt: Rebuilt | null;
  /** False while nothing can be written. */
  sound(): boolean;
  accept(message: MessageRow, deliveries: readonly Delivery[]): Promise<AcceptOutcome>;
  /** Resolves after the sync, however long that takes; throws only when the write is wrong in itself, or at the end. */
  write<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>): Promise<ReturnType<WriterAsk[K]>>;
  /** As `write`, but throws at once when it cannot be done now. */
  tryWrite<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>): Promise<void>;
  /** The file was found damaged: resolves when what can be read is in a new one. */
  repair(reason: string): Promise<void>;
  close(): Promise<void>;
}

export interface QueueFileListener {
  /** Something other than our own writes changed the queue. */
  changed(): void;
  /** A new file took the place of the old one, which must not be read any more. */
  replaced(): Promise<void>;
}

/** How often another process's changes are looked for, and a failed repair is tried again. */
const POLL_MS = 1000;
const REPAIR_MS = 3000;

const WRITER = new URL('./writer.ts', import.meta.url);

/** Opens the queue file in its thread. */
export async function openQueueFile(data: ThreadData, deps: { clock: Clock; log: Log }, listener: QueueFileListener): Promise<QueueFile> {
  const { clock, log } = deps;
  const tally = createTally();
  const pauses = createPauses(clock);
  /** Accepted or not? Their thread died before it said so; their senders were told that they were not. */
  const unanswered = new Set<string>();
  let untrusted: { readonly damaged: boolean } | null = null;
  let dead = false;
  let trouble: Promise<void> | null = null;
  let closed = false;

  const news = ({ broken, loaded, endpoints, shifts }: News) => {
    if (loaded) {
      tally.replace(loaded);
      listener.changed();
    } else if (endpoints && shifts) tally.change(endpoints, shifts);
    if (broken) distrust(broken.reason, broken.damaged);
  };
  const died = (reason: string) => {
    dead = true;
    if (closed) return;
    log.error('spool.fault', { reason: `the writer thread ended: ${reason}` });
    mend();
  };
  const start = () => startThread(WRITER, data, { news, died });

  function distrust(reason: string, damaged: boolean): void {
    if (!untrusted) log.error('spool.fault', { reason });
    untrusted ??= { damaged };
    mend();
  }

  function mend(): void {
    trouble ??= repairing().finally(() => { trouble = null; });
  }

  async function repairing(): Promise<void> {
    await Promise.resolve(); // so that `trouble` is set whatever the first step does
    while (!closed && !(await repairStep())) await pauses.wait(REPAIR_MS);
  }

  async function repairStep(): Promise<boolean> {
    try {
      if (dead) await restart();
      if (unanswered.size > 0) await takeBack();
      if (untrusted) await replace(untrusted.damaged);
      return !dead && !untrusted;
    } catch (error) {
      log.debug('spool.fault', { reason: error instanceof Error ? error.message : String(error) });
      return false;
    }
  }

  async function restart(): Promise<void> {
    thread = await start();
    dead = false;
    if (thread.loaded) tally.replace(thread.loaded);
    listener.changed();
  }

  async function takeBack(): Promise<void> {
    const ids = [...unanswered];
    const reply = await thread.ask('unaccept', [ids]);
    if (reply.kind !== 'done') throw new SpoolFault(String(reply.value));
    for (const id of ids) unanswered.delete(id);
  }

  async function replace(damaged: boolean): Promise<void> {
    const reply = await thread.ask('rebuild', [clock.now(), damaged]);
    if (reply.kind !== 'done') throw new SpoolFault(String(reply.value));
    await listener.replaced();
    untrusted = null;
    log.warn('spool.recovered', { rebuilt: reply.value });
  }

  async function write<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>): Promise<ReturnType<WriterAsk[K]>> {
    for (;;) {
      while (trouble && !closed) await trouble;
      if (closed) throw new SpoolFault('the queue is closed');
      const reply = await thread.ask(name, args);
      // Values lose their types between threads; the writer answers what `WriterAsk` says.
      if (reply.kind === 'done') return reply.value as ReturnType<WriterAsk[K]>;
      if (reply.kind === 'fault') throw new SpoolFault(String(reply.value));
      if (!trouble && !closed) await pauses.wait(POLL_MS);
    }
  }

  let thread: Thread = await start();
  if (thread.loaded) tally.replace(thread.loaded);
  const rebuilt = thread.rebuilt;
  let stopPoll = clock.after(POLL_MS, poll);
  function poll(): void {
    if (!trouble) void thread.ask('poll', []);
    if (!closed) stopPoll = clock.after(POLL_MS, poll);
  }

  return Object.freeze({
    tally,
    rebuilt,
    sound: () => trouble === null,
    write,
    async accept(message: MessageRow, deliveries: readonly Delivery[]): Promise<AcceptOutcome> {
      if (trouble || closed) return 'fault';
      const reply = await thread.ask('accept', [message, deliveries]);
      if (reply.kind === 'died') unanswered.add(message.id);
      if (reply.kind === 'done') return reply.value === true ? 'accepted' : 'fault';
      return reply.kind === 'full' ? 'full' : 'fault';
    },
    async tryWrite<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>) {
      const reply = trouble || closed ? undefined : await thread.ask(name, args);
      if (reply?.kind !== 'done') throw new SpoolFault(`the queue cannot be written: ${String(reply?.value ?? 'it is being repaired')}`);
    },
    async repair(reason: string) {
      distrust(reason, true);
      while (trouble && !closed) await trouble;
    },
    async close() {
      closed = true;
      stopPoll();
      pauses.end();
      await trouble;
      await thread.end();
    },
  });
}
