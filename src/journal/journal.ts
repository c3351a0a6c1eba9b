import { type Clock, createLoop, DAY_MS } from '../base/clock.ts';
import type { DiskSpaceSettings } from '../base/disk-space.ts';
import { errorText } from '../base/errors.ts';
import { frozen } from '../base/frozen.ts';
import { moduleUrl } from '../base/module-url.ts';
import type { Tools } from '../base/tools.ts';
import { startThread, type Thread } from '../base/worker.ts';
import { createFeed } from './feed.ts';
import { type AskJournal, createHistory } from './history.ts';
import type { JournalProtocol } from './journal-thread.ts';
import { createNoteBuffer } from './note-buffer.ts';

export interface JournalSettings {
  /** Path of the file, which is created if it is missing. */
  readonly file: string;
  readonly keepDays: number;
  readonly keepRefusalsDays: number;
  readonly maxBytes: number;
  /** Whether Subject, From and Message-ID are kept. */
  readonly subjects: boolean;
  /** The space that the queue leaves free; the journal leaves half of it. */
  readonly room: DiskSpaceSettings;
}

interface JournalDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  /** The clock for the deadlines of the thread, even if the rest uses another one. */
  readonly deadlines: Clock;
}

export type Journal = ReturnType<typeof createJournal>;

/** The file of the journal cannot be queried now: the disk is full, or its thread died. */
export class JournalAway extends Error {
  override readonly name = 'JournalAway';
}

const THREAD = moduleUrl('./journal-thread.ts', import.meta.url);
const YOUNG_MB = 4;
/** Maximum entries that wait to be written. */
const MAX_WAITING = 10_000;
/** Notes are written after this many of them, or after this time. */
const MAX_NOTES = 4000;
const GATHER_MS = 250;
/** How often the index is updated, and old rows are deleted. */
const TEND_MS = 1000;
const PURGE_MS = 60_000;
/** The index is updated in seconds with fewer notes than `QUIET`, or if it lacks more rows than `MAX_UNINDEXED`. */
const QUIET = 400;
const INDEX_STEP = 2000;
const MAX_UNINDEXED = 10_000;
/** Steps of index and purge in a second, if there is much to do. */
const MAX_STEPS = 5;
/** A thread that does not answer for this long is ended; the next one starts after RESTART_MS. */
const ANSWER_MS = 15_000;
/** Number of checks in ANSWER_MS. They are counted because our event loop may be late, or the machine asleep. */
const ANSWER_LOOKS = 15;
const SILENT = 'it does not answer';
/** Failures that a busy host causes, which are no faults of the file or of ours. */
const LOAD: ReadonlySet<string> = new Set([SILENT, 'database is locked']);
/** How long a stop waits for the thread. */
const STOP_MS = 5000;
const RESTART_MS = 10_000;
const KEEP_ACTIONS_DAYS = 365;
const KEEP_MINUTES_DAYS = 32;

/**
 * The history of this host, for people, in `settings.file`. It takes notes immediately, and writes them once started.
 * Nothing ever waits for it, and losing it loses no mail.
 */
