import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createIds } from '../../src/base/ids.ts';
import { createRunningTime } from '../../src/base/running-time.ts';
import type { NewNotice } from '../../src/sending/notices.ts';
import type { Database } from '../../src/store/driver/port.ts';
import type { ExportRow } from '../../src/store/rows/exports.ts';
import type { RejectRow, WhitelistRow } from '../../src/store/rows/lists.ts';
import type { MessageTagRow, SentMessageRow } from '../../src/store/rows/messages.ts';
import { openStore, type Store } from '../../src/store/store.ts';

import { expireExportsTask } from '../../src/tasks/exports/folder.ts';
import { type ExportSettings, runExportsTask } from '../../src/tasks/exports/run-exports.ts';
import { createTestClock } from './clock.ts';
import { exportRow, readArchive, readCsv } from './exports.ts';
import { rejectRow as aReject, whitelistRow as aWhitelistEntry } from './lists.ts';
import { createTestLog } from './log.ts';
import { messageRow as aMessage } from './messages.ts';
import { tempDir } from './temp.ts';

const MINE = 'ExampleAccountId000001';
export const THEIRS = 'AnotherAccountId000002';

export type ExportWorld = Awaited<ReturnType<typeof openExportWorld>>;

/** A store with the tasks of the exports on it, on a clock of the test; mail is only noted. */
export async function openExportWorld(database: Database, settings: Partial<ExportSettings> = {}) {
  const clock = createTestClock();
  const log = createTestLog();
  const store = await openStore(database);
  const dir = join(await tempDir(), 'exports');
  const notices: NewNotice[] = [];
  const state = { room: true, left: Infinity };
  const host: ExportSettings = {
    dir,
    hostname: 'mx.postern.test',
    holder: 'first life',
    publicUrl: 'https://mail.example.com',
    keepDays: 7,
    formulas: 'quote',
    metadataFields: [],
    ...settings,
  };
  const deps = {
    store,
    clock,
    ids: createIds(clock),
    log,
    hasRoom: () => state.room,
    left: () => state.left,
    notices: {
      enqueue: async (notice: NewNotice) => {
        notices.push(notice);
        return 'queued' as const;
      },
    },
  };
  let made = 0;
  const world = {
    clock,
    log,
    store,
    dir,
    notices,
    state,
    host,
    deps,
    task: (more: Partial<ExportSettings> = {}, other: Partial<typeof deps> = {}) =>
      runExportsTask({ ...host, ...more }, { ...deps, ...other }),
    expiry: () => expireExportsTask(host, { ...deps, time: createRunningTime(deps.clock) }),
    /** Makes a job and answers its id. */
    async start(more: Partial<ExportRow> = {}): Promise<string> {
      const row = exportRow(more.account ?? MINE, `2026-01-05 12:00:00.${String(++made).padStart(5, '0')}`, more);
      await store.exportJobs.insert(row);
      return row.id;
    },
    async job(id: string): Promise<ExportRow> {
      const row = await store.exportJobs.one({ id });
      if (!row) throw new Error(`no job ${id}`);
      return row;
    },
    /** What is in the archive of a complete job: its file's name, and the lines. */
    async contents(id: string) {
      const job = await world.job(id);
      if (job.state !== 'complete') throw new Error(`the job is ${job.state}: ${job.error}`);
      const entries = readArchive(await readFile(join(dir, job.file ?? '')));
      const [entry] = entries;
      if (!entry || entries.length > 1) throw new Error(`${entries.length} files in the archive`);
      return { ...entry, lines: readCsv(entry.text) };
    },
    /** Runs a job of this kind and answers its lines without the header. */
    async exported(more: Partial<ExportRow>, host: Partial<ExportSettings> = {}): Promise<string[][]> {
      const id = await world.start(more);
      await world.task(host).run();
      return (await world.contents(id)).lines.slice(1);
    },
    close: () => store.close(),
  };
  return world;
}

const AT = new Date('2026-01-04T10:00:00Z');

export function rejectRow(email: string, more: Partial<RejectRow> = {}): RejectRow {
  return aReject(more.account ?? MINE, email, {
    reason: 'hard-bounce',
    detail: 'smtp;550 no such user',
    createdAt: AT,
    lastEventAt: AT,
    expiresAt: new Date('2026-01-11T10:00:00Z'),
    ...more,
  });
}

export function whitelistRow(email: string, more: Partial<WhitelistRow> = {}): WhitelistRow {
  return aWhitelistEntry(more.account ?? MINE, email, { createdAt: AT, ...more });
}

let messages = 0;

export function messageRow(more: Partial<SentMessageRow> = {}): SentMessageRow {
  return aMessage(more.account ?? MINE, (++messages).toString(16).padStart(32, '0'), {
    createdAt: AT,
    email: 'ann@example.org',
    subject: 'Hello',
    ...more,
  });
}

/** Writes a message and the rows of its tags, as events/ does. */
export async function putMessage(store: Store, row: SentMessageRow): Promise<SentMessageRow> {
  await store.messages.insert(row);
  for (const tag of row.tags) {
    const mark: MessageTagRow = {
      id: `${row.id} ${tag}`,
      account: row.account,
      tag,
      message: row.id,
      createdAt: row.createdAt,
    };
    await store.messageTags.insert(mark);
  }
  return row;
}
