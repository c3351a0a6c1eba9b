import type { CollectionSpec, Row } from './collection.ts';

/**
 * A message that is to be sent later, so that it can be listed, put off and cancelled from every host. `id` is the message's. The
 * delivery itself waits on the spool of the host that took it; a row whose time has come says nothing any more.
 */
export interface ScheduledRow extends Row {
  readonly account: string;
  readonly createdAt: Date;
  readonly sendAt: Date;
  readonly sender: string;
  /** The recipient, in lower case. */
  readonly email: string;
  readonly subject: string;
  /** On the spool. */
  readonly delivery: string;
  /** What an API call on another host wants done with it; that of the spool does it, and takes this away. */
  readonly wish: 'cancel' | 'move' | null;
}

export const scheduled: CollectionSpec<ScheduledRow> = {
  name: 'scheduled',
  indexes: [['account', 'sendAt'], ['account', 'email', 'sendAt'], ['wish'], ['sendAt']],
  dates: ['createdAt', 'sendAt'],
};
