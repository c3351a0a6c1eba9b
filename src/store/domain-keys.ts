import type { CollectionSpec, Row } from './collection.ts';

/**
 * The key pair that signs the mail of a domain. `id` is the domain as A-labels: a selector has one record in the DNS, so
 * accounts that share a domain share its key, and what keeps one from signing for another is that each must verify the domain.
 */
export interface DomainKeyRow extends Row {
  /** SubjectPublicKeyInfo as base64, which is the `p=` of the record. */
  readonly publicKey: string;
  /** PKCS #8 in PEM. Never leaves the store but to sign. */
  readonly privateKey: string;
  readonly createdAt: Date;
}

export const domainKeys: CollectionSpec<DomainKeyRow> = { name: 'domain_keys', indexes: [], dates: ['createdAt'] };
