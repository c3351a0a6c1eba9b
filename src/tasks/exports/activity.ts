import type { ActivityFilter } from '../../store/exports.ts';
import type { MessageTagRow, SentMessageRow } from '../../store/messages.ts';
import type { Store } from '../../store/store.ts';
import { PAGE, pagesInTime, type Span } from './paging.ts';

export type ActivityStore = Pick<Store, 'messages' | 'messageTags'>;

/** With more tags than this, going through all messages costs less memory than a cursor for each tag. */
const MANY_TAGS = 10;

/**
 * The messages of an account that a filter lets through and that were sent until `now`, page by page, the oldest first.
 * Pages may be empty. Senders, states and keys are compared here and not in the store: a condition without an index could hold the
 * store for as long as it takes to go through millions of rows, and one page never does.
 */
export async function* activityPages(
  store: ActivityStore,
  account: string,
  filter: ActivityFilter | null,
  now: Date,
): AsyncGenerator<readonly SentMessageRow[]> {
  const latest = new Date(now.getTime() + 1);
  const before = filter?.before && filter.before < latest ? filter.before : latest;
  const span = { from: filter?.from ?? new Date(0), before };
  const fits = matcher(account, filter, span);
  const tags = filter?.tags;
  const pages =
    tags && tags.length <= MANY_TAGS
      ? taggedPages(store, account, tags, span)
      : pagesInTime(span, (when, order) => store.messages.many({ account, ...when }, order));
  for await (const page of pages) yield page.filter(fits);
}

function matcher(account: string, filter: ActivityFilter | null, span: Span): (row: SentMessageRow) => boolean {
  const sets = {
    tags: setOf(filter?.tags),
    senders: setOf(filter?.senders),
    states: setOf(filter?.states),
    apiKeys: setOf(filter?.apiKeys),
  };
  const has = (set: ReadonlySet<string> | undefined, value: string | null) =>
    !set || (value !== null && set.has(value));
  return (row) =>
    row.account === account &&
    row.createdAt >= span.from &&
    row.createdAt < span.before &&
    (!sets.tags || row.tags.some((tag) => sets.tags?.has(tag))) &&
    has(sets.senders, row.sender) &&
    has(sets.states, row.state) &&
    has(sets.apiKeys, row.apiKey);
}

function setOf(list: readonly string[] | null | undefined): ReadonlySet<string> | undefined {
  return list ? new Set(list) : undefined;
}

/** The messages with any of the tags, the oldest first, each one once. */
async function* taggedPages(
  store: ActivityStore,
  account: string,
  tags: readonly string[],
  span: Span,
): AsyncGenerator<readonly SentMessageRow[]> {
  const streams = [...new Set(tags)].map((tag) =>
    rowsOf(pagesInTime(span, (when, order) => store.messageTags.many({ account, tag, ...when }, order))),
  );
  let ids: string[] = [];
  let last = '';
  for await (const { message } of merged(streams)) {
    if (message === last) continue;
    last = message;
    ids.push(message);
    if (ids.length < PAGE) continue;
    yield await messagesOf(store, ids);
    ids = [];
  }
  if (ids.length > 0) yield await messagesOf(store, ids);
}

async function* rowsOf<R>(pages: AsyncIterable<readonly R[]>): AsyncGenerator<R> {
  for await (const page of pages) yield* page;
}

/** Streams that are in order, as one. Equal messages of several streams come one after the other. */
async function* merged(streams: readonly AsyncGenerator<MessageTagRow>[]): AsyncGenerator<MessageTagRow> {
  const heads = await Promise.all(streams.map(async (stream) => ({ stream, row: await nextOf(stream) })));
  for (;;) {
    let first: { stream: AsyncGenerator<MessageTagRow>; row: MessageTagRow | undefined } | undefined;
    for (const head of heads) if (head.row && (!first?.row || isBefore(head.row, first.row))) first = head;
    if (!first?.row) return;
    yield first.row;
    first.row = await nextOf(first.stream);
  }
}

async function nextOf(stream: AsyncGenerator<MessageTagRow>): Promise<MessageTagRow | undefined> {
  const next = await stream.next();
  return next.done ? undefined : next.value;
}

function isBefore(a: MessageTagRow, b: MessageTagRow): boolean {
  return a.createdAt < b.createdAt || (a.createdAt.getTime() === b.createdAt.getTime() && a.message < b.message);
}

/** In the order of the ids. */
async function messagesOf({ messages }: ActivityStore, ids: readonly string[]): Promise<readonly SentMessageRow[]> {
  const found = new Map((await messages.many({ id: { in: ids } })).map((row) => [row.id, row]));
  return ids.flatMap((id) => found.get(id) ?? []);
}
