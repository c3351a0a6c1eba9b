import { hash } from 'node:crypto';
import { collection, type OwnedRow } from './collection.ts';
import type { EventMarks } from './messages.ts';

/** What is counted of sent mail, in the order the API lists it. */
export const COUNTS = [
  'sent',
  'hardBounces',
  'softBounces',
  'rejects',
  'complaints',
  'unsubs',
  'opens',
  'uniqueOpens',
  'clicks',
  'uniqueClicks',
] as const;

export type Counts = Readonly<Record<(typeof COUNTS)[number], number>>;

export const NO_COUNTS: Counts = {
  sent: 0,
  hardBounces: 0,
  softBounces: 0,
  rejects: 0,
  complaints: 0,
  unsubs: 0,
  opens: 0,
  uniqueOpens: 0,
  clicks: 0,
  uniqueClicks: 0,
};

/** What has counters: the account as a whole, and things of its mail. */
export type CounterSubject = 'account' | 'sender' | 'tag' | 'template' | 'subaccount';

/** Of how much time a row is the sum. `total` is everything there ever was, so that lists need one row a thing. */
const SPANS = ['minute', 'hour', 'week', 'month', 'total'] as const;
export type Span = (typeof SPANS)[number];

/**
 * Which spans a kind is counted in. Time series and windows are made of hours, lists of totals, reputation of months;
 * what a subaccount may send and has sent is told by minute, week and month. More rows than that would be written and
 * never read; minutes count what was sent and nothing else, and are kept for a day.
 */
export const SPANS_OF: Readonly<Record<CounterSubject, readonly Span[]>> = {
  account: ['minute', 'hour', 'month', 'total'],
  sender: ['hour', 'total'],
  tag: ['hour', 'month', 'total'],
  template: ['hour'],
  subaccount: ['minute', 'hour', 'week', 'month', 'total'],
};

/**
 * The counts of one thing of an account in one span of time. `id` is `counterId`, so that ids of one kind, span and
 * start sort by key. Only events/counting.ts changes counts: it must know which events are in them.
 */
export interface CounterRow extends OwnedRow, Counts, EventMarks {
  readonly kind: CounterSubject;
  readonly span: Span;
  /** The address, tag, slug or id that is counted; the account's own id for kind `account`. */
  readonly key: string;
  /** The beginning of the minute, of the hour, of the week (Monday) or of the month in UTC; for `total`, 1970. */
  readonly start: Date;
  /** When it was first counted in this span. */
  readonly firstAt: Date;
  /**
   * Entries of the rejection list that events had made and the account took off; in months of accounts and subaccounts.
   * Added to by itself.
   */
  readonly resets?: number;
}

export const counters = collection<CounterRow>()({
  name: 'counters',
  access: 'read',
  indexes: [
    ['account', 'kind', 'span', 'key', 'start'],
    ['account', 'kind', 'span', 'start'],
    ['span', 'start'],
  ],
  dates: ['start', 'firstAt'],
});

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const WEEK_MS = 7 * 24 * HOUR_MS;
/** 1970 began on a Thursday; the Monday before was 29 December. */
const FIRST_MONDAY = -3 * 24 * HOUR_MS;

/** The beginning of the span that `at` lies in. Weeks begin on Monday, months on the 1st, all at 00:00 UTC. */
export function startOf(span: Span, at: Date): Date {
  const ms = at.getTime();
  switch (span) {
    case 'minute':
      return new Date(Math.floor(ms / MINUTE_MS) * MINUTE_MS);
    case 'hour':
      return new Date(Math.floor(ms / HOUR_MS) * HOUR_MS);
    case 'week':
      return new Date(Math.floor((ms - FIRST_MONDAY) / WEEK_MS) * WEEK_MS + FIRST_MONDAY);
    case 'month':
      return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), 1));
    case 'total':
      return new Date(0);
  }
}

/** Minutes that begin later than this lie in the last 60 minutes, in part or whole. */
export function sinceMinutes(now: Date): Date {
  return new Date(now.getTime() - HOUR_MS - MINUTE_MS);
}

/** The beginnings of the months that reputation counts: the present one and the one before. */
export function reputationMonths(now: Date): readonly [Date, Date] {
  const present = startOf('month', now);
  return [present, startOf('month', new Date(present.getTime() - 1))];
}

/** The id of a row; ids of one account, kind, span and start sort as their keys do. */
export function counterId(account: string, kind: CounterSubject, span: Span, start: Date, key: string): string {
  return `${account} ${kind} ${span} ${start.toISOString().slice(0, span === 'minute' ? 16 : 13)} ${key}`;
}

/** What is counted of a link. `sent`: messages that contained it as a tracked link. */
export const URL_COUNTS = ['sent', 'clicks', 'uniqueClicks'] as const;
export type UrlCounts = Readonly<Record<(typeof URL_COUNTS)[number], number>>;

/**
 * A tracked link of an account with everything ever counted of it. `id` is `urlId`. Only events/counting.ts writes it.
 */
export interface UrlRow extends OwnedRow, UrlCounts, EventMarks {
  readonly url: string;
  /** When it was last sent or clicked; the hour of the event. */
  readonly lastHour: Date;
}

export const urls = collection<UrlRow>()({
  name: 'urls',
  access: 'read',
  indexes: [['account', 'clicks'], ['lastHour']],
  dates: ['lastHour'],
});

/** The counts of one link in one hour. `id` is the link's and the hour. */
export interface UrlHourRow extends OwnedRow, UrlCounts, EventMarks {
  /** `urlKey` of the link. */
  readonly key: string;
  readonly start: Date;
}

export const urlHours = collection<UrlHourRow>()({
  name: 'url_hours',
  access: 'read',
  indexes: [['account', 'key', 'start'], ['start']],
  dates: ['start'],
});

/** Characters of the longest URL that is counted; events keep 2048. Longer ones are tracked all the same. */
export const LONGEST_COUNTED_URL = 2000;
/** Links of one message that are counted. */
export const MOST_COUNTED_URLS = 100;

/** Names a URL in ids and indexes, whatever its length. */
export function urlKey(url: string): string {
  return hash('sha256', url, 'base64url').slice(0, 22);
}

/** The id of the row of a link. */
export function urlId(account: string, key: string): string {
  return `${account} ${key}`;
}

/** The id of the row of a link in the hour of `at`. */
export function urlHourId(account: string, key: string, at: Date): string {
  return `${account} ${key} ${startOf('hour', at).toISOString().slice(0, 13)}`;
}
