import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';

// Shared by the three SQLite files of a host: the queue, the embedded store, the journal.

/** A row as node:sqlite returns it. */
export type SqlRow = Readonly<Record<string, SQLOutputValue>>;

/** The extended result code that node:sqlite adds to its errors; undefined for others (sqlite.org/rescode.html). */
export const resultCode = (error: unknown): number | undefined =>
  error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode : undefined;

/** The low byte of the result code, which is the kind of error; 0 for other errors. */
export const primaryCode = (error: unknown): number => (resultCode(error) ?? 0) & 0xff;

/** The value of a pragma. */
export const pragma = (db: DatabaseSync, name: string): SQLOutputValue | undefined =>
  Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];

/** Runs work in one transaction. */
export function inTransaction<T>(db: DatabaseSync, work: () => T): T {
  db.exec('BEGIN IMMEDIATE');
  try {
    const done = work();
    db.exec('COMMIT');
    return done;
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}
