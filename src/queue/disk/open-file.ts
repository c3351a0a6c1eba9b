import type { DatabaseSync } from 'node:sqlite';
import { frozen } from '../../base/frozen.ts';
import type { SqlRow } from '../../base/sqlite.ts';
import { callByName } from '../../base/worker.ts';
import { type Endpoint, endpointKey } from '../delivery.ts';
import { type Changes, createChanges } from './changes.ts';
import { type FailureKind, kindOf, reasonOf } from './faults.ts';
import { kindCode, kindOfCode, number, text, textOrNull } from './schema.ts';
import { createSequences } from './sequences.ts';
import type { Ask, AskReply, EndpointRow, News } from './thread.ts';

/** The result of one transaction. */
interface Committed {
  readonly answers: readonly AskReply[];
  readonly news: News;
}

/** The open queue file of the writer. */
export type OpenFile = ReturnType<typeof createOpenFile>;

/** Prepares an open queue file for writing; the daemon's `now` also mends its turns. Throws if it is damaged. */
export function createOpenFile(db: DatabaseSync, now?: number) {
  const { readVersion, readNext } = createCounters(db);
  const endpoints = createEndpoints(db);
  const sequences = createSequences(db);
  if (now !== undefined) sequences.mend(now);
  const loaded = endpoints.load();
  let seen = readVersion();
  let next = readNext();
  const changes = createChanges(db, { endpoints, sequences }, (count) => {
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

  /** Throws errors of SQLite; a `Misuse` names the one request that was wrong. */
  function attempt(asks: readonly Ask[]): Committed {
    db.exec('BEGIN IMMEDIATE');
    const first = next;
    let reloaded = false;
    try {
      reloaded = outside() !== undefined;
      const answers = asks.map((ask): AskReply => [ask[0], 'done', run(changes, ask)]);
      db.exec('COMMIT');
      const changed = { ...endpoints.commit(), due: sequences.commit() };
      return { answers, news: reloaded ? { loaded: endpoints.load() } : changed };
    } catch (error) {
      endpoints.rollback();
      sequences.rollback();
      next = first;
      if (reloaded) seen = -1; // the changes of another process were not reported yet
      rollback(db);
      throw error;
    }
  }

  return frozen({
    db,
    loaded,
    /** Writes all requests with one sync. Requests not answered `done` leave no changes. */
    commit: (asks: readonly Ask[]) => commit(asks, attempt),
    /** Reloads the endpoints if another process wrote, else returns undefined. */
    outside,
    ...createLogbook(db),
  });
}

/** Commits one transaction, without requests that are invalid in themselves. */
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
    // The first error counts.
  }
}

/** Reads the version of the file, which changes when another connection writes, and the next free key. */
function createCounters(db: DatabaseSync) {
  const version = db.prepare('PRAGMA data_version');
  const last = db.prepare(
    `SELECT max(key) AS last FROM (SELECT max(key) AS key FROM deliveries
      UNION ALL SELECT max(key) FROM messages UNION ALL SELECT max(key) FROM copied)`,
  );
  return {
    readVersion: () => Number(version.get()?.['data_version']),
    readNext: () => Number(last.get()?.['last'] ?? 0) + 1,
  };
}

/** The size of the write-ahead log, and its checkpoint. */
function createLogbook(db: DatabaseSync) {
  const look = db.prepare('PRAGMA wal_checkpoint(NOOP)');
  const move = db.prepare('PRAGMA wal_checkpoint(PASSIVE)');
  return {
    /** Pages in the log, and how many of them are not in the file yet. */
    log() {
      const row = look.get();
      const length = Number(row?.['log']);
      return { length, unmoved: length - Number(row?.['checkpointed']) };
    },
    /** Moves the log into the file. Throws if that cannot be synced. */
    checkpoint() {
      move.get();
    },
  };
}

/** One request is invalid in itself; the others are written without it. */
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
    return callByName(changes, ask);
  } catch (error) {
    throw kindOf(error) === 'misuse' ? new Misuse(ask, error) : error;
  }
}

/** New mail fails at once, so that its sender retries; all other requests are repeated later. */
function failed(asks: readonly Ask[], error: unknown): Committed {
  const kind = kindOf(error);
  const reason = reasonOf(error);
  const answers = asks.map(
    ([n, name]): AskReply =>
      name === 'accept' ? [n, kind === 'full' ? 'full' : 'fault', reason] : [n, 'again', reason],
  );
  return { answers, news: isBreak(kind) ? { broken: { reason, damaged: kind === 'damaged' } } : {} };
}

