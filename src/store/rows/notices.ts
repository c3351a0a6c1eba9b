import type { CollectionSpec, Row } from '../driver/port.ts';

/** A mail of our own to one person: a verification link, a finished export. Kept until it was handed over or given up. */
export interface NoticeRow extends Row {
  readonly account: string;
  /** With its domain as lower-case A-labels. */
  readonly to: string;
  readonly subject: string;
  /** Emptied when it was sent or given up: it may hold a link that is a secret. */
  readonly text: string;
  readonly createdAt: Date;
  readonly state: 'waiting' | 'sent' | 'failed';
  readonly attempts: number;
  /** When it is tried next. Who tries it moves this on first, and so holds it against other processes; at the end, when that was. */
  readonly dueAt: Date;
  readonly lastError: string | null;
}

export const notices: CollectionSpec<NoticeRow> = {
  name: 'notices',
  indexes: [
    ['state', 'dueAt'],
    ['account', 'createdAt'],
  ],
  dates: ['createdAt', 'dueAt'],
};

/** One of the places that a quota has: it is taken until a time, and free again then. `id` is `<what is limited> <number>`. */
export interface QuotaRow extends Row {
  readonly until: Date;
}

export const quotas: CollectionSpec<QuotaRow> = {
  name: 'quotas',
  indexes: [['until']],
  dates: ['until'],
  upkeep: true,
};
