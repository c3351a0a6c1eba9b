import type { CollectionSpec, Row } from './collection.ts';

/** An inbound domain belongs to one account; `id` is its lower-case A-label form. */
export interface InboundDomainRow extends Row {
  readonly account: string;
  /** As the account wrote it; echoed in records. */
  readonly domain: string;
  readonly createdAt: Date;
  readonly validMx: boolean;
  readonly testedAt: Date | null;
}

export const inboundDomains: CollectionSpec<InboundDomainRow> = {
  name: 'inbound_domains',
  indexes: [['account', 'createdAt'], ['testedAt']],
  dates: ['createdAt', 'testedAt'],
};
