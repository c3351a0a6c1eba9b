import { hash } from 'node:crypto';
import type { CollectionSpec, Row } from './collection.ts';
import { startOf } from './counters.ts';
import type { Marked } from './marks.ts';

/** What is counted of a link. `sent`: messages that contained it as a tracked link. */
export const URL_COUNTS = ['sent', 'clicks', 'uniqueClicks'] as const;
export type UrlCounts = Readonly<Record<(typeof URL_COUNTS)[number], number>>;

/** A tracked link of an account with everything ever counted of it. `id` is `urlId`. Only events/url-counting.ts writes it. */
export interface UrlRow extends Row, UrlCounts, Marked {
  readonly account: string;
  readonly url: string;
  /** When it was last sent or clicked; the hour of the event. */
  readonly lastHour: Date;
}

export const urls: CollectionSpec<UrlRow> = {
  name: 'urls',
  indexes: [['account', 'clicks'], ['lastHour']],
  dates: ['lastHour'],
};

/** The counts of one link in one hour. `id` is the link's and the hour. */
export interface UrlHourRow extends Row, UrlCounts, Marked {
  readonly account: string;
  /** `urlKey` of the link. */
  readonly key: string;
  readonly start: Date;
}

export const urlHours: CollectionSpec<UrlHourRow> = {
  name: 'url_hours',
  indexes: [['account', 'key', 'start'], ['start']],
  dates: ['start'],
};

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
