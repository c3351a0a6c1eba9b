import type { Row } from '../driver/port.ts';
import { collection, type OwnedRow } from './collection.ts';

/**
 * A mail of our own to one person: a verification link, a finished export. Kept until it was handed over or given up.
 */
export interface NoticeRow extends OwnedRow {
  /** With its domain as lower-case A-labels. */
  readonly to: string;
  readonly subject: string;
  /** Emptied when it was sent or given up: it may hold a link that is a secret. */
  readonly text: string;
  readonly createdAt: Date;
  readonly state: 'waiting' | 'sent' | 'failed';
  readonly attempts: number;
  /**
   * When it is tried next. Who tries it moves this on first, and so holds it against other processes; at the end, when
   * that was.
   */
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

/**
 * One of the places that a quota has: it is taken until a time, and free again then. `id` is `<what is limited>
 * <number>`.
 */
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
