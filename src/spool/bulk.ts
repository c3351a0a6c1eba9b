import type { Log } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { Cache } from './cache.ts';
import { createScan } from './file/scan.ts';
import type { Listeners } from './listeners.ts';
import type { QueueFile } from './queue-file.ts';
import type { Reading } from './reading.ts';
import type { Progress, Selection, Spool } from './types.ts';

export interface BulkParts {
  readonly log: Log;
  readonly file: QueueFile;
  readonly reading: Reading;
  readonly blobs: Blobs;
  readonly cache: Cache;
  readonly listeners: Listeners;
}

/** Deliveries forgotten in one step, which shares a commit with new mail. */
const PURGE_STEP = 200;

/** What operators, the API and the purge do: over many deliveries, in steps. */
export function createBulk(
  parts: BulkParts,
): Pick<Spool, 'list' | 'count' | 'retry' | 'reschedule' | 'drop' | 'replay' | 'redirect' | 'purge'> {
  const { file, reading, listeners } = parts;
  const scan = createScan(reading);
  const change = async (
    selection: Selection,
    run: (keys: readonly number[]) => Promise<number>,
    progress?: Progress,
  ) => {
    const count = await scan.change(selection, run, progress);
    if (count > 0) listeners.tell([]);
    return count;
  };
  return {
    list: scan.list,
    count: scan.count,
    retry: (selection: Selection, now: number, progress?: Progress) =>
      change(selection, (keys) => file.write('retry', keys, now), progress),
    reschedule: (selection: Selection, at: number) => change(selection, (keys) => file.write('reschedule', keys, at)),
    drop: (selection: Selection, now: number, progress?: Progress) =>
      change(selection, (keys) => file.write('drop', keys, now), progress),
    replay: (selection: Selection, now: number, progress?: Progress) =>
      change(selection, (keys) => file.write('replay', keys, now), progress),
    redirect: (routeId: string, url: string) =>
      change({ routeIds: [routeId], states: ['waiting', 'dead'] }, (keys) => file.write('redirect', keys, url)),
    purge: (limits) => purge(parts, limits),
  };
}

async function purge(
  { log, file, reading, blobs, cache }: BulkParts,
  limits: Parameters<Spool['purge']>[0],
): Promise<number> {
  const tooMany = await reading.read('deliveredLimit', limits.deliveredBytes);
  const bounds = { deadBefore: limits.deadBefore, deliveredBefore: Math.max(limits.deliveredBefore, tooMany) };
  let count = 0;
  for (;;) {
    const step = await file.write('purge', bounds, PURGE_STEP);
    await blobs.remove(step.blobs);
    count += step.deliveries;
    if (!step.more) break;
  }
  if (count > 0) {
    cache.clear();
    log.info('spool.purged', { deliveries: count });
  }
  return count;
}
