import type { DatabaseSync } from 'node:sqlite';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { kindOf, reasonOf } from './faults.ts';
import { folderOf } from './folder.ts';
import { createQueries, type Queries } from './queries.ts';
import { connect } from './schema.ts';
import { type Answer, type Ask, call, type Post, type ThreadData } from './thread.ts';

/** The thread that reads: what it looks for never holds up a commit. */
function serve(port: MessagePort, data: ThreadData): void {
  const folder = folderOf(data.dir);
  const post = (message: Post) => port.postMessage(message);
  let db: DatabaseSync;
  let queries: Queries;

  const open = () => {
    db = connect(folder.file);
    db.exec('PRAGMA query_only = ON');
    queries = createQueries(db, folder.blobs);
  };

  const answer = (ask: Ask): Answer => {
    const [n, name] = ask;
    try {
      if (name === 'reopen') {
        db.close();
        open();
        return [n, 'done', null];
      }
      return [n, 'done', call(queries, ask)];
    } catch (error) {
      const kind = kindOf(error);
      return [n, kind === 'damaged' ? 'damaged' : kind === 'busy' ? 'again' : 'fault', reasonOf(error)];
    }
  };

  try {
    open();
    post({ kind: 'started', loaded: null, rebuilt: null });
  } catch (error) {
    post({ kind: 'failed', name: error instanceof Error ? error.name : '', message: reasonOf(error) });
    port.close();
    return;
  }
  port.on('message', (message: readonly Ask[] | 'end') => {
    if (message !== 'end') return post({ kind: 'answers', answers: message.map(answer), news: null });
    db.close();
    port.close();
  });
}

if (parentPort) serve(parentPort, workerData);
