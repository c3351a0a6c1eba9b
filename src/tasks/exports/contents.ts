import { stringify } from 'csv-stringify/sync';
import { toTimestamp } from '../../base/clock.ts';
import { type Filter, fieldIs, type Row } from '../../store/driver/port.ts';
import { pagesByKey, pagesByTime, type Readable } from '../../store/pages.ts';
import type { ActivityFilter, ExportRow } from '../../store/rows/exports.ts';
import type { RejectRow, WhitelistRow } from '../../store/rows/lists.ts';
import type { MessageTagRow, SentMessageRow } from '../../store/rows/messages.ts';
import type { Store } from '../../store/store.ts';

/** The contents of an archive: the name of its file, its header, and the other lines in pages, which may be empty. */
export interface ArchiveContents {
  readonly file: string;
  readonly header: Line;
  readonly pages: AsyncIterable<readonly Line[]>;
}

type ContentsStore = ActivityStore & Pick<Store, 'rejects' | 'whitelists'>;

// The columns that Mandrill documents. It names expires_at twice, and consumers that count columns rely on that.
const REJECT_COLUMNS = ['email', 'reason', 'detail', 'created_at', 'expires_at', 'last_event_at', 'expires_at'];
const WHITELIST_COLUMNS = ['email', 'detail', 'created_at'];
const ACTIVITY_COLUMNS = [
  'Date',
  'Email Address',
  'Sender',
  'Subject',
  'Status',
  'Tags',
  'Opens',
  'Clicks',
  'Bounce Detail',
];

/** The contents that a job requests, as of `now`. `metadataFields` become columns of an activity export. */
export function contentsOf(
  job: ExportRow,
  store: ContentsStore,
  now: Date,
  metadataFields: readonly string[],
): ArchiveContents {
  switch (job.type) {
    case 'reject':
      return {
        file: 'rejects.csv',
        header: REJECT_COLUMNS,
        pages: lines(pagesOf(store.rejects, job.account), toRejectLine, (row) => isOnList(row, now)),
      };
    case 'whitelist':
      return {
        file: 'whitelist.csv',
        header: WHITELIST_COLUMNS,
        pages: lines(pagesOf(store.whitelists, job.account), toWhitelistLine, (row) => !row.removed),
      };
    case 'activity':
      return {
        file: 'activity.csv',
        header: [...ACTIVITY_COLUMNS, ...metadataFields],
        pages: lines(activityPages(store, job.account, job.filter, now), (row) => toActivityLine(row, metadataFields)),
      };
  }
}

async function* lines<R>(
  pages: AsyncIterable<readonly R[]>,
  toLine: (row: R) => Line,
  fits: (row: R) => boolean = () => true,
): AsyncGenerator<readonly Line[]> {
  for await (const page of pages) yield page.filter(fits).map(toLine);
}

/** The entries that /rejects/list shows without include_expired. */
function isOnList(row: RejectRow, now: Date): boolean {
  return !row.removed && !row.expired && (row.expiresAt === null || row.expiresAt > now);
}

function toRejectLine(row: RejectRow): Line {
  const expires = row.expiresAt === null ? '' : toTimestamp(row.expiresAt);
  return [
    { address: row.email },
    row.reason,
    row.detail ?? '',
    toTimestamp(row.createdAt),
    expires,
    toTimestamp(row.lastEventAt),
    expires,
  ];
}

function toWhitelistLine(row: WhitelistRow): Line {
  return [{ address: row.email }, row.detail ?? '', toTimestamp(row.createdAt)];
}

function toActivityLine(row: SentMessageRow, metadataFields: readonly string[]): Line {
  // Callers choose the names of metadata; one like `constructor` must not find an inherited property.
  const metadata = metadataFields.map((name) =>
    Object.hasOwn(row.metadata, name) ? String(row.metadata[name] ?? '') : '',
  );
  const bounce = row.diag ?? row.bounceDescription ?? '';
  const [recipient, sender] = [{ address: row.email }, { address: row.sender }];
  return [
    toTimestamp(row.createdAt),
    recipient,
    sender,
    row.subject,
    row.state,
    row.tags.join(','),
    row.opens,
    row.clicks,
    bounce,
    ...metadata,
  ];
}

type ActivityStore = Pick<Store, 'messages' | 'messageTags'>;

/** With more tags than this, scanning all messages costs less memory than a cursor for each tag. */
const MANY_TAGS = 10;

/**
 * The messages of an account that match a filter and were sent until `now`, in pages, oldest first. Pages may be empty.
 * Senders, states and keys are compared here and not in the store: a condition without an index could block the store
 * while it scans millions of rows, and one page never does.
 */
async function* activityPages(
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
      : pagesInTime(store.messages, span, { account });
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

/** The messages with any of the tags, oldest first, without duplicates. */
async function* taggedPages(
  store: ActivityStore,
  account: string,
  tags: readonly string[],
  span: Span,
): AsyncGenerator<readonly SentMessageRow[]> {
  const streams = [...new Set(tags)].map((tag) => rowsOf(pagesInTime(store.messageTags, span, { account, tag })));
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

/** Merges sorted streams. Equal messages of several streams are adjacent. */
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

/**
 * Rows per read of the store: few enough not to block the event loop or fill the memory (bench/exports.ts: 500 take
 * half as much again of both).
 */
export const PAGE = 200;

/** A span of time. */
interface Span {
  readonly from: Date;
  readonly before: Date;
}

/** All rows of an account by id, which begins with `<account> `: the index that serves this. */
const pagesOf = <R extends Row>(rows: Readable<R>, account: string) =>
  pagesByKey(
    `${account} `,
    ({ id }: R) => id,
    // `!` is the character after the space.
    (gt, limit) => rows.many(fieldIs<R>('id', { range: { gt, lt: `${account}!` } }), { sort: 'id', limit }),
    PAGE,
  );

/** All rows of a span that match a filter, the oldest first. */
const pagesInTime = <R extends Row & { readonly createdAt: Date }>(
  rows: Readable<R>,
  { from, before }: Span,
  filter: Filter<R>,
) => pagesByTime(rows, 'createdAt', { filter, after: new Date(from.getTime() - 1), before, limit: PAGE });

/** The content of a cell: text, a number, or an address, which is never changed because it is read back in. */
type Cell = string | number | { readonly address: string };

/** One line of a table. */
type Line = readonly Cell[];

/**
 * How a cell is written that a spreadsheet may read as a formula: `quote` puts it in quotation marks, unchanged;
 * `escape` also prefixes it with ', which tells spreadsheets that it is text, except for an address.
 */
export type Formulas = 'quote' | 'escape';

/** What formulas begin with, including full-width forms, and what some programs skip before one. */
const FORMULA = /^[=+\-@\t\r\n\0\uff1d\uff0b\uff0d\uff20]/;

/** Formats lines as CSV (RFC 4180). A lone CR or LF is quoted too, since it ends a line for some readers. */
export function toCsv(lines: readonly Line[], formulas: Formulas): string {
  const shown = (cell: Cell) => {
    if (typeof cell === 'object') return cell.address;
    return formulas === 'escape' && typeof cell === 'string' && FORMULA.test(cell) ? `'${cell}` : cell;
  };
  // Matches the ' too, so that escaped cells are in quotation marks like quoted ones.
  return stringify(
    lines.map((line) => line.map(shown)),
    { quoted_match: [FORMULA, /^'/], record_delimiter: '\r\n', quote_record_delimiter: true },
  );
}
