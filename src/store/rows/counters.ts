import { hash } from 'node:crypto';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/clock.ts';
import type { Counts } from '../../mail/stats.ts';
import { collection, type OwnedRow } from './collection.ts';
import type { EventMarks } from './messages.ts';

/** The subjects that have counters: the account as a whole, and those of its mail. */
export type CounterSubject = 'account' | 'sender' | 'tag' | 'template' | 'subaccount';

/** The time that a row covers. `total` covers everything, so that lists need one row per subject. */
const SPANS = ['minute', 'hour', 'week', 'month', 'total'] as const;
export type CounterSpan = (typeof SPANS)[number];

/**
 * The spans counted for each kind. Hours serve time series and windows, totals lists, months reputation; a subaccount's
 * quota and volume need minutes, weeks and months. Further rows would never be read. Minutes count only sent mail, and
 * are kept for a day.
 */
export const SPANS_OF: Readonly<Record<CounterSubject, readonly CounterSpan[]>> = {
  account: ['minute', 'hour', 'month', 'total'],
  sender: ['hour', 'total'],
  tag: ['hour', 'month', 'total'],
  template: ['hour'],
  subaccount: ['minute', 'hour', 'week', 'month', 'total'],
};

/**
 * The counts of one subject of an account in one span. `id` is `counterId`, so that ids of one kind, span and start
 * sort by key. Only events/counting.ts changes the counts, because it tracks which events are in them.
 */
export interface CounterRow extends OwnedRow, Counts, EventMarks {
  readonly kind: CounterSubject;
  readonly span: CounterSpan;
  /** The address, tag, slug or id counted; the account's own id for kind `account`. */
  readonly key: string;
  /** The start of the minute, hour, week (Monday) or month in UTC; for `total`, 1970. */
  readonly start: Date;
  /** When it was first counted in this span. */
  readonly firstAt: Date;
  /**
   * Rejection list entries made by events that the account removed; in months of accounts and subaccounts. Incremented
   * separately.
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

const WEEK_MS = 7 * DAY_MS;
/** 1970 began on a Thursday; the Monday before was 29 December. */
const FIRST_MONDAY = -3 * DAY_MS;

/** The start of the span that contains `at`. Weeks begin on Monday, months on the 1st, all at 00:00 UTC. */
export function startOf(span: CounterSpan, at: Date): Date {
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

/** Minutes that begin after this time overlap the last 60 minutes. */
export function sinceMinutes(now: Date): Date {
  return new Date(now.getTime() - HOUR_MS - MINUTE_MS);
}

/** The starts of the months used for reputation: the current one and the one before. */
export function reputationMonths(now: Date): readonly [Date, Date] {
  const present = startOf('month', now);
  return [present, startOf('month', new Date(present.getTime() - 1))];
}

/** The id of a row; ids of one account, kind, span and start sort as their keys do. */
export function counterId(account: string, kind: CounterSubject, span: CounterSpan, start: Date, key: string): string {
  return `${account} ${kind} ${span} ${start.toISOString().slice(0, span === 'minute' ? 16 : 13)} ${key}`;
}

/** The counters of a link. `sent`: messages that contained it as a tracked link. */
export const URL_COUNTS = ['sent', 'clicks', 'uniqueClicks'] as const;
export type UrlCounts = Readonly<Record<(typeof URL_COUNTS)[number], number>>;

/** A tracked link of an account with its total counts. `id` is `urlId`. Only events/counting.ts writes it. */
export interface UrlRow extends OwnedRow, UrlCounts, EventMarks {
  readonly url: string;
  /** The hour in which it was last sent or clicked. */
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

/** The longest URL that is counted, in characters; events keep 2048. Longer ones are still tracked. */
export const LONGEST_COUNTED_URL = 2000;
/** Links counted per message. */
export const MAX_COUNTED_URLS = 100;

/** A fixed-length name of a URL for ids and indexes. */
export function urlKey(url: string): string {
  return hash('sha256', url, 'base64url').slice(0, 22);
}

/** The id of a link's row. */
export function urlId(account: string, key: string): string {
  return `${account} ${key}`;
}

/** The id of a link's row for the hour of `at`. */
export function urlHourId(account: string, key: string, at: Date): string {
  return `${account} ${key} ${startOf('hour', at).toISOString().slice(0, 13)}`;
}
