import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { DAY_MS } from '../../../base/clock.ts';
import { toTerms } from '../../../base/query-terms.ts';
import { optional, optionalTime } from '../../../base/schema.ts';
import { addUp, type Counts, NO_COUNTS } from '../../../mail/stats.ts';
import { keyHash } from '../../../store/rows/accounts.ts';
import { startOf } from '../../../store/rows/counters.ts';
import type { SentMessageRow } from '../../../store/rows/messages.ts';
import type { AccountStore } from '../../../store/store.ts';
import { type Call, operation } from '../../operation.ts';
import { emailAddress, limitOf, optionalEndTime, toTime, withinCalendar } from '../fields.ts';
import { tagHourlyEntry, toStats } from '../stats.ts';
import { messageRecord, toMessageRecord } from './info.ts';

/** Documented: without dates, the last 7 days. */
const DEFAULT_DAYS = 7;
const MAX_FILTER = 1000;
/** Maximum messages that one search scans. For more, use an export. */
const MAX_SCANNED = 100_000;
const PAGE = 200;

const filterParams = {
  query: optional(z.string().max(4000)).describe(
    'words that must all be in recipient, sender, subject or tags, ignoring case; also email:, sender:, ' +
      'subject:, tag:, state:, template:, subaccount:, u_<metadata>:, quotes, - for not, OR; all messages if ' +
      'omitted or *',
  ),
  date_from: optionalTime.describe('messages of this time or later, UTC; 7 days ago if omitted'),
  date_to: optionalEndTime.describe('messages of this time or earlier; a date alone means all of that day'),
  tags: optional(z.array(z.string().max(255)).max(MAX_FILTER)).describe('messages with any of these tags'),
  senders: optional(z.array(emailAddress).max(MAX_FILTER)).describe('messages from any of these addresses'),
};

interface Filter extends z.output<z.ZodObject<typeof filterParams>> {
  readonly api_keys?: readonly string[] | undefined;
}

/** The messages that match a filter, newest first. */
async function* matching(filter: Filter, { store, now, invalid }: Call<never>): AsyncGenerator<SentMessageRow> {
  const before = filter.date_to ?? new Date(now().getTime() + 1000);
  const from = filter.date_from ?? withinCalendar(before.getTime() - DEFAULT_DAYS * DAY_MS);
  if (from >= before) throw invalid('date_to', 'Please enter a time that is not before date_from');
  const fits = toMatcher(filter);
  let scanned = 0;
  for await (const page of pagesBackwards(store, from, before)) {
    for (const row of page) if (fits(row)) yield row;
    scanned += page.length;
    if (scanned >= MAX_SCANNED) return;
    await setImmediate(); // SMTP shares the process
  }
}

function toMatcher({
  query = '',
  tags = [],
  senders = [],
  api_keys: keys = [],
}: Filter): (row: SentMessageRow) => boolean {
  const matches = parseQuery(query);
  const [tagSet, senderSet, keySet] = [
    new Set(tags),
    new Set(senders.map(({ text }) => text.toLowerCase())),
    new Set(keys.map(keyHash)),
  ];
  return (row) =>
    (tagSet.size === 0 || row.tags.some((tag) => tagSet.has(tag))) &&
    (senderSet.size === 0 || senderSet.has(row.sender)) &&
    (keySet.size === 0 || (row.apiKey !== null && keySet.has(row.apiKey))) &&
    matches(row);
}

/**
 * The store has no cursors, and many messages may share one millisecond: after a full page, the rest of its last
 * millisecond is read by id.
 */
async function* pagesBackwards(
  { messages }: AccountStore,
  from: Date,
  before: Date,
): AsyncGenerator<readonly SentMessageRow[]> {
  for (let until = before; ; ) {
    const page = await messages.many(
      { createdAt: { range: { gte: from, lt: until } } },
      { sort: '-createdAt', limit: PAGE },
    );
    yield page;
    let last = page.at(-1);
    if (!last || page.length < PAGE) return;
    const moment = last.createdAt;
    for (let more = PAGE; last && more === PAGE; ) {
      const rest: SentMessageRow[] = await messages.many(
        { createdAt: moment, id: { range: { lt: last.id } } },
        { sort: '-id', limit: PAGE },
      );
      yield rest;
      more = rest.length;
      last = rest.at(-1);
    }
    until = moment;
  }
}

const search = operation({
  path: '/messages/search',
  access: 'mail',
  summary: 'Finds sent messages, newest first.',
  notes: `A search examines the newest ${MAX_SCANNED} messages between the two dates.`,
  params: {
    ...filterParams,
    api_keys: optional(z.array(z.string().max(255)).max(MAX_FILTER)).describe(
      'messages sent with any of these API keys of the account',
    ),
    limit: limitOf(1000, 100),
  },
  returns: z.array(messageRecord),
  example: {
    query: 'subject:example state:sent',
    tags: ['password-resets'],
    senders: ['news@example.com'],
    limit: 100,
  },
  async handle({ limit, ...filter }, call) {
    const found = [];
    for await (const row of matching(filter, call)) {
      found.push(toMessageRecord(row));
      if (found.length >= limit) break;
    }
    return found;
  },
});

