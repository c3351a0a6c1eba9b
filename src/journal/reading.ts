import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { callByName, type Outcome } from '../base/worker.ts';
import { openForReading } from './file.ts';
import { createHistory } from './history.ts';
import { createQueries } from './queries.ts';
import type { History } from './types.ts';

/** The history in a file beside the daemon that writes it. */
interface Reading {
  readonly history: History;
  close(): void;
}

/** Opens the journal for a command. Throws if there is none, or if it cannot be used (`isUnusable`). */
export function openReading(file: string, clock: Clock): Reading {
  const db = openForReading(file);
  const queries = createQueries(db);
  return frozen({
    history: createHistory(async (name, ...args) => {
      const answer: Outcome<'done'> = { kind: 'done', value: callByName(queries, [0, name, args]) };
      return answer.value;
    }, clock),
    close: () => db.close(),
  });
}
