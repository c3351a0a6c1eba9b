import type { DatabaseSync } from 'node:sqlite';
import { callByName, serveThread } from '../../base/worker.ts';
import { kindOf, reasonOf } from './faults.ts';
import { folderOf } from './folder.ts';
import { createQueries, type Queries } from './queries.ts';
import { connect } from './schema.ts';
import type { Ask, AskReply, QueueProtocol } from './thread.ts';

// The reader thread: its queries never delay a commit.
serveThread<QueueProtocol>(({ dir }, line) => {
  const folder = folderOf(dir);
  let db: DatabaseSync;
  let queries: Queries;

  const open = () => {
    db = connect(folder.file);
    db.exec('PRAGMA query_only = ON');
    queries = createQueries(db, folder.blobs);
  };

  const answer = (ask: Ask): AskReply => {
    const [n, name] = ask;
    try {
      if (name !== 'reopen') return [n, 'done', callByName(queries, ask)];
      db.close();
      open();
      return [n, 'done', null];
    } catch (error) {
      const kind = kindOf(error);
      return [n, kind === 'damaged' ? 'damaged' : kind === 'busy' ? 'again' : 'fault', reasonOf(error)];
    }
  };

  open();
  return {
    ready: { loaded: null, rebuilt: null },
    take: (asks) => line.reply(asks.map(answer)),
    end: () => db.close(),
  };
});
