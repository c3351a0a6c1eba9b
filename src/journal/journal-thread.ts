import type { DatabaseSync } from 'node:sqlite';
import { type Call, callByName, type Protocol, type Reply, serveThread } from '../base/worker.ts';
import { createChanges } from './changes.ts';
import { isUnusable, openFile } from './file.ts';
import { createQueries } from './queries.ts';

// The thread that owns the file of the journal. Writes and questions take turns; nobody waits for a write.

/** How a call ended: replaced means that the file was unusable, and a new one has taken its place. */
type AnswerKind = 'done' | 'failed' | 'replaced';

/** What the journal's thread goes by. */
export interface JournalProtocol extends Protocol {
  readonly data: { readonly file: string };
  readonly call: Call;
  readonly kind: AnswerKind;
  /** Why a file that stood there was replaced; null if it was not. */
  readonly ready: string | null;
  readonly news: undefined;
}

serveThread<JournalProtocol>(({ file }, line) => {
  let db: DatabaseSync;
  let table: object;

  function open(): string | undefined {
    const opened = openFile(file);
    db = opened.db;
    table = { ...createQueries(db), ...createChanges(db) };
    return opened.replaced;
  }

  function answer(call: Call): Reply<AnswerKind> {
    const [n] = call;
    try {
      return [n, 'done', callByName(table, call)];
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (!isUnusable(error)) return [n, 'failed', reason];
      db.close();
      return [n, 'replaced', open() ?? reason];
    }
  }

  const replaced = open();
  return {
    ready: replaced ?? null,
    take: (calls) => line.reply(calls.map(answer)),
    end: () => db.close(),
  };
});
