import type { CollectionSpec, Row } from './collection.ts';

/** A domain that an account wants its tracked links to begin with. `id` is `trackingDomainId`. */
export interface TrackingDomainRow extends Row {
  readonly account: string;
  /** A-label form. */
  readonly domain: string;
  readonly createdAt: Date;
  /** When the DNS last answered a test. */
  readonly lastTestedAt: Date | null;
  /** Whether the domain leads to us. Null: the DNS has never answered. */
  readonly valid: boolean | null;
  /** Set when it turned valid after having been invalid: before this, caches may still hold the old record. */
  readonly validAfter: Date | null;
  readonly error: string | null;
  readonly nextTestAt: Date;
  /** Grows with every test that is written down, so that of two at once neither undoes the other. */
  readonly version: number;
}

export const trackingDomains: CollectionSpec<TrackingDomainRow> = {
  name: 'tracking_domains',
  indexes: [['account', 'domain'], ['nextTestAt']],
  dates: ['createdAt', 'lastTestedAt', 'validAfter', 'nextTestAt'],
};

/** The id of the row of an account's tracking domain. */
export function trackingDomainId(account: string, domain: string): string {
  return `${account} ${domain}`;
}
