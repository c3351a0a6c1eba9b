import { hash } from 'node:crypto';
import type { Row } from '../driver/port.ts';
import { collection } from './collection.ts';

/** A pause of an endpoint, which holds on every host (queue/endpoint-pauses.ts). `id` is `pauseId`. */
export interface PauseRow extends Row {
  /** The account of the endpoint; it does not count towards the account's bytes. */
  readonly of: string;
  readonly url: string;
  /** The kind of its deliveries, such as `inbound`. */
  readonly kind: string;
  readonly by: 'account' | 'operator';
  readonly until: Date;
}

export const pauses = collection<PauseRow>()({
  name: 'pauses',
  access: 'none',
  indexes: [['until'], ['of', 'until']],
  dates: ['until'],
  upkeep: true,
});

export const pauseId = (account: string, url: string): string => hash('sha256', `${account}\0${url}`, 'base64url');
