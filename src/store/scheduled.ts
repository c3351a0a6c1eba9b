import type { CollectionSpec, Row } from './collection.ts';

/**
 * A message that is to be sent later, so that it can be listed, put off and cancelled from every host. `id` is the message's. The
 * delivery itself waits on the spool of the host that took it. Until that host sends it this row has the last word: who cancels or
 * moves the message changes the row, and who is about to send it claims the row, each in one atomic step that only one can make.
 */
export interface ScheduledRow extends Row {
  readonly account: string;
  readonly createdAt: Date;
  readonly sendAt: Date;
  readonly sender: string;
  /** The recipient, in lower case. */
  readonly email: string;
  readonly subject: string;
  /** On the spool. It is on one spool only, so it names who may claim the row, and a claim outlives the process that made it. */
  readonly delivery: string;
  /**
   * Null: it waits for its time. moved: the same, and the host that has it may not have heard of its new time. cancelled: nobody may
   * send it, and the host that has it may not have dropped it. leaving: its host has claimed it, and may have sent it.
   */
  readonly state: 'moved' | 'cancelled' | 'leaving' | null;
}

export const scheduled: CollectionSpec<ScheduledRow> = {
  name: 'scheduled',
  indexes: [['account', 'sendAt'], ['account', 'email', 'sendAt'], ['state'], ['state', 'sendAt'], ['sendAt']],
  dates: ['createdAt', 'sendAt'],
};
