import type { DatabaseSync } from 'node:sqlite';
import { type FailureKind, kindOf, reasonOf } from '../faults.ts';
import { type Answer, type Ask, call, type News } from '../protocol.ts';
import { type Changes, createChanges } from './changes.ts';
import { createEndpoints, type Loaded } from './endpoints.ts';

/** What came of one transaction. */
export interface Committed {
  readonly answers: readonly Answer[];
  readonly news: News;
}

/** The queue file as the writer has it open. */
export interface OpenFile {
  readonly db: DatabaseSync;
  readonly loaded: Loaded;
  /** Writes all of them with one sync. Nothing of what is not answered `done` is kept. */
  commit(asks: readonly Ask[]): Committed;
  /** Everything anew when another process wrote, else undefined. */
  outside(): Loaded | undefined;
  /** Pages in the log, and how many of them are not in the file yet. */
  log(): { readonly length: number; readonly unmoved: number };
  /** Moves what the log holds into the file. Throws when that cannot be synced. */
  checkpoint(): void;
}

/** Prepares an open queue file for writing. Throws when it is damaged. */
export function createOpenFile(db: DatabaseSync): OpenFile {
  const { readVersion, readNext } = createCounters(db);
  const endpoints = createEndpoints(db);
  const loaded = endpoints.load();
  let seen = readVersion();
  let next = readNext();
  const changes = createChanges(db, endpoints, (count) => {
    const first = next;
    next += count;
    return first;
  });

  const outside = () => {
    const now = readVersion();
    if (now === seen) return undefined;
    seen = now;
    next = readNext();
    return endpoints.load();
  };

  /** Throws what SQLite throws; a `Misuse` names the one ask that was wrong. */
  function attempt(asks: readonly Ask[]): Committed {
    db.exec('BEGIN IMMEDIATE');
    const first = next;
    let reloaded = false;
    try {
      reloaded = outside() !== undefined;
      const answers = asks.map((ask): Answer => [ask[0], 'done', run(changes, ask)]);
      db.exec('COMMIT');
      const changed = endpoints.commit();
      return { answers, news: reloaded ? { loaded: endpoints.load() } : changed };
    } catch (error) {
      endpoints.rollback();
      next = first;
      if (reloaded) seen = -1; // nobody was told yet of what another process wrote
      rollback(db);
      throw error;
    }
  }

  return Object.freeze({
    db,
    loaded,
    commit: (asks: readonly Ask[]) => commit(asks, attempt),
    outside,
    ...createLogbook(db),
  });
}

/** One transaction, without those asks that are wrong in themselves. */
function commit(asks: readonly Ask[], attempt: (asks: readonly Ask[]) => Committed): Committed {
  try {
    return attempt(asks);
  } catch (error) {
    if (!(error instanceof Misuse)) return failed(asks, error);
    const rest = commit(
      asks.filter((ask) => ask !== error.ask),
      attempt,
    );
    return { answers: [...rest.answers, [error.ask[0], 'fault', error.message]], news: rest.news };
  }
}

function rollback(db: DatabaseSync): void {
  try {
    if (db.isTransaction) db.exec('ROLLBACK');
  } catch {
    // What went wrong before is what counts.
  }
}

/** The version of the file, which changes when another connection writes, and the next free number. */
function createCounters(db: DatabaseSync) {
  const version = db.prepare('PRAGMA data_version');
  const last = db.prepare(
    'SELECT max(key) AS last FROM (SELECT max(key) AS key FROM deliveries UNION ALL SELECT max(key) FROM messages)',
  );
  return {
    readVersion: () => Number(version.get()?.['data_version']),
    readNext: () => Number(last.get()?.['last'] ?? 0) + 1,
  };
}

/** The write-ahead log from the outside. */
function createLogbook(db: DatabaseSync): Pick<OpenFile, 'log' | 'checkpoint'> {
  const look = db.prepare('PRAGMA wal_checkpoint(NOOP)');
  const move = db.prepare('PRAGMA wal_checkpoint(PASSIVE)');
  return {
    log() {
      const row = look.get();
      const length = Number(row?.['log']);
      return { length, unmoved: length - Number(row?.['checkpointed']) };
    },
    checkpoint() {
      move.get();
    },
  };
}

/** One write was wrong in itself, so that the others are done without it. */
class Misuse extends Error {
  override readonly name = 'Misuse';
  readonly ask: Ask;

  constructor(ask: Ask, cause: unknown) {
    super(reasonOf(cause), { cause });
    this.ask = ask;
  }
}

function run(changes: Changes, ask: Ask): unknown {
  try {
    return call(changes, ask);
  } catch (error) {
    throw kindOf(error) === 'misuse' ? new Misuse(ask, error) : error;
  }
}

/** New mail is told at once, so that its sender tries again; everything else is done later. */
function failed(asks: readonly Ask[], error: unknown): Committed {
  const kind = kindOf(error);
  const reason = reasonOf(error);
  const answers = asks.map(
    ([n, name]): Answer => (name === 'accept' ? [n, kind === 'full' ? 'full' : 'fault', reason] : [n, 'again', reason]),
  );
  return { answers, news: isBreak(kind) ? { broken: { reason, damaged: kind === 'damaged' } } : {} };
}

function isBreak(kind: FailureKind): boolean {
  return kind === 'io' || kind === 'damaged';
}
