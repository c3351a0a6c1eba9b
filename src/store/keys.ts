import { createHash } from 'node:crypto';
import type { CollectionSpec, Row } from './collection.ts';

/** An API key. The store never holds the key itself: `id` is its SHA-256, as `keyHash` makes it. */
export interface KeyRow extends Row {
  readonly account: string;
  readonly label: string;
  /** The first four characters, so that a person can tell keys apart. */
  readonly hint: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
}

export const keys: CollectionSpec<KeyRow> = {
  name: 'keys',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt', 'revokedAt'],
  upkeep: true, // to revoke one is to write a row
};

/** A key has 128 random bits, so one fast hash is enough to make the stored form useless to a thief. */
export function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
