import type { DatabaseSync } from 'node:sqlite';
import type { Report } from '../types.ts';
import { text } from './rows.ts';

/** Reports inside the common transaction. */
export interface Reporting {
  /** Known already: its settlement was asked for again because the first answer was lost. */
  keepReport(report: Report): void;
  reported(ids: readonly string[]): void;
}

/** Reporting over the writer's connection. */
export function createReporting(db: DatabaseSync): Reporting {
  const insert = db.prepare('INSERT INTO reports (id, body) VALUES (?, ?) ON CONFLICT DO NOTHING');
  const remove = db.prepare('DELETE FROM reports WHERE id = ?');
  return {
    keepReport: ({ id, body }) => {
      insert.run(id, body);
    },
    reported(ids) {
      for (const id of ids) remove.run(id);
    },
  };
}

/** What the reader answers about reports. */
export interface ReportQueries {
  reports(limit: number): Report[];
}

/** Questions over the reader's connection. */
export function createReportQueries(db: DatabaseSync): ReportQueries {
  const oldest = db.prepare('SELECT id, body FROM reports ORDER BY key LIMIT ?');
  return {
    reports: (limit) => oldest.all(limit).map((row) => ({ id: text(row, 'id'), body: text(row, 'body') })),
  };
}
