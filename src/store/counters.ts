import type { CollectionSpec, Row } from './collection.ts';

/** What is counted of sent mail, in the order the API lists it. */
export const COUNTS = [
  'sent', 'hardBounces', 'softBounces', 'rejects', 'complaints', 'unsubs', 'opens', 'uniqueOpens', 'clicks', 'uniqueClicks',
] as const;

export type Counts = Readonly<Record<(typeof COUNTS)[number], number>>;

/** One hour of one thing of an account; totals and windows are sums of these. `id` is `<account> <kind> <hour> <key>`. */
export interface CounterRow extends Row, Counts {
  readonly account: string;
  readonly kind: 'account' | 'sender' | 'tag' | 'template' | 'subaccount';
  /** The address, tag, slug or id that is counted; the account's own id for kind `account`. */
  readonly key: string;
  /** The beginning of the hour. */
  readonly hour: Date;
}

export const counters: CollectionSpec<CounterRow> = {
  name: 'counters',
  indexes: [['account', 'kind', 'key', 'hour'], ['account', 'kind', 'hour']],
  dates: ['hour'],
};
