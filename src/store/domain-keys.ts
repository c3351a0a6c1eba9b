import type { CollectionSpec, Row } from './collection.ts';

/** A pair that is to sign once its public half is in the DNS. */
export interface NextKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly privateKey: string;
  /** When it takes over, once the DNS was seen to show it; null before. */
  readonly usableAt: Date | null;
}

/** A pair that signed before: what it signed is still under way, so its record has to stay for a while. */
export interface PreviousKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly keepUntil: Date;
}

/**
 * The key pair that signs the mail of a domain. `id` is the domain as A-labels: a selector has one record in the DNS,
 * so accounts that share a domain share its key, and what keeps one from signing for another is that each must verify
 * the domain.
 */
export interface DomainKeyRow extends Row {
  /** Where the public half is published; absent for a key that was never rotated: `senders.dkim_selector`. */
  readonly selector?: string;
  /** SubjectPublicKeyInfo as base64, which is the `p=` of the record. */
  readonly publicKey: string;
  /** PKCS #8 in PEM. Never leaves the store but to sign. */
  readonly privateKey: string;
  readonly createdAt: Date;
  /** Set while `next` waits to be seen in the DNS. */
  readonly rotatingSince?: Date | null;
  readonly next?: NextKey | null;
  readonly previous?: PreviousKey | null;
}

export const domainKeys: CollectionSpec<DomainKeyRow> = {
  name: 'domain_keys',
  indexes: [['rotatingSince']],
  dates: ['createdAt', 'rotatingSince'],
};