export function createJournal(settings: JournalSettings, { clock, deadlines, log, metrics }: JournalDeps) {
  const lost = metrics.counter('postern_journal_lost_total');
  const buffer = createNoteBuffer(settings, added);
  const listeners = new Set<() => void>();
  let thread: Thread<JournalProtocol> | undefined;
  let phase: 'new' | 'running' | 'stopped' = 'new';
  let writing: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let underway = 0;
  /** Notes since the last batch, and since the file was last tended. */
  let noted = 0;
  let busy = 0;
  let unindexed = 0;
  let purgedAt = -Infinity;
  let failing: 'no' | 'load' | 'fault' = 'no';
  let answers = 0;
  let gap = false;
  let cancelFlush: (() => void) | undefined;
  let cancelRestart: (() => void) | undefined;

  function open(): void {
    const { file, room } = settings;
    const one = startThread<JournalProtocol>(
      { script: THREAD, data: { file, room }, youngMb: YOUNG_MB, gather: 'turn' },
      { log },
      {
        ended({ reason }) {
          if (thread === one) thread = undefined;
          failed(reason);
          if (phase !== 'running') return;
          cancelRestart = clock.after(RESTART_MS, open);
        },
      },
    );
    thread = one;
    one.ready.then(
      (reason) => {
        if (reason !== null) replaced(reason);
        void flush();
      },
      () => undefined, // `ended` reports it
    );
  }

  function replaced(reason: string): void {
    log.error('journal.fault', { reason: `a new file was created: ${reason}` });
    gap = true;
  }

  function lose(entries: number): void {
    lost.add(entries);
    gap = true;
  }

  /** Logs once that the journal cannot be written, and once that it can be again. Load is only a warning. */
  function failed(reason: string): void {
    const isLoad = LOAD.has(reason);
    if (isLoad && failing === 'no')
      log.warn('journal.fault', {
        reason,
        note:
          'this host is under load: some of the history is lost, but no mail; check its disk and CPU if this ' +
          'happens often',
      });
    if (!isLoad && failing !== 'fault') log.error('journal.fault', { reason });
    failing = isLoad && failing !== 'fault' ? 'load' : 'fault';
  }

  function worked(): void {
    if (failing !== 'no') log.info('journal.resumed');
    if (gap) for (const listener of listeners) listener();
    failing = 'no';
    gap = false;
  }

  /** The answer of the thread; if there is none for too long, the thread is ended, and another one replaces it. */
  async function answerOf(name: string, args: readonly unknown[]) {
    const one = thread;
    if (!one) return { kind: 'died', value: 'it is not running' } as const;
    const late = Promise.withResolvers<{ readonly kind: 'died'; readonly value: string }>();
    const cancel = whenSilent(() => {
      if (thread === one) thread = undefined;
      one.kill(SILENT);
      late.resolve({ kind: 'died', value: SILENT });
    });
    const reply = await Promise.race([one.ask(name, args), late.promise]);
    cancel();
    answers++;
    return reply;
  }

  /** Calls back when nothing was answered for ANSWER_MS. Answers to earlier calls count, because calls are queued. */
  function whenSilent(silent: () => void): () => void {
    let looks = 0;
    let seen = answers;
    let cancel = () => {};
    const look = () => {
      looks = seen === answers ? looks + 1 : 0;
      seen = answers;
      if (looks === ANSWER_LOOKS) silent();
      else cancel = deadlines.after(ANSWER_MS / ANSWER_LOOKS, look);
    };
    cancel = deadlines.after(ANSWER_MS / ANSWER_LOOKS, look);
    return () => cancel();
  }

  const ask: AskJournal = async (name, ...args) => {
    let reply = await answerOf(name, args);
    if (reply.kind === 'replaced') {
      replaced(String(reply.value));
      reply = await answerOf(name, args);
    }
    if (reply.kind === 'done') return reply.value;
    throw new JournalAway(String(reply.value));
  };

  const feed = createFeed(ask, clock);

  async function write(all: boolean): Promise<void> {
    noted = 0;
    if (!thread) return;
    const { batch, entries } = buffer.take(clock.now(), all);
    if (entries === 0) return;
    underway = entries;
    try {
      await ask('write', batch);
      unindexed += entries;
      feed.wrote(batch);
      worked();
    } catch (error) {
      lose(entries);
      failed(errorText(error));
    }
    underway = 0;
  }

  /** One batch at a time. */
  function flush(all = true): Promise<void> {
    cancelFlush?.();
    cancelFlush = undefined;
    if (writing) {
      next ??= writing.then(() => {
        next = undefined;
        return flush();
      });
      return next;
    }
    writing = write(all).then(() => {
      writing = undefined;
      if (phase === 'running' && buffer.size() > 0) flushSoon();
    });
    return writing;
  }

  function flushSoon(): void {
    cancelFlush ??= clock.after(GATHER_MS, () => void flush(false));
  }

  /** After each note. */
  function added(): void {
    noted++;
    busy++;
    const dropped = buffer.keep(MAX_WAITING - underway);
    if (dropped > 0) lose(dropped);
    if (phase !== 'running') return;
    if (noted >= MAX_NOTES && !writing) void flush(false);
    else flushSoon();
  }

  async function tend(): Promise<void> {
    const quiet = busy < QUIET;
    busy = 0;
    for (let step = 0; step < MAX_STEPS && (quiet ? step === 0 : unindexed > MAX_UNINDEXED); step++)
      unindexed = Number(await ask('index', INDEX_STEP));
    const now = clock.monotonic();
    if (now - purgedAt < PURGE_MS) return;
    const before = (days: number) => clock.now() - days * DAY_MS;
    const limits = {
      mailBefore: before(settings.keepDays),
      refusalsBefore: before(settings.keepRefusalsDays),
      actionsBefore: before(KEEP_ACTIONS_DAYS),
      minutesBefore: before(KEEP_MINUTES_DAYS),
      maxBytes: settings.maxBytes,
    };
    await ask('forgetAside', limits.mailBefore);
    for (let step = 0; step < MAX_STEPS; step++) {
      if (await ask('purge', limits)) continue;
      purgedAt = now;
      return;
    }
  }

  const tending = createLoop(clock, async () => {
    await tend().catch(() => undefined); // writes report the same failure
    return TEND_MS;
  });

  return frozen({
    history: createHistory(ask, clock),
    /** New rows, for live views. */
    feed,
    /** Takes notes about deliveries; see queue-watch.ts. */
    deliveries: buffer.deliveries,
    note: buffer.note,
    /** Resolves when all earlier notes are written, or lost and counted, or wait for a new thread. */
    flush: () => flush(),
    /** Queries the file itself. Rejects with `JournalAway`. */
    ask,
    /** The listener is called when the journal writes again after it lost something. */
    onGap: (listener: () => void): void => void listeners.add(listener),
    async start() {
      phase = 'running';
      // Mail does not wait for it, and a file that cannot be opened is tried again.
      open();
      tending.startAfter(TEND_MS);
    },
    async stop() {
      if (phase !== 'running') return;
      phase = 'stopped';
      void tending.stop();
      cancelRestart?.();
      const one = thread;
      const cancel = deadlines.after(STOP_MS, () => one?.kill('the daemon stops'));
      await flush();
      cancelFlush?.();
      thread = undefined;
      await one?.end();
      cancel();
    },
  });
}
