import { createHash } from 'node:crypto';
import type { CollectionSpec, Row } from './collection.ts';

/** What signs posts of an account to a URL; `id` is `signingKeyId` of the two. */
export interface SigningKeyRow extends Row {
  readonly account: string;
  readonly url: string;
  readonly key: string;
  /** Signs too until `previousUntil`, while a rotation lasts. */
  readonly previousKey: string | null;
  readonly previousUntil: Date | null;
  readonly createdAt: Date;
}

export const signingKeys: CollectionSpec<SigningKeyRow> = {
  name: 'signing_keys',
  indexes: [['account', 'url']],
  dates: ['previousUntil', 'createdAt'],
};

export function signingKeyId(account: string, url: string): string {
  return createHash('sha256').update(`${account}\0${url}`).digest('hex').slice(0, 32);
}
