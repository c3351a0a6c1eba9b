/** Rows that one read of the store brings: few enough that they neither hold the event loop nor fill the memory (bench/exports.ts: 500 take half as much again of both). */
export const PAGE = 200;

/** A row that has its place in time. */
export interface Dated {
  readonly id: string;
  readonly createdAt: Date;
}

/** A part of the time. */
export interface Span {
  readonly from: Date;
  readonly before: Date;
}

/** The condition on time and id of one read, and its order. */
export type When =
  | { readonly createdAt: { readonly range: { readonly gte?: Date; readonly gt?: Date; readonly lt: Date } } }
  | { readonly createdAt: Date; readonly id: { readonly range: { readonly gt: string } } };
export type Order = { readonly sort: 'createdAt' | 'id'; readonly limit: number };

/** All rows of a collection whose ids begin with `<account> `, page by page, in the order of the ids. The id is the index that serves this. */
export async function* pagesById<R extends { readonly id: string }>(
  account: string,
  read: (
    id: { readonly range: { readonly gt: string; readonly lt: string } },
    order: { readonly sort: 'id'; readonly limit: number },
  ) => Promise<readonly R[]>,
  limit = PAGE,
): AsyncGenerator<readonly R[]> {
  let last = `${account} `;
  for (;;) {
    const page = await read({ range: { gt: last, lt: `${account}!` } }, { sort: 'id', limit }); // the sign after the space
    if (page.length > 0) yield page;
    const end = page.at(-1);
    if (page.length < limit || !end) return;
    last = end.id;
  }
}

/**
 * All rows of a span, page by page, the oldest first. The store has no cursors, and many rows may share one millisecond: after a
 * full page come the rest of its last moment, by id, and then what is later.
 */
export async function* pagesInTime<R extends Dated>(
  span: Span,
  read: (when: When, order: Order) => Promise<readonly R[]>,
  limit = PAGE,
): AsyncGenerator<readonly R[]> {
  let page = await read({ createdAt: { range: { gte: span.from, lt: span.before } } }, { sort: 'createdAt', limit });
  while (page.length > 0) {
    yield page;
    let last = page.at(-1);
    if (page.length < limit || !last) return;
    const moment = last.createdAt;
    do {
      page = await read({ createdAt: moment, id: { range: { gt: last.id } } }, { sort: 'id', limit });
      if (page.length > 0) yield page;
      last = page.at(-1);
    } while (last && page.length === limit);
    page = await read({ createdAt: { range: { gt: moment, lt: span.before } } }, { sort: 'createdAt', limit });
  }
}
