import { type Collection, type Filter, fieldIs, type PageOptions, type Row } from './driver/port.ts';

// Reads any number of rows in pages, so that they neither fill the memory nor block the event loop. The store has no
// cursors: each page begins after the last row of the previous one.

/** Rows per page: few enough not to block the event loop or fill the memory. */
const PAGE = 500;

/** A collection, or an account's view of it. */
export interface Readable<R extends Row> {
  many(filter: Omit<Filter<R>, 'account'>, page?: PageOptions<R>): ReturnType<Collection<R>['many']>;
}

/** Reads rows in the order of a unique key. `read` returns the first `limit` rows after a key. */
export async function* pagesByKey<R, K>(
  after: K,
  keyOf: (row: R) => K,
  read: (after: K, limit: number) => Promise<readonly R[]>,
  limit: number = PAGE,
): AsyncGenerator<readonly R[]> {
  for (let key = after; ; ) {
    const page = await read(key, limit);
    yield page;
    const last = page.at(-1);
    if (!last || page.length < limit) return;
    key = keyOf(last);
  }
}

/** The rows to read, and the size of a page. */
interface Wanted<R> {
  readonly filter?: Omit<Filter<R>, 'id'> | undefined;
  readonly limit?: number | undefined;
}

/** Reads rows in the order of a unique field. */
export const pagesByField = <F extends string, R extends Row & Readonly<Record<F, string | number>>>(
  rows: Readable<R>,
  field: F,
  after: R[F],
  { filter, limit }: Wanted<R> = {},
) =>
  pagesByKey(
    after,
    (row: R) => row[field],
    (gt, most) => rows.many({ ...filter, ...fieldIs<R>(field, { range: { gt } }) }, { sort: field, limit: most }),
    limit,
  );

/** Reads rows by id. */
export const pagesById = <R extends Row>(
  rows: Readable<R>,
  { filter, after = '', limit }: Wanted<R> & { readonly after?: string } = {},
) => pagesByField(rows, 'id', after, { filter, limit });

/** Maximum bytes and rows of a page of rows that may be large. */
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

interface Span<R> extends Wanted<R> {
  /** Begins after this time, or with `id` after that row of this time. */
  readonly after: Date;
  readonly id?: string | undefined;
  /** Ends before this time. */
  readonly before?: Date;
}

/** Reads rows by an indexed time, and by id within a time: after each page the rest of its last time is read. */
export async function* pagesByTime<R extends Row>(
  rows: Readable<R>,
  field: keyof R & string,
  { filter, after, id, before, limit = PAGE }: Span<R>,
): AsyncGenerator<readonly R[]> {
  const restOf = (time: Date, from: string) =>
    pagesById(rows, { filter: { ...filter, ...fieldIs<R>(field, time) }, after: from, limit });
  if (id !== undefined) yield* restOf(after, id);
  for (let gt = after; ; ) {
    const range = { gt, ...(before && { lt: before }) };
    const page = await rows.many({ ...filter, ...fieldIs<R>(field, { range }) }, { sort: field, limit });
    yield page;
    const last = page.at(-1);
    if (!last || page.length < limit) return;
    const time: unknown = last[field];
    if (!(time instanceof Date)) throw new TypeError(`${field} is not a time`);
    yield* restOf(time, last.id);
    gt = time;
  }
}
