import { type Line, serveThread } from '../../base/worker.ts';
import { createCheckpoints } from './checkpoints.ts';
import { kindOf, reasonOf } from './faults.ts';
import { applyReplacement, type Folder, folderOf, isReplacementStaged, syncPath } from './folder.ts';
import { createOpenFile, type OpenFile } from './open-file.ts';
import { type Rebuilt, rebuild } from './rebuild.ts';
import { migrate, needsMigration, openFile } from './schema.ts';
import type { Ask, AskReply, QueueProtocol, ThreadData } from './thread.ts';

/** The maximum of body bytes in one transaction, to keep its sync short and its memory bounded. */
const COMMIT_BYTES = 32 * 1024 * 1024;

type Say = Line<QueueProtocol>['reply'];

/** Opens the queue file; the daemon also repairs the damage of a crash. */
function openQueue(
  folder: Folder,
  { role, now }: ThreadData,
): { readonly file: OpenFile; readonly rebuilt: Rebuilt | null } {
  if (isReplacementStaged(folder)) {
    if (role === 'visitor') throw new Error('the queue is being rebuilt: start the daemon, or wait until it is done');
    applyReplacement(folder);
  }
  let damaged: OpenFile['db'] | null = null;
  try {
    damaged = openFile(folder.file);
    if (needsMigration(damaged)) {
      // A daemon of the older version may be running, and would continue to write rows of the old format.
      if (role === 'visitor') throw new Error('the queue has an older format: start the daemon, which upgrades it');
      migrate(damaged);
    }
    syncPath(folder.dir);
    return { file: createOpenFile(damaged, role === 'daemon' ? now : undefined), rebuilt: null };
  } catch (error) {
    if (role === 'visitor' || kindOf(error) !== 'damaged') throw error;
    const rebuilt = rebuild(damaged, folder, now, true);
    close(damaged);
    applyReplacement(folder);
    return { file: createOpenFile(openFile(folder.file), now), rebuilt };
  }
}

/** Closes a handle and ignores errors. */
function close(db: OpenFile['db'] | null): void {
  try {
    db?.close();
  } catch {
    // Its last checkpoint failed as well, or it was closed before.
  }
}

/** The replies while the file is broken: new mail fails at once, the rest is repeated later. */
function refuse(asks: readonly Ask[], reason: string): AskReply[] {
  return asks.map(([n, name]) => [n, name === 'accept' ? 'fault' : 'again', reason]);
}

/** Writes to the open file until it cannot be trusted, then to its replacement. */
function createWriter(folder: Folder, opened: OpenFile, say: Say) {
  let file = opened;
  /** Set by the first failure: requests sent before the main thread learned of it must not touch the file. */
  let broken: string | null = null;
  let rebuilt: Rebuilt | null = null;

  const breakOff = (error: unknown) => {
    broken = reasonOf(error);
    say([], { broken: { reason: broken, damaged: kindOf(error) === 'damaged' } });
  };
  const checkpoints = createCheckpoints(folder.file);
  const renew = (now: number, aside: boolean) => {
    broken ??= 'it is being replaced';
    checkpoints.rest();
    if (file.db.isOpen) {
      rebuilt = rebuild(file.db, folder, now, aside);
      close(file.db);
    }
    if (isReplacementStaged(folder)) applyReplacement(folder);
    file = createOpenFile(openFile(folder.file), now);
    broken = null;
    return rebuilt;
  };

  return {
    commit(asks: readonly Ask[]) {
      if (broken !== null) return say(refuse(asks, broken));
      const began = performance.now();
      const { answers, news } = file.commit(asks);
      broken = news.broken?.reason ?? null;
      const messages = asks.reduce((sum, [, name]) => sum + Number(name === 'accept'), 0);
      const commit = { ms: performance.now() - began, writes: asks.length, messages };
      say(answers, { ...news, commit }, asks.flatMap(bodyOf));
      if (broken === null) {
        try {
          checkpoints.tend(file);
        } catch (error) {
          breakOff(error);
        }
      }
    },
    /** Checks whether another process changed the file. */
    poll(n: number) {
      const loaded = broken === null ? file.outside() : undefined;
      say([[n, 'done', null]], loaded && { loaded });
    },
    rebuild(n: number, now: number, aside: boolean) {
      const done = renew(now, aside);
      say([[n, 'done', done]], { loaded: file.loaded });
    },
    close() {
      checkpoints.rest();
      close(file.db);
      checkpoints.stop();
    },
  };
}

/** Processes requests in order: changes together, as many as fit in a transaction, others between them. */
function work(writer: ReturnType<typeof createWriter>, asks: readonly Ask[], say: Say): void {
  let batch: Ask[] = [];
  let bytes = 0;
  const flush = () => {
    if (batch.length > 0) writer.commit(batch);
    batch = [];
    bytes = 0;
  };
  for (const ask of asks) {
    const [n, name, [now, aside]] = ask;
    if (name !== 'poll' && name !== 'rebuild') {
      batch.push(ask);
      for (const { byteLength } of bodyOf(ask)) bytes += byteLength;
      if (bytes > COMMIT_BYTES) flush();
      continue;
    }
    flush();
    try {
      if (name === 'poll') writer.poll(n);
      else writer.rebuild(n, Number(now), aside === true);
    } catch (error) {
      say([[n, 'fault', reasonOf(error)]]);
    }
  }
  flush();
}

/** The memory of a body, which was transferred and goes back with the reply. */
function bodyOf([, name, [row]]: Ask): ArrayBuffer[] {
  if (name !== 'accept' || typeof row !== 'object' || row === null || !('bytes' in row)) return [];
  return row.bytes instanceof Uint8Array && row.bytes.buffer instanceof ArrayBuffer ? [row.bytes.buffer] : [];
}

// The only thread that writes: all requests waiting when a commit begins share it.
serveThread<QueueProtocol>((data, line) => {
  const folder = folderOf(data.dir);
  const { file, rebuilt } = openQueue(folder, data);
  const writer = createWriter(folder, file, line.reply);
  return {
    ready: { loaded: file.loaded, rebuilt },
    take: (asks) => work(writer, [...asks, ...line.arrived()], line.reply),
    end: writer.close,
  };
});
