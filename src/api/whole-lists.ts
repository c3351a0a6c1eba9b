import type { ServerResponse } from 'node:http';
import type { Context } from 'koa';
import type { Clock } from '../base/clock.ts';

// Lists that are answered whole, however long they are: read from the store in pages, and written as fast as the client
// reads. No more than a page or two is held in memory.

/** Records of a list, page by page; pages may be empty. */
export type Pages<R = unknown> = AsyncIterable<readonly R[]>;

/** Rows of a page: few enough that a page neither holds the event loop nor fills the memory. */
const PAGE = 500;
/** How long a client may read nothing before it counts as gone, in milliseconds. */
const STALL_MS = 60_000;

/** Reads rows in the order of a key that no two of them share. `read` answers the first `limit` rows behind a key. */
export async function* pagesByKey<R, K>(
  after: K,
  keyOf: (row: R) => K,
  read: (after: K, limit: number) => Promise<readonly R[]>,
): AsyncGenerator<readonly R[]> {
  for (let key = after; ; ) {
    const page = await read(key, PAGE);
    yield page;
    const last = page.at(-1);
    if (!last || page.length < PAGE) return;
    key = keyOf(last);
  }
}

/** A condition on times, and on ids where several rows share a time. */
type Moment =
  | { readonly time: { readonly range: { readonly gt: Date } } }
  | { readonly time: Date; readonly id: { readonly range: { readonly gt: string } } };

/** A place in a list by time: behind what has this time and this id. */
export interface Place {
  readonly time: Date;
  readonly id: string;
}

/**
 * Reads rows in the order of a time that many may share, the ids deciding among those. The store has no cursors: behind
 * a page comes the rest of its last moment. Without an id it begins behind the whole moment.
 */
export async function* pagesByTime<R>(
  after: Place | { readonly time: Date },
  placeOf: (row: R) => Place,
  read: (moment: Moment, order: 'time' | 'id', limit: number) => Promise<readonly R[]>,
): AsyncGenerator<readonly R[]> {
  const restOf = ({ time, id }: Place) =>
    pagesByKey(
      id,
      (row: R) => placeOf(row).id,
      (from, limit) => read({ time, id: { range: { gt: from } } }, 'id', limit),
    );
  if ('id' in after) yield* restOf(after);
  for (let { time } = after; ; ) {
    const page = await read({ time: { range: { gt: time } } }, 'time', PAGE);
    yield page;
    const last = page.at(-1);
    if (!last || page.length < PAGE) return;
    yield* restOf(placeOf(last));
    ({ time } = placeOf(last));
  }
}

/** Pages with each record made into another; of a page at once, so that what they need is asked for together. */
export async function* mapPages<R, T>(
  pages: Pages<R>,
  toRecords: (page: readonly R[]) => Promise<readonly T[]> | readonly T[],
): AsyncGenerator<readonly T[]> {
  for await (const page of pages) if (page.length > 0) yield await toRecords(page);
}

/**
 * Answers pages as one JSON array. What goes wrong before the first byte throws, and is answered in words; after it the
 * connection is cut, because half a list must not look like a whole one: the array has no end, and the body is shorter
 * than it said.
 */
export async function answerPages(ctx: Context, pages: Pages, clock: Clock): Promise<void> {
  const iterator = pages[Symbol.asyncIterator]();
  const first = await nextFull(iterator);
  const second = first && (await nextFull(iterator));
  ctx.type = 'application/json; charset=utf-8';
  ctx.set('Cache-Control', 'no-store');
  if (!second) {
    ctx.body = JSON.stringify(first ?? []);
    return;
  }
  ctx.status = 200;
  ctx.respond = false;
  const { res } = ctx;
  try {
    res.write(`[${toItems(first)}`);
    for (let page: readonly unknown[] | undefined = second; page; page = await nextFull(iterator)) {
      if (!res.write(`,${toItems(page)}`) && !(await drained(res, clock))) break;
    }
    if (!res.destroyed) res.end(']');
  } catch (error) {
    res.destroy();
    throw error;
  } finally {
    await iterator.return?.();
  }
}

async function nextFull(iterator: AsyncIterator<readonly unknown[]>): Promise<readonly unknown[] | undefined> {
  for (;;) {
    const next = await iterator.next();
    if (next.done) return undefined;
    if (next.value.length > 0) return next.value;
  }
}

function toItems(page: readonly unknown[]): string {
  return page.map((record) => JSON.stringify(record)).join(',');
}

/** Resolves when the client has read; false when it is gone, or counts as gone. */
async function drained(res: ServerResponse, clock: Clock): Promise<boolean> {
  if (res.destroyed) return false;
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const cancel = clock.after(STALL_MS, () => res.destroy());
  const onDrain = () => resolve(true);
  const onClose = () => resolve(false);
  res.once('drain', onDrain).once('close', onClose);
  try {
    return await promise;
  } finally {
    cancel();
    res.off('drain', onDrain).off('close', onClose);
  }
}
