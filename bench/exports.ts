import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { systemClock } from '../src/base/clock.ts';
import { createIds } from '../src/base/ids.ts';
import type { Log } from '../src/base/log.ts';
import { openEmbedded } from '../src/store/driver/embedded.ts';
import { exportId } from '../src/store/rows/exports.ts';
import { rejectId } from '../src/store/rows/lists.ts';
import { openStore } from '../src/store/store.ts';
import { runExportsTask } from '../src/tasks/exports/run-exports.ts';
import { exportRow } from '../test/support/exports.ts';
import { NO_FLOOR } from '../test/support/room.ts';

/**
 * What an export of very many rejects costs on the embedded store: time, memory above that before it, and the longest
 * hold of the event loop.
 */
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { rows: { type: 'string', default: '1000000' } },
});
const ACCOUNT = 'BenchAccountId00000001';
const rows = Number(values.rows);
/** What an export may add to the memory of the process, however many rows it has. */
const MAX_BYTES = 200 * 1_048_576;
const log: Log = {
  info: (event, fields) => console.log(event, JSON.stringify(fields)),
  warn: console.warn,
  error: console.error,
  debug() {},
};
const quiet: Log = { info() {}, warn() {}, error: console.error, debug() {} };

const open = async (file: string) =>
  openStore(await openEmbedded({ file, timeoutMs: 60_000, room: NO_FLOOR }, { log: quiet, clock: systemClock }));

/** In a process of its own, so that its memory does not count. */
async function seed(file: string): Promise<void> {
  const store = await open(file);
  const at = new Date();
  for (let n = 0; n < rows; ) {
    const step = Array.from(
      { length: Math.min(5000, rows - n) },
      () => `user${String(n++).padStart(8, '0')}@example${n % 1000}.com`,
    );
    await Promise.all(
      step.map((email) =>
        store.rejects.insert({
          id: rejectId(ACCOUNT, email, ''),
          account: ACCOUNT,
          email,
          subaccount: '',
          reason: 'hard-bounce',
          detail: 'smtp;550 5.1.1 <user>: Recipient address rejected: User unknown',
          createdAt: at,
          lastEventAt: at,
          expiresAt: null,
          expired: false,
          sender: 'news@example.com',
          termMs: 0,
          removed: false,
          version: 1,
          unsent: null,
          unsentSince: null,
        }),
      ),
    );
  }
  await store.close();
}

const mb = (bytes: number) => (bytes / 1_048_576).toFixed(0);

const NAME = '2026-01-01 00:00:00.00000';

async function measure(dir: string): Promise<void> {
  const store = await open(join(dir, 'store.db'));
  const id = exportId(ACCOUNT, NAME);
  await store.exportJobs.insert(exportRow(ACCOUNT, NAME, { createdAt: new Date() }));
  const settings = {
    dir: join(dir, 'exports'),
    hostname: 'bench',
    holder: 'bench',
    publicUrl: 'http://127.0.0.1',
    keepDays: 7,
    formulas: 'quote' as const,
    metadataFields: [],
  };
  const task = runExportsTask(settings, {
    store,
    clock: systemClock,
    ids: createIds(systemClock),
    log,
    hasRoom: () => true,
    left: () => Infinity,
    notices: { enqueue: async () => 'queued' },
  });
  const delay = monitorEventLoopDelay({ resolution: 5 });
  const held = () =>
    `${(delay.max / 1e6).toFixed(0)} ms at most, ${(delay.percentile(99) / 1e6).toFixed(0)} ms at the 99th percentile`;
  delay.enable();
  await new Promise((resolve) => setTimeout(resolve, 5000));
  const idle = held();
  delay.reset();
  const before = process.memoryUsage.rss();
  let peak = before;
  const sampler = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss());
  }, 10);
  const from = performance.now();
  await task.run();
  const seconds = (performance.now() - from) / 1000;
  delay.disable();
  clearInterval(sampler);
  if (peak - before > MAX_BYTES) process.exitCode = 1;
  const job = await store.exportJobs.one({ id });
  const life = /VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
  console.log(
    `${job?.state}: ${rows} rejects in ${seconds.toFixed(1)} s (${Math.round(rows / seconds)} a second), archive ${mb(statSync(join(settings.dir, job?.file ?? '')).size)} MB`,
  );
  console.log(
    `memory: ${mb(before)} MB before, ${mb(peak)} MB at its peak, ${mb(peak - before)} MB above (highest of the process's life ${mb(Number(life) * 1024)} MB)`,
  );
  console.log(`event loop: a timer was late by ${held()}; on this machine, with nothing to do, by ${idle}`);
  await store.close();
}

if (positionals[0] === 'seed') await seed(positionals[1] ?? '');
else {
  const dir = mkdtempSync(join(tmpdir(), 'postern-bench-exports-'));
  try {
    execFileSync(process.execPath, [import.meta.filename, 'seed', join(dir, 'store.db'), '--rows', String(rows)], {
      stdio: 'inherit',
    });
    await measure(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
