import { createHash } from 'node:crypto';
import type { CollectionSpec, Row } from './collection.ts';

/** A link that proves who reads the mail of a domain. The store never holds the token itself: `id` is its SHA-256, as `tokenHash` makes it. */
export interface VerificationRow extends Row {
  readonly account: string;
  /** A-label form. */
  readonly domain: string;
  /** Where the link was mailed to. */
  readonly email: string;
  readonly createdAt: Date;
  readonly expiresAt: Date;
  readonly usedAt: Date | null;
}

export const verifications: CollectionSpec<VerificationRow> = {
  name: 'verifications',
  indexes: [['expiresAt']],
  dates: ['createdAt', 'expiresAt', 'usedAt'],
};

/** A token has 128 random bits, so one fast hash is enough to make the stored form useless to a thief. */
export function tokenHash(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
