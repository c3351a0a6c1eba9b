import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { callByName, type Outcome } from '../base/worker.ts';
import { openForReading } from './file.ts';
import { createHistory } from './history.ts';
import { createJournalQueries } from './queries.ts';
import type { ActionRecord, Notes } from './types.ts';

// Access of commands to the journal, while the daemon writes it.

/** Opens the history in a file for reading. Throws if there is none, or if it cannot be used (`isUnusable`). */
export function openJournalReader(file: string, clock: Clock) {
  const db = openForReading(file);
  try {
    const queries = createJournalQueries(db);
    return frozen({
      history: createHistory(async (name, ...args) => {
        const answer: Outcome<'done'> = { kind: 'done', value: callByName(queries, [0, name, args]) };
        return answer.value;
      }, clock),
      close: () => db.close(),
    });
  } catch (error) {
    db.close();
    throw error;
  }
}

/** How long a command waits while the daemon writes. */
const BUSY_MS = 5000;

/** Records the actions of a command, if there is a journal. Throws if it cannot be written. */
export function recordCommandActions(file: string, actions: readonly Omit<ActionRecord, 'n'>[]): void {
  if (actions.length === 0 || !existsSync(file)) return;
  openForReading(file).close(); // throws if the file is of another version
  const db = new DatabaseSync(file, { timeout: BUSY_MS });
  try {
    const insert = db.prepare('INSERT INTO actions (at, by, account, what, count, detail) VALUES (?, ?, ?, ?, ?, ?)');
    for (const { at, by, account, what, count, detail } of actions) insert.run(at, by, account, what, count, detail);
  } finally {
    db.close();
  }
}

/** Records the actions of operations that a command runs; without a daemon in this process nothing else is recorded. */
export function createCommandNotes(file: string, log: Log): Notes {
  return frozen({
    note(entry) {
      if (entry.what !== 'action') return;
      try {
        recordCommandActions(file, [entry.action]);
      } catch (error) {
        log.error('journal.fault', { error });
      }
    },
  });
}
