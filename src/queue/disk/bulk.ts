import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { tableOf } from '../../base/tables.ts';
import type { Cache } from '../cache.ts';
import type { EndpointName, QueuedDelivery, Selection } from '../delivery.ts';
import type { Listeners } from '../spool.ts';
import { type BulkAction, DELIVERY_STATES, OPEN_STATES } from '../states.ts';
import type { Blobs } from './bodies.ts';
import type { QueueFile } from './file.ts';
import type { Reader } from './reader.ts';
import type { Page } from './selections.ts';

interface BulkParts {
  readonly log: Log;
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly blobs: Blobs;
  readonly cache: Cache;
  readonly listeners: Listeners;
}

/** Deliveries deleted in one step, which shares a commit with new mail. */
const PURGE_STEP = 200;

/** The limits of the purge. */
interface PurgeLimits {
  /** Deliveries that ended before these times are deleted. Milliseconds since 1970. */
  readonly deliveredBefore: number;
  readonly deadBefore: number;
  /** The oldest delivered ones are deleted beyond these bytes. */
  readonly deliveredBytes: number;
}

/** Called after each step of a change with the number changed for an account. */
type ChangedOf = (account: string, count: number) => void;

/**
 * Operations on many deliveries, in steps, for operators, the API and the purge. Changes return the number of changed
 * deliveries. Bulk changes by people go through bulk-changes.ts, which counts first and calls these step by step.
 */
export function createBulk(parts: BulkParts) {
  const { file, reading, listeners } = parts;
  const scan = createScan(reading);
  const change = async (selection: Selection, run: (keys: readonly number[]) => Promise<number>) => {
    const count = await scan.change(selection, run);
    if (count > 0) listeners.tell([]);
    return count;
  };
  const act = (action: BulkAction) => (selection: Selection, now: number, changed?: ChangedOf, note?: string) =>
    change(selection, async (keys) => {
      const endpoints = await file.write(action, keys, now, note);
      for (const [account = '', own] of Map.groupBy(endpoints, file.tally.accountOf)) changed?.(account, own.length);
      return endpoints.length;
    });
  return {
    list: scan.list,
    /** All matching deliveries, the oldest first, in pages. Those that change meanwhile may be missing. */
    scan: (selection: Selection) =>
      scan.pages(selection, (from, to) => reading.read('page', selection, PAGE, from, to)),
    /** The same, with only the fields that a bulk change needs. */
    names: (selection: Selection) =>
      scan.pages(selection, (from, to) => reading.read('names', selection, PAGE, from, to)),
    count: scan.count,
    /** Makes waiting deliveries due now; those with a chosen send time keep it. */
    retry: act('retry'),
    /** The same for the deliveries to an endpoint that are not due yet. `onChange` listeners are not called. */
    retryEndpoint: (account: string, url: string, now: number) => retryEndpoint(parts, { account, url }, now),
    /** Moves waiting deliveries that were never attempted to another time, where their budget begins. */
    reschedule: (selection: Selection, at: number) => change(selection, (keys) => file.write('reschedule', keys, at)),
    /** Ends waiting, held and dead deliveries without delivering them; `note` says why. */
    drop: act('drop'),
    /** Makes ended deliveries (dead, delivered, dropped, held) wait again, due now, with a new budget and their id. */
    replay: act('replay'),
    /** Moves the waiting, held and dead deliveries of a route to another URL. */
    redirect: (routeId: string, url: string) =>
      change({ targetId: routeId, states: OPEN_STATES }, (keys) => file.write('redirect', keys, url)),
    /** Deletes ended deliveries. */
    purge: (limits: PurgeLimits) => purge(parts, limits),
  };
}

/** Deliveries that become due fall behind the position of the scan, so none is changed twice. */
async function retryEndpoint(
  { file, reading }: Pick<BulkParts, 'file' | 'reading'>,
  { account, url }: EndpointName,
  now: number,
): Promise<number> {
  let count = 0;
  for (let after: readonly [dueAt: number, key: number] = [now, Number.MAX_SAFE_INTEGER]; ; ) {
    const found = await reading.read('notDue', account, url, after, STEP);
    const last = found.at(-1);
    if (!last) return count;
    const keys = found.map(([, key]) => key);
    count += (await file.write('retry', keys, now)).length;
    after = last;
  }
}

async function purge(
  { log, file, reading, blobs, cache }: BulkParts,
  { deliveredBefore, deadBefore, deliveredBytes }: PurgeLimits,
): Promise<number> {
  const tooMany = await reading.read('deliveredLimit', deliveredBytes);
  const bounds = { deadBefore, deliveredBefore: Math.max(deliveredBefore, tooMany) };
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

/** Keys scanned in one query: about 10 ms. */
const WINDOW = 20_000;
/** Deliveries that are read whole in one query. */
const PAGE = 1000;
/** Rows changed in one step, which shares a commit with new mail. */
const STEP = 500;

/** Scans the whole queue in windows, so that short queries can run in between. */
function createScan({ read }: Reader) {
  /** Given ids are found by their index, so one query is enough. */
  const widthFor = (selection: Selection) => (selection.ids ? Number.MAX_SAFE_INTEGER : WINDOW);

  async function* windows(selection: Selection): AsyncGenerator<[from: number, to: number]> {
    const [first, last] = await read('span');
    const width = widthFor(selection);
    for (let from = first; from <= last; from += width) yield [from, Math.min(last, from + width - 1)];
  }

  return frozen({
    /** Newest first. */
    async list(selection: Selection, limit: number): Promise<QueuedDelivery[]> {
      const [first, last] = await read('span');
      const width = widthFor(selection);
      const found: QueuedDelivery[] = [];
      for (let to = last; to >= first && found.length < limit; to -= width) {
        found.push(...(await read('list', selection, limit - found.length, Math.max(first, to - width + 1), to)));
      }
      return found;
    },
    /** The results of `read` between two keys, the oldest first. */
    async *pages<T>(
      selection: Selection,
      readPage: (from: number, to: number) => Promise<Page<T>>,
    ): AsyncIterable<readonly T[]> {
      const [first, last] = await read('span');
      const width = widthFor(selection);
      for (let from = first; from <= last; ) {
        const { rows, next } = await readPage(from, Math.min(last, from + width - 1));
        if (rows.length > 0) yield rows;
        from = next;
      }
    },
    /** Counts by state. */
    async count(selection: Selection) {
      const sum = tableOf(DELIVERY_STATES, () => 0);
      for await (const window of windows(selection)) {
        const counts = await read('count', selection, ...window);
        for (const state of DELIVERY_STATES) sum[state] += counts[state];
      }
      return sum;
    },
    /** Runs `change` on the keys of the selected deliveries, some at a time, and returns the sum of its results. */
    async change(selection: Selection, change: (keys: readonly number[]) => Promise<number>) {
      let count = 0;
      for await (const window of windows(selection)) {
        const keys = await read('keys', selection, ...window);
        for (let at = 0; at < keys.length; at += STEP) count += await change(keys.slice(at, at + STEP));
      }
      return count;
    },
  });
}
