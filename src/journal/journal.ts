import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Service } from '../base/service.ts';
import { startThread, type Thread } from '../base/worker.ts';
import { createFeed, type Feed } from './feed.ts';
import { createGathering, type Gathering } from './gathering.ts';
import { type Ask, createHistory } from './history.ts';
import type { JournalProtocol } from './journal-thread.ts';
import type { History, Notes } from './types.ts';

export interface JournalSettings {
  /** Path of the file; made if it is missing. */
  readonly file: string;
  readonly keepDays: number;
  readonly keepRefusalsDays: number;
  readonly maxBytes: number;
  /** Whether Subject, From and Message-ID are kept. */
  readonly subjects: boolean;
}

/** The history of this host, for people. Nothing ever waits for it, and losing it loses no mail. */
export interface Journal extends Notes, Service {
  readonly history: History;
  /** What is written, for those who watch. */
  readonly feed: Pick<Feed, 'watch'>;
  /** What is noted of deliveries; see watch.ts. */
  readonly deliveries: Gathering['deliveries'];
  /** Everything that was noted before is written, or lost and counted. */
  flush(): Promise<void>;
  /** Asks the file itself. Rejects with `JournalAway`. */
  readonly ask: Ask;
}

/** The file of the journal cannot be asked now: the disk is full, or its thread died. */
export class JournalAway extends Error {
  override readonly name = 'JournalAway';
}

const THREAD = new URL('./journal-thread.ts', import.meta.url);
const YOUNG_MB = 4;
/** Entries that wait to be written, and how long they gather. */
const MAX_WAITING = 10_000;
const MAX_BATCH = 1000;
const GATHER_MS = 250;
/** How often the index of words is brought up, and old rows are deleted. */
const TEND_MS = 1000;
const PURGE_MS = 60_000;
/** With fewer new entries in a second there is time for the index, and with so many rows outside it there must be. */
const QUIET = 400;
const INDEX_STEP = 2000;
const MAX_UNINDEXED = 50_000;
/** How long a thread that died is left alone. */
const RESTART_MS = 10_000;
const DAY_MS = 86_400_000;
const KEEP_ACTIONS_DAYS = 365;

/** The journal in `settings.file`. It takes notes from now on, and writes them from its start. */
export function createJournal(
  settings: JournalSettings,
  { clock, log, metrics }: { readonly clock: Clock; readonly log: Log; readonly metrics: Metrics },
): Journal {
  const lost = metrics.counter('postern_journal_lost_total');
  const gathering = createGathering(settings, added);
  let thread: Thread<JournalProtocol> | undefined;
  let phase: 'new' | 'running' | 'stopped' = 'new';
  let writing = Promise.resolve();
  let underway = 0;
  let noted = 0;
  let unindexed = 0;
  let cancelFlush: (() => void) | undefined;
  let cancelTend: (() => void) | undefined;
  let purgedAt = -Infinity;
  let failing = false;

  function open(): void {
    const one = startThread<JournalProtocol>(
      { script: THREAD, data: { file: settings.file }, youngMb: YOUNG_MB, gather: 'turn' },
      { log },
      {
        ended({ reason }) {
          thread = undefined;
          failed(reason);
          clock.after(RESTART_MS, () => {
            if (phase === 'running' && !thread) open();
          });
        },
      },
    );
    thread = one;
    one.ready.then(
      (replaced) => {
        if (replaced !== null) log.error('journal.fault', { reason: `a new file was begun: ${replaced}` });
      },
      () => undefined, // `ended` has heard of it
    );
  }

  /** Says once that the journal cannot be written, and once that it can be again. */
  function failed(reason: string): void {
    if (!failing) log.error('journal.fault', { reason });
    failing = true;
  }

  function worked(): void {
    if (failing) log.info('journal.resumed');
    failing = false;
  }

  const ask: Ask = async (name, ...args) => {
    const reply = (await thread?.ask(name, args)) ?? { kind: 'died' as const, value: 'it is not running' };
    if (reply.kind === 'done') return reply.value;
    if (reply.kind === 'replaced') log.error('journal.fault', { reason: `a new file was begun: ${reply.value}` });
    throw new JournalAway(String(reply.value));
  };

  const feed = createFeed(ask, clock);

  async function write(): Promise<void> {
    const { batch, entries } = gathering.take();
    if (entries === 0) return;
    underway += entries;
    try {
      await ask('write', batch);
      feed.wrote(batch);
      worked();
    } catch (error) {
      lost.add(entries);
      failed(error instanceof Error ? error.message : String(error));
    }
    underway -= entries;
  }

  function flush(): Promise<void> {
    cancelFlush?.();
    cancelFlush = undefined;
    writing = writing.then(write);
    return writing;
  }

  /** After each note. */
  function added(): void {
    noted++;
    const dropped = gathering.keep(MAX_WAITING - underway);
    if (dropped > 0) lost.add(dropped);
    if (phase !== 'running') return;
    if (gathering.size() >= MAX_BATCH && underway === 0) void flush();
    else cancelFlush ??= clock.after(GATHER_MS, () => void flush());
  }

  async function tend(): Promise<void> {
    const quiet = noted < QUIET;
    noted = 0;
    if (quiet || unindexed > MAX_UNINDEXED) unindexed = Number(await ask('index', INDEX_STEP));
    else unindexed += INDEX_STEP;
    const now = clock.monotonic();
    if (now - purgedAt < PURGE_MS) return;
    const before = (days: number) => clock.now() - days * DAY_MS;
    const more = await ask('purge', {
      mailBefore: before(settings.keepDays),
      refusalsBefore: before(settings.keepRefusalsDays),
      actionsBefore: before(KEEP_ACTIONS_DAYS),
      maxBytes: settings.maxBytes,
    });
    if (!more) purgedAt = now;
  }

  function tendLater(): void {
    cancelTend = clock.after(TEND_MS, () => {
      void tend()
        .catch(() => undefined) // said when it was written to
        .then(() => {
          if (phase === 'running') tendLater();
        });
    });
  }

  return frozen({
    history: createHistory(ask, clock),
    feed,
    deliveries: gathering.deliveries,
    note: gathering.note,
    flush,
    ask,
    async start() {
      phase = 'running';
      open();
      // What cannot be opened is tried again later: mail does not wait for it.
      await thread?.ready.catch(() => undefined);
      tendLater();
    },
    async stop() {
      if (phase !== 'running') return;
      phase = 'stopped';
      cancelTend?.();
      await flush();
      await thread?.end();
      thread = undefined;
    },
  });
}
