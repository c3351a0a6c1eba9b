import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import { createPrometheus } from '../../src/base/prometheus.ts';
import { createJournal, type Journal, type JournalSettings } from '../../src/journal/journal.ts';
import { type WatchedQueue, watchQueue } from '../../src/journal/queue-watch.ts';
import type { MailFilter, MailRecord, Note } from '../../src/journal/types.ts';
import type { Spool } from '../../src/queue/delivery.ts';
import { afterTest } from './cleanup.ts';
import { createTestClock, type TestClock } from './clock.ts';
import { createTestLog } from './log.ts';
import { readScrape } from './metrics.ts';
import { NO_FLOOR } from './room.ts';
import { tempDir } from './temp.ts';

const open: { stop(): Promise<void> }[] = [];
afterTest(async () => {
  for (const one of open.splice(0).reverse()) await one.stop();
});

export interface TestJournal {
  readonly journal: Journal;
  readonly file: string;
  readonly clock: TestClock;
  /** The clock by which its thread must answer. */
  readonly deadlines: TestClock;
  readonly log: ReturnType<typeof createTestLog>;
  /** Entries that were lost. */
  lost(): Promise<number>;
  /** The newest mail that matches. */
  mail(filter?: MailFilter): Promise<readonly MailRecord[]>;
  /** A queue that it watches; the test starts the comparison with the queue. */
  watch(spool: Spool): WatchedQueue;
  stop(): Promise<void>;
}

/** A journal in a folder of its own, or on the file of another one that was stopped. The test need not stop it. */
export async function startJournal(
  settings: Partial<JournalSettings> = {},
  { clock = createTestClock(), started = true }: { clock?: TestClock; started?: boolean } = {},
): Promise<TestJournal> {
  const file = settings.file ?? join(await tempDir(), 'journal.db');
  const log = createTestLog();
  const deadlines = createTestClock();
  const metrics = createPrometheus({ clock: systemClock }, { ofProcess: false });
  const journal = createJournal(
    { file, keepDays: 30, keepRefusalsDays: 7, maxBytes: 2 ** 30, subjects: true, room: NO_FLOOR, ...settings },
    { clock, deadlines, log, metrics },
  );
  if (started) await journal.start();
  const watches: WatchedQueue[] = [];
  let stopping: Promise<void> | undefined;
  const one: TestJournal = {
    journal,
    file,
    clock,
    deadlines,
    log,
    lost: async () => readScrape(await metrics.text()).of('postern_journal_lost_total'),
    async mail(filter = {}) {
      await journal.flush();
      return (await journal.history.mail(filter, 1000)).rows;
    },
    watch(spool) {
      const watched = watchQueue(spool, { journal, clock, log });
      watches.push(watched);
      return watched;
    },
    stop: () =>
      (stopping ??= (async () => {
        for (const watched of watches) await watched.stop();
        await journal.stop();
      })()),
  };
  open.push(one);
  return one;
}

/** A refusal as the listener notes it. */
export function refusal(fields: Partial<Extract<Note, { what: 'refused' }>> = {}): Note {
  return {
    what: 'refused',
    at: Date.UTC(2026, 0, 5, 12),
    session: null,
    transaction: null,
    listener: 'smtp',
    stage: 'RCPT',
    reply: '550 5.1.1 No such user here',
    reason: 'noMailbox',
    client: '192.0.2.7',
    helo: 'mail.sender.example',
    tls: null,
    sender: 'sam@sender.example',
    recipient: 'nobody@example.com',
    account: 'acme',
    ...fields,
  };
}

/** What is noted when a message was parsed. */
export function parsed(
  id: string,
  subject: string,
  fields: { from?: string; messageId?: string; thread?: string } = {},
): Note {
  const { from = 'Sam <sam@sender.example>', messageId = '<1@sender.example>', thread = null } = fields;
  return {
    what: 'parsed',
    id,
    sender: 'sam@sender.example',
    summary: { from, subject, messageId, thread },
    verdicts: {
      spf: { result: 'pass', detail: '' },
      dkim: { signed: true, valid: true },
      dmarc: { result: 'pass', policy: 'none', aligned: true },
      arc: { result: 'none' },
    },
  };
}
