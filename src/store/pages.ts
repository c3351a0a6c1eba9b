// Reads any number of rows in pages, so that they neither fill the memory nor block the event loop. The store has no
// cursors: each page begins after the last row of the previous one.

/** Rows per page: few enough not to block the event loop or fill the memory. */
const PAGE = 500;
/** Reads rows in the order of a unique key. `read` returns the first `limit` rows after a key. */
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

/** Bytes of a page of rows that may be large, and how many rows it has at most. */
const LARGE_PAGE = { limit: 64, bytes: 500_000 };

/** Options for reading a page of rows that may be large. */
export type LargePage = typeof LARGE_PAGE;

/**
 * As `pagesByKey`, for rows of up to megabytes: pages are bounded by bytes too, so a short one is not the end. `read`
 * returns rows after a key, and the key to read on after; undefined: there are no more.
 */
export async function* pagesByBytes<R, K>(
  after: K,
  read: (after: K, page: LargePage) => Promise<{ readonly rows: readonly R[]; readonly next: K | undefined }>,
): AsyncGenerator<readonly R[]> {
  for (let key: K | undefined = after; key !== undefined; ) {
    const { rows, next }: Awaited<ReturnType<typeof read>> = await read(key, LARGE_PAGE);
    if (rows.length > 0) yield rows;
    key = next;
  }
}

/** A condition on times, and on ids where several rows share a time. */
type Moment =
  | { readonly time: { readonly range: { readonly gt: Date } } }
  | { readonly time: Date; readonly id: { readonly range: { readonly gt: string } } };

/** A position in a list ordered by time: after the row with this time and this id. */
export interface Place {
  readonly time: Date;
  readonly id: string;
}

/**
 * Reads rows in the order of a time, and by id among rows of the same time. The store has no cursors, so after each
 * page the rest of its last time is read. Without an id, starts after all rows of that time.
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
