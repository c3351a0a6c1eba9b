import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { type DiskSpaceSettings, minFreeBytesOf } from '../base/disk-space.ts';
import { errorText } from '../base/errors.ts';
import { callByName, type Protocol, serveThread, type ThreadCall, type ThreadReply } from '../base/worker.ts';
import { type Batch, createJournalChanges } from './changes.ts';
import { begin, forgetAside, isUnusable, openJournalFile } from './file.ts';
import { createJournalQueries } from './queries.ts';

// The thread that owns the file of the journal. Writes and queries take turns; nobody waits for a write.

/** The outcome of a call. replaced: the file was unusable or gone, and there is a new one. */
type AnswerKind = 'done' | 'failed' | 'replaced';

/** The protocol of the journal's thread. */
export interface JournalProtocol extends Protocol {
  readonly data: { readonly file: string; readonly room: DiskSpaceSettings };
  readonly call: ThreadCall;
  readonly kind: AnswerKind;
  /** Why the previous file was replaced; null if it was not. */
  readonly ready: string | null;
  readonly news: undefined;
}

serveThread<JournalProtocol>(({ file, room }, line) => {
  let db: DatabaseSync;
  let table: object;
  let inode: number | undefined;

  function use(opened: DatabaseSync): void {
    db = opened;
    inode = inodeOf(file);
    const changes = createJournalChanges(db);
    table = {
      ...createJournalQueries(db),
      ...changes,
      write(batch: Batch) {
        if (!hasRoom(file, room)) throw new Error('the disk is nearly full');
        changes.write(batch);
      },
      forgetAside: (before: number) => forgetAside(file, before),
    };
  }

  function answer(call: ThreadCall): ThreadReply<AnswerKind> {
    const [n] = call;
    try {
      if (inodeOf(file) !== inode) return [n, 'replaced', replace('it was deleted')];
      return [n, 'done', callByName(table, call)];
    } catch (error) {
      const reason = errorText(error);
      return isUnusable(error) ? [n, 'replaced', replace(reason)] : [n, 'failed', reason];
    }
  }

  /** A failure here ends the thread; the next one opens the file again. */
  function replace(reason: string): string {
    db.close();
    use(begin(file));
    return reason;
  }

  const { db: opened, replaced = null } = openJournalFile(file);
  use(opened);
  return {
    ready: replaced,
    take: (calls) => line.reply(calls.map(answer)),
    end: () => db.close(),
  };
});

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}

/** The journal may use half of the space that the queue leaves free, so that it can record why mail is refused. */
function hasRoom(file: string, room: DiskSpaceSettings): boolean {
  const { blocks, bavail, bsize } = statfsSync(dirname(file));
  return bavail * bsize >= minFreeBytesOf(room, blocks * bsize) / 2;
}
