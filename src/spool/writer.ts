import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import { kindOf, reasonOf } from './faults.ts';
import { adopt, folderOf, isAppointed, syncPath, type Folder } from './folder.ts';
import { createOpenFile, type OpenFile } from './open-file.ts';
import type { Answer, Ask, News, Post, ThreadData } from './protocol.ts';
import { rebuild, type Rebuilt } from './rebuild.ts';
import { openFile } from './schema.ts';

/** Bytes in the log after which they are moved into the file: often enough to keep each move short. Measured. */
const CHECKPOINT_BYTES = 8 * 1024 * 1024;
/** Bodies in one transaction at most, so that its sync stays short and its memory bounded. */
const COMMIT_BYTES = 32 * 1024 * 1024;
/** What a change writes beside a body, about. */
const CHANGE_BYTES = 2048;

interface Opened {
  readonly file: OpenFile;
  readonly rebuilt: Rebuilt | null;
}

/** Opens the queue file; the daemon makes good what the last one left behind. */
function openQueue(folder: Folder, { role, now }: ThreadData): Opened {
  if (isAppointed(folder)) {
    if (role === 'visitor') throw new Error('the queue is being rebuilt; start the daemon, or wait until it is done');
    adopt(folder);
  }
  let damaged: OpenFile['db'] | null = null;
  try {
    damaged = openFile(folder.file);
    syncPath(folder.dir);
    return { file: createOpenFile(damaged), rebuilt: null };
  } catch (error) {
    if (role === 'visitor' || kindOf(error) !== 'damaged') throw error;
    const rebuilt = rebuild(damaged, folder, now, true);
    close(damaged);
    adopt(folder);
    return { file: createOpenFile(openFile(folder.file)), rebuilt };
  }
}

/** A handle that is given up: what it says no longer matters. */
function close(db: OpenFile['db'] | null): void {
  try {
    db?.close();
  } catch {
    // Its last checkpoint failed as well.
  }
}

/** The one thread that writes: everything that waits when a commit begins shares it. */
function serve(port: MessagePort, data: ThreadData): void {
  const folder = folderOf(data.dir);
  const post = (message: Post) => port.postMessage(message);
  let file: OpenFile;
  let unmoved = 0;

  const answer = (answers: readonly Answer[], news: News | null) => post({ kind: 'answers', answers, news });

  const commit = (asks: readonly Ask[]) => {
    if (asks.length === 0) return;
    const { answers, news } = file.commit(asks);
    answer(answers, news);
    unmoved += asks.reduce((sum, ask) => sum + CHANGE_BYTES + bodyBytes(ask), 0);
    if (unmoved > CHECKPOINT_BYTES && !news.broken) checkpoint();
  };

  const checkpoint = () => {
    unmoved = 0;
    try {
      file.checkpoint();
    } catch (error) {
      if (kindOf(error) !== 'busy' && kindOf(error) !== 'full') answer([], { broken: { reason: reasonOf(error), damaged: kindOf(error) === 'damaged' } });
    }
  };

  const poll = () => {
    const loaded = file.outside();
    return loaded ? { loaded } : null;
  };

  const renew = (now: number, aside: boolean): Rebuilt => {
    const rebuilt = rebuild(file.db, folder, now, aside);
    close(file.db);
    adopt(folder);
    file = createOpenFile(openFile(folder.file));
    return rebuilt;
  };

  const duty = ([n, name, [now, aside]]: Ask) => {
    try {
      if (name === 'poll') return answer([[n, 'done', null]], poll());
      const rebuilt = renew(Number(now), aside === true);
      answer([[n, 'done', rebuilt]], { loaded: file.loaded });
    } catch (error) {
      answer([[n, 'fault', reasonOf(error)]], null);
    }
  };

  const work = (asks: readonly Ask[]) => {
    let batch: Ask[] = [];
    let bytes = 0;
    const flush = () => {
      commit(batch);
      batch = [];
      bytes = 0;
    };
    for (const ask of asks) {
      if (ask[1] === 'poll' || ask[1] === 'rebuild') {
        flush();
        duty(ask);
        continue;
      }
      batch.push(ask);
      bytes += bodyBytes(ask);
      if (bytes > COMMIT_BYTES) flush();
    }
    flush();
  };

  try {
    const opened = openQueue(folder, data);
    file = opened.file;
    post({ kind: 'started', loaded: file.loaded, rebuilt: opened.rebuilt });
  } catch (error) {
    post({ kind: 'failed', name: error instanceof Error ? error.name : '', message: reasonOf(error) });
    port.close();
    return;
  }
  port.on('message', (first: readonly Ask[] | 'end') => {
    const asks: Ask[] = [];
    let end = false;
    for (let message: readonly Ask[] | 'end' | undefined = first; message !== undefined; message = receiveMessageOnPort(port)?.message) {
      if (message === 'end') end = true;
      else asks.push(...message);
    }
    work(asks);
    if (end) {
      close(file.db);
      port.close();
    }
  });
}

function bodyBytes([, name, [row]]: Ask): number {
  if (name !== 'accept' || typeof row !== 'object' || row === null || !('bytes' in row)) return 0;
  return row.bytes instanceof Uint8Array ? row.bytes.byteLength : 0;
}

if (parentPort) serve(parentPort, workerData);
