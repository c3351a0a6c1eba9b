import type { CollectionSpec, Row } from './collection.ts';

/** A route: mail to mailboxes of `domain` that match `pattern` is posted to `url`. `id` is `<account number>.<sequence>`. */
export interface InboundRouteRow extends Row {
  readonly account: string;
  /** `id` of the inbound domain. */
  readonly domain: string;
  readonly pattern: string;
  readonly url: string;
  readonly createdAt: Date;
}

export const inboundRoutes: CollectionSpec<InboundRouteRow> = {
  name: 'inbound_routes',
  indexes: [
    ['account', 'createdAt'],
    ['domain', 'createdAt'],
  ],
  dates: ['createdAt'],
};
