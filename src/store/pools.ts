import type { CollectionSpec, Row } from './collection.ts';

/** The pool that every account has, that cannot be deleted, and that an address is in when it is in no other. */
export const DEFAULT_POOL = 'Main Pool';

/** A named group of dedicated addresses. `id` is `poolId`. Which addresses are in it stands in the account's placement. */
export interface PoolRow extends Row {
  readonly account: string;
  readonly name: string;
  /** Of this pool and no later one of the same name. */
  readonly token: string;
  readonly createdAt: Date;
}

export const pools: CollectionSpec<PoolRow> = {
  name: 'pools',
  indexes: [['account', 'name']],
  dates: ['createdAt'],
};

/** The id of a pool's row. */
export function poolId(account: string, name: string): string {
  return `${account} ${name}`;
}

/** A request for a dedicated address that waits for the provisioning task. `id` is the account: there can be one. */
export interface IpRequestRow extends Row {
  readonly account: string;
  /** Of this request and no later one. */
  readonly token: string;
  /** Name of a pool. */
  readonly pool: string;
  readonly warmup: boolean;
  readonly requestedAt: Date;
  /** The address that was chosen for it, and the `claim` that stood in its row; null: none yet. */
  readonly ip: string | null;
  readonly claim: string | null;
}

export const ipRequests: CollectionSpec<IpRequestRow> = {
  name: 'ip_requests',
  indexes: [['ip', 'requestedAt']],
  dates: ['requestedAt'],
};
