import type { ServerResponse } from 'node:http';
import type { Context } from 'koa';
import type { Clock } from '../base/clock.ts';

// Lists that are answered whole at any length: read from the store in pages (store/pages.ts), and written as fast as
// the client reads. At most two pages are held in memory.

/** Records of a list, page by page; pages may be empty. */
export type Pages<R = unknown> = AsyncIterable<readonly R[]>;

/** How long a client may read nothing before it counts as gone, in milliseconds. */
export const STALL_MS = 60_000;

/** Converts records page by page, so that one query can serve a page. */
export async function* mapPages<R, T>(
  pages: Pages<R>,
  toRecords: (page: readonly R[]) => Promise<readonly T[]> | readonly T[],
): AsyncGenerator<readonly T[]> {
  for await (const page of pages) if (page.length > 0) yield await toRecords(page);
}

/**
 * Answers with the pages as one JSON array. Errors before the first byte are thrown and answered as usual. After it the
 * connection is cut in the middle of the array, so that half a list cannot look like a whole one.
 */
export async function answerPages(ctx: Context, pages: Pages, clock: Clock): Promise<void> {
  const iterator = pages[Symbol.asyncIterator]();
  const first = await nextFull(iterator);
  const second = first && (await nextFull(iterator));
  asJson(ctx);
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

/** The headers of every answer of an operation. */
export function asJson(ctx: Context): void {
  ctx.type = 'application/json; charset=utf-8';
  ctx.set('Cache-Control', 'no-store');
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

/** Resolves to true when the client has read; to false when it has disconnected or stalled. */
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
