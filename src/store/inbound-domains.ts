import type { CollectionSpec, Row } from './collection.ts';

/**
 * An inbound domain of an account. Mail is taken for the one whose `id` is the lower-case A-label form of the name, and there is one
 * of these in all. Any number of accounts may have a claim beside it, whose `id` is the name and the account: it waits for a proof.
 */
export interface InboundDomainRow extends Row {
  readonly account: string;
  /** As the account wrote it; echoed in records. */
  readonly domain: string;
  readonly createdAt: Date;
  readonly validMx: boolean;
  readonly testedAt: Date | null;
  /** When the account was seen to have the DNS of the domain; null or absent: never. */
  readonly verifiedAt?: Date | null;
}

export const inboundDomains: CollectionSpec<InboundDomainRow> = {
  name: 'inbound_domains',
  indexes: [['account', 'createdAt'], ['testedAt']],
  dates: ['createdAt', 'testedAt', 'verifiedAt'],
};

/** `id` of the claim that an account has to a name. Neither holds a space. */
export function claimId(name: string, account: string): string {
  return `${name} ${account}`;
}

/** The name of an inbound domain, as lower-case A-labels. */
export function nameOf({ id }: Pick<InboundDomainRow, 'id'>): string {
  return id.split(' ', 1)[0] ?? id;
}

/** Whether it is only a claim: no mail is taken for it. */
export function isClaim({ id }: Pick<InboundDomainRow, 'id'>): boolean {
  return id.includes(' ');
}