function isBreak(kind: FailureKind): boolean {
  return kind === 'io' || kind === 'damaged';
}

/** Every endpoint with its number of waiting deliveries. */
export type Loaded = readonly (EndpointRow & { readonly waiting: number })[];

/** The endpoints as seen by the writer, with the changes of the open transaction, which take effect with `commit`. */
export type Endpoints = ReturnType<typeof createEndpoints>;

const LOAD = `
SELECT e.key, e.account, e.url, e.kind, e.memory, coalesce(c.waiting, 0) AS waiting FROM endpoints e
LEFT JOIN (
  SELECT endpoint, count(*) AS waiting FROM deliveries INDEXED BY deliveries_due WHERE state = 0 GROUP BY endpoint) c
ON c.endpoint = e.key`;

/** Creates the endpoints on the writer's connection. */
function createEndpoints(db: DatabaseSync) {
  const insert = db.prepare(
    `INSERT INTO endpoints (account, url, kind) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET url = url RETURNING key, kind, memory`,
  );
  const remember = db.prepare('UPDATE endpoints SET memory = ? WHERE key = ?');
  const everything = db.prepare(LOAD);
  const names = createNames();
  let shifts = new Map<number, number>();
  let fresh = new Map<number, EndpointRow>();

  /** Returns the key of an endpoint; inserts a row for a new one. */
  function keyOf(given: Endpoint): number {
    const known = names.keyOf(given);
    if (known !== undefined) return known;
    const { account, url, kind } = given;
    const row = insert.get(account, url, kindCode(kind));
    if (!row) throw new Error('an endpoint could not be written');
    const endpoint = { key: number(row, 'key'), account, url, kind: kindOfCode(number(row, 'kind')) };
    names.add(endpoint.key, endpoint);
    fresh.set(endpoint.key, { ...endpoint, memory: textOrNull(row, 'memory') });
    return endpoint.key;
  }

  return frozen({
    keyOf,
    byKey: names.byKey,
    keep(endpoint: Endpoint, memory: string | null) {
      const key = keyOf(endpoint);
      remember.run(memory, key);
      const { account, url, kind } = names.byKey(key) ?? endpoint;
      fresh.set(key, { key, account, url, kind, memory });
    },
    /** Adds `more` to its number of waiting deliveries (may be negative). */
    shift: (key: number, more: number) => {
      shifts.set(key, (shifts.get(key) ?? 0) + more);
    },
    /** Returns and clears the changes since the last commit. */
    commit(): { readonly shifts: [number, number][]; readonly endpoints: EndpointRow[] } {
      const changed = { shifts: [...shifts], endpoints: [...fresh.values()] };
      shifts = new Map();
      fresh = new Map();
      return changed;
    },
    rollback() {
      // those that existed before are read again by keyOf
      for (const row of fresh.values()) names.remove(row);
      shifts = new Map();
      fresh = new Map();
    },
    /** Reloads everything: one query on the index of waiting deliveries. */
    load(): Loaded {
      const loaded = everything.all().map(toLoaded);
      names.clear();
      for (const { key, account, url, kind } of loaded) names.add(key, { account, url, kind });
      return loaded;
    },
  });
}

function createNames() {
  const keys = new Map<string, number>();
  const endpoints = new Map<number, Endpoint>();
  return {
    keyOf: (endpoint: Endpoint) => keys.get(endpointKey(endpoint)),
    byKey: (key: number) => endpoints.get(key),
    add(key: number, endpoint: Endpoint) {
      keys.set(endpointKey(endpoint), key);
      endpoints.set(key, endpoint);
    },
    remove(row: EndpointRow) {
      keys.delete(endpointKey(row));
      endpoints.delete(row.key);
    },
    clear() {
      keys.clear();
      endpoints.clear();
    },
  };
}

function toLoaded(row: SqlRow): Loaded[number] {
  return {
    key: number(row, 'key'),
    account: text(row, 'account'),
    url: text(row, 'url'),
    kind: kindOfCode(number(row, 'kind')),
    memory: textOrNull(row, 'memory'),
    waiting: number(row, 'waiting'),
  };
}