const searchTimeSeries = operation({
  path: '/messages/search-time-series',
  access: 'mail',
  summary: 'Shows the statistics of the messages that a search finds, by the hour in which they were submitted.',
  notes:
    `Only hours with messages, oldest first. A search examines the newest ${MAX_SCANNED} messages between the two ` +
    `dates.`,
  params: filterParams,
  returns: z.array(tagHourlyEntry),
  example: { query: 'tag:password-resets' },
  async handle(filter, call) {
    const hours = new Map<number, Counts>();
    for await (const row of matching(filter, call)) {
      const hour = startOf('hour', row.createdAt).getTime();
      hours.set(hour, addUp([hours.get(hour) ?? NO_COUNTS, countsOf(row)]));
    }
    return [...hours]
      .toSorted(([a], [b]) => a - b)
      .map(([hour, counts]) => ({ time: toTime(hour), ...toStats(counts) }));
  },
});

/** The counts of one message. Complaints and unsubscribes are of messages that had been sent. */
function countsOf({ state, opens, clicks }: SentMessageRow): Counts {
  const is = (...states: readonly SentMessageRow['state'][]) => Number(states.includes(state));
  return {
    sent: is('sent', 'spam', 'unsub'),
    hardBounces: is('bounced'),
    softBounces: is('soft-bounced'),
    rejects: is('rejected'),
    complaints: is('spam'),
    unsubs: is('unsub'),
    opens,
    uniqueOpens: Number(opens > 0),
    clicks,
    uniqueClicks: Number(clicks > 0),
  };
}

export const messagesSearch = [search, searchTimeSeries];

// The query language of /messages/search: words that must all match, `field:value`, quotes, a prefix `-` for "not", OR
// between words.

type Matches = (row: SentMessageRow) => boolean;

const MAX_TERMS = 50;

type TextsOf = (row: SentMessageRow) => readonly string[];

/** Fields that must contain the value, and fields that must equal it. */
const WITHIN: ReadonlyMap<string, TextsOf> = new Map<string, TextsOf>([
  ['email', ({ email }) => [email]],
  ['full_email', ({ email }) => [email]],
  ['sender', ({ sender }) => [sender]],
  ['subject', ({ subject }) => [subject]],
]);
const SAME: ReadonlyMap<string, TextsOf> = new Map<string, TextsOf>([
  ['tag', ({ tags }) => tags],
  ['tags', ({ tags }) => tags],
  ['state', ({ state }) => [state]],
  ['template', ({ template }) => [template ?? '']],
  ['subaccount', ({ subaccount }) => [subaccount ?? '']],
]);
const ANYWHERE = ({ email, sender, subject, tags }: SentMessageRow) => [email, sender, subject, ...tags];

/**
 * Parses a query. An empty one and `*` match every message. A field that is not listed above is a metadata field
 * (`u_name:value`), or plain text.
 */
function parseQuery(query: string): Matches {
  const groups: Matches[][] = [];
  let either = false;
  let count = 0;
  for (const { text, negated, field, value } of toTerms(query)) {
    if (text === 'AND') continue;
    if (text === 'OR') {
      either = true;
      continue;
    }
    if (++count > MAX_TERMS) break;
    const term = toTerm(field, value, field === undefined ? value : `${field}:${value}`);
    if (!term) continue;
    const match: Matches = negated ? (row) => !term(row) : term;
    const last = groups.at(-1);
    if (either && last) last.push(match);
    else groups.push([match]);
    either = false;
  }
  return (row) => groups.every((group) => group.some((match) => match(row)));
}

function toTerm(field: string | undefined, value: string, whole: string): Matches | undefined {
  const wanted = value.toLowerCase();
  const within = WITHIN.get(field ?? '');
  const same = SAME.get(field ?? '');
  if (same) return toSame(same, wanted);
  if (within) return toWithin(within, wanted);
  if (field?.startsWith('u_'))
    return ({ metadata }) =>
      Object.entries(metadata).some(
        ([name, own]) => name.toLowerCase() === field.slice(2) && String(own).toLowerCase() === wanted,
      );
  return toWithin(ANYWHERE, whole.toLowerCase());
}

function toWithin(of: TextsOf, wanted: string): Matches | undefined {
  const bare = wanted.replace(/^\*+|\*+$/g, '');
  return bare === '' ? undefined : (row) => of(row).some((text) => text.toLowerCase().includes(bare));
}

/** Matches the whole value, or its beginning if `wanted` ends with `*`. */
function toSame(of: TextsOf, wanted: string): Matches {
  const prefix = wanted.endsWith('*') ? wanted.slice(0, -1) : undefined;
  return (row) =>
    of(row).some((text) =>
      prefix === undefined ? text.toLowerCase() === wanted : text.toLowerCase().startsWith(prefix),
    );
}
