import type { Row } from '../driver/port.ts';
import { collection, type OwnedRow } from './collection.ts';

/** A notice, our own mail to one person: a verification link, a finished export. Kept for a while after its end. */
export interface NoticeRow extends OwnedRow {
  /** With its domain in lower-case A-labels. */
  readonly to: string;
  readonly subject: string;
  /** Cleared once it was sent or has failed: it may contain a secret link. */
  readonly text: string;
  readonly createdAt: Date;
  readonly state: 'waiting' | 'sent' | 'failed';
  readonly attempts: number;
  /** When it is tried next; after the end, the time of the end. A process claims it by moving this time forward. */
  readonly dueAt: Date;
  readonly lastError: string | null;
}

export const notices = collection<NoticeRow>()({
  name: 'notices',
  access: 'own',
  indexes: [
    ['state', 'dueAt'],
    ['account', 'createdAt'],
  ],
  dates: ['createdAt', 'dueAt'],
});

/** One slot of a quota, taken until `until`, then free again. `id` is `<what is limited> <number>`. */
interface QuotaRow extends Row {
  readonly until: Date;
}

export const quotas = collection<QuotaRow>()({
  name: 'quotas',
  access: 'none',
  indexes: [['until']],
  dates: ['until'],
  upkeep: true,
});
