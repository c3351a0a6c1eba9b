import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import { SpoolFault } from './faults.ts';
import type { MessageRow } from './file/changes.ts';
import type { Rebuilt } from './file/rebuild.ts';
import { type Keeper, openKeeper } from './keeper.ts';
import { createCommitMeters } from './meters.ts';
import { createPauses } from './pauses.ts';
import type { News, ThreadData, WriterAsk } from './protocol.ts';
import { createTally, type Tally } from './tally.ts';
import type { AcceptOutcome, Delivery } from './types.ts';

/** The queue file from main's side: what is asked of it survives a failed sync, a full disk and the death of its thread. */
export interface QueueFile {
  readonly tally: Tally;
  /** What was salvaged while it was opened. */
  readonly rebuilt: Rebuilt | null;
  /** False while nothing can be written. */
  sound(): boolean;
  accept(message: MessageRow, deliveries: readonly Delivery[]): Promise<AcceptOutcome>;
  /** Resolves after the sync, however long that takes; throws only when the write is wrong in itself, or at the end. */
  write<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>): Promise<ReturnType<WriterAsk[K]>>;
  /** As `write`, tried once: throws SpoolFault when it cannot be done now, or nobody knows whether it was. */
  once<K extends keyof WriterAsk>(name: K, ...args: Parameters<WriterAsk[K]>): Promise<ReturnType<WriterAsk[K]>>;
  /** A synced write that throws at once when it cannot be done now. */
  check(): Promise<void>;
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

/** How often another process's changes are looked for, and what could not be written is tried again. */
const POLL_MS = 1000;
/** What comes of an attempt: it can wait for new mail to travel with. */
const PATIENT: ReadonlySet<keyof WriterAsk> = new Set<keyof WriterAsk>(['settle', 'reported', 'keepTime']);

/** Opens the queue file in its thread. */
export async function openQueueFile(
  data: ThreadData,
  deps: { clock: Clock; log: Log; metrics?: Metrics | undefined },
  listener: QueueFileListener,
): Promise<QueueFile> {
  const { clock } = deps;
  const committed = createCommitMeters(deps.metrics);
  const tally = createTally();
  const news = ({ loaded, endpoints, shifts, commit }: News) => {
    if (commit) committed(commit);
    if (loaded) {
      tally.replace(loaded);
      listener.changed();
    } else if (endpoints && shifts) tally.change(endpoints, shifts);
  };
  const keeper = await openKeeper(data, deps, { news, replaced: () => listener.replaced() });
  const writing = createWriting(keeper, clock, data.role);
  const stopPoll = every(clock, POLL_MS, () => {
    if (keeper.sound()) void keeper.ask('poll', []);
  });

  return Object.freeze({
    tally,
    rebuilt: keeper.rebuilt,
    sound: keeper.sound,
    accept: writing.accept,
    write: writing.write,
    once: writing.once,
    check: () => writing.once('check', clock.now()),
    async repair(reason: string) {
      keeper.distrust(reason, true);
      await keeper.repaired();
    },
    async close() {
      stopPoll();
      writing.end();
      await keeper.close();
    },
  });
}

function createWriting(keeper: Keeper, clock: Clock, role: ThreadData['role']) {
  const pauses = createPauses(clock);
  let closed = false;
  return {
    async accept(message: MessageRow, deliveries: readonly Delivery[]): Promise<AcceptOutcome> {
      if (closed || !keeper.sound()) return 'fault';
      const reply = await keeper.ask('accept', [message, deliveries]);
      if (reply.kind === 'died') keeper.takeBackLater(message.id);
      if (reply.kind === 'done') return reply.value === true ? 'accepted' : 'fault';
      return reply.kind === 'full' ? 'full' : 'fault';
    },
    async write<K extends keyof WriterAsk>(
      name: K,
      ...args: Parameters<WriterAsk[K]>
    ): Promise<ReturnType<WriterAsk[K]>> {
      for (;;) {
        if (!keeper.sound()) await keeper.repaired();
        if (closed) throw new SpoolFault('the queue is closed');
        const reply = await keeper.ask(name, args, PATIENT.has(name));
        if (reply.kind === 'done') return reply.value;
        // The daemon has time; a person at the command line wants to know.
        if (reply.kind === 'fault' || role === 'visitor') throw new SpoolFault(String(reply.value));
        if (keeper.sound()) await pauses.wait(POLL_MS);
      }
    },
    async once<K extends keyof WriterAsk>(
      name: K,
      ...args: Parameters<WriterAsk[K]>
    ): Promise<ReturnType<WriterAsk[K]>> {
      const reply = closed || !keeper.sound() ? undefined : await keeper.ask(name, args);
      if (reply?.kind === 'done') return reply.value;
      throw new SpoolFault(`the queue cannot be written: ${String(reply?.value ?? 'it is being repaired')}`);
    },
    end() {
      closed = true;
      pauses.end();
    },
  };
}

/** Runs `fn` every `ms` milliseconds until the answer is called. */
function every(clock: Clock, ms: number, fn: () => void): () => void {
  let cancel = () => {};
  const next = () => {
    cancel = clock.after(ms, () => {
      next();
      fn();
    });
  };
  next();
  return () => cancel();
}
