import { createHash } from 'node:crypto';
import { collection, type OwnedRow } from './collection.ts';
import type { SentState } from './messages.ts';

export type ExportType = 'activity' | 'reject' | 'whitelist';

/** Which messages an activity export holds: all conditions that are not null must be met. */
export interface ActivityFilter {
  /** The first moment that counts, and the first that does not any more. */
  readonly from: Date | null;
  readonly before: Date | null;
  /** Messages with any of them. */
  readonly tags: readonly string[] | null;
  /** Lower-case addresses. */
  readonly senders: readonly string[] | null;
  readonly states: readonly SentState[] | null;
  /** Ids of API keys: their hashes, never the keys. */
  readonly apiKeys: readonly string[] | null;
}

/** An export job. `id` is `exportId`. */
export interface ExportRow extends OwnedRow {
  readonly type: ExportType;
  /** waiting, working (claimed by `holder` until `until`), complete or error, and in the end expired. */
  readonly state: 'waiting' | 'working' | 'complete' | 'error' | 'expired';
  readonly createdAt: Date;
  readonly finishedAt: Date | null;
  readonly notifyEmail: string | null;
  /** Of an activity export. */
  readonly filter: ActivityFilter | null;
  /** Why it ended in state error, for the account to read. */
  readonly error: string | null;
  /** One life of one process. */
  readonly holder: string | null;
  readonly until: Date | null;
  /** How often it was begun. */
  readonly attempts: number;
  /** The host that works on it and then has the archive, and the archive's name there. */
  readonly host: string | null;
  readonly file: string | null;
  /**
   * Holds the token itself, because the account must be shown it again and again; who can read this row can read what
   * the archive holds anyway. It is found by the token's hash, so that the time of a look-up says nothing about any
   * token.
   */
  readonly resultUrl: string | null;
  readonly tokenHash: string | null;
  /** True from the end of the job until its notification mail was handed over. */
  readonly unnotified: boolean | null;
}

export const exportJobs = collection<ExportRow>()({
  name: 'exports',
  access: 'own',
  indexes: [
    ['account'],
    ['account', 'createdAt'],
    ['state', 'createdAt'],
    ['state', 'until'],
    ['state', 'finishedAt'],
    ['tokenHash'],
    ['file'],
    ['unnotified'],
  ],
  dates: ['createdAt', 'finishedAt', 'until'],
});

/** Names of jobs are times, so they are unique in an account only. */
export function exportId(account: string, name: string): string {
  return `${account} ${name}`;
}

/** The name that the account knows the job by. */
export function exportName(row: Pick<ExportRow, 'id' | 'account'>): string {
  return row.id.slice(row.account.length + 1);
}

/** A token has 128 random bits, so one fast hash is enough. */
export function tokenHash(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
