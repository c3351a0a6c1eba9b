import { collection, type OwnedRow } from './collection.ts';
import type { SentState } from './messages.ts';

export type ExportType = 'activity' | 'reject' | 'whitelist';

/** The messages in an activity export: all conditions that are not null must be met. */
export interface ActivityFilter {
  /** Start (inclusive) and end (exclusive). */
  readonly from: Date | null;
  readonly before: Date | null;
  /** Messages with any of these tags. */
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
  /** waiting, working (claimed by `holder` until `until`), complete or error, and finally expired. */
  readonly state: 'waiting' | 'working' | 'complete' | 'error' | 'expired';
  readonly createdAt: Date;
  readonly finishedAt: Date | null;
  readonly notifyEmail: string | null;
  /** Only for activity exports. */
  readonly filter: ActivityFilter | null;
  /** Why it failed, for the account to read. */
  readonly error: string | null;
  /** Identifies a process, from its start to its end. */
  readonly holder: string | null;
  readonly until: Date | null;
  /** How often it was started. */
  readonly attempts: number;
  /** The host that runs the job and then has the archive, and the archive's file name there. */
  readonly host: string | null;
  readonly file: string | null;
  /**
   * Contains the token itself, because the account can see it repeatedly; access to this row implies access to the
   * archive's data anyway. It is found by the token's hash, so that look-up times reveal nothing about tokens.
   */
  readonly resultUrl: string | null;
  readonly tokenHash: string | null;
  /** True from the end of the job until its notice is queued. */
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

/** Job names are times, so they are unique only within an account. */
export function exportId(account: string, name: string): string {
  return `${account} ${name}`;
}

/** The name by which the account knows the job. */
export function exportName(row: Pick<ExportRow, 'id' | 'account'>): string {
  return row.id.slice(row.account.length + 1);
}
