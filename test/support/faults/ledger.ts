import { open } from 'node:fs/promises';

/** What was promised: every message that was answered 250, written down and synced before it counts. */
export interface Ledger {
  /** A message is about to be sent, and may arrive whatever comes of it. */
  sending(hash: string): void;
  /** It was answered 250 with this id. Resolves when the disk has that. */
  note(hash: string, id: string): Promise<void>;
  /** SHA-256 of each acknowledged message → the id that its 250 named. */
  readonly acknowledged: ReadonlyMap<string, string>;
  /** Whether a message with this SHA-256 was ever sent. */
  wasSent(hash: string): boolean;
  close(): Promise<void>;
}

/** Opens a ledger in a file of its own. Promises that are made while one sync runs share the next. */
export async function openLedger(path: string): Promise<Ledger> {
  const file = await open(path, 'a');
  const acknowledged = new Map<string, string>();
  const sent = new Set<string>();
  let waiting: { hash: string; id: string; done: () => void }[] = [];
  let writing: Promise<void> | undefined;

  async function write(): Promise<void> {
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      await file.write(batch.map(({ hash, id }) => `${hash} ${id}\n`).join(''));
      await file.datasync();
      for (const { hash, id, done } of batch) {
        acknowledged.set(hash, id);
        done();
      }
    }
    writing = undefined;
  }

  return {
    acknowledged,
    sending: (hash) => {
      sent.add(hash);
    },
    wasSent: (hash) => sent.has(hash),
    note: (hash, id) =>
      new Promise<void>((resolve, reject) => {
        waiting.push({ hash, id, done: resolve });
        writing ??= write();
        writing.catch(reject);
      }),
    async close() {
      await writing;
      await file.close();
    },
  };
}
