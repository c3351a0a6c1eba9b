import { type Db, MongoClient } from 'mongodb';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { createPresence, StoreAway, within } from './port.ts';

export interface MongoSettings {
  /** `mongodb://…/name` or `mongodb+srv://…/name`; the default database is `postern`. */
  readonly url: string;
  /** How long an operation may take before the store counts as unavailable. Milliseconds. */
  readonly timeoutMs: number;
  /** Maximum number of connections to a server; the URL's own `maxPoolSize` takes precedence. */
  readonly maxConnections?: number;
  /** How long an unused connection stays open; the URL's own `maxIdleTimeMS` takes precedence. Milliseconds. */
  readonly idleMs?: number;
}

export interface MongoDeps {
  readonly log: Log;
  readonly clock: Clock;
  /** Receives every command sent to the server, for tests. */
  readonly onCommand?: (name: string, command: Readonly<Record<string, unknown>>) => void;
}

/** Runs work on a connected server, with the database's deadline and logging. */
export type Run = <T>(work: (db: Db) => Promise<T>) => Promise<T>;

/** Creates a client that connects with the first operation, and reconnects for as long as the server is away. */
export function openClient(settings: MongoSettings, { log, clock, onCommand }: MongoDeps) {
  const presence = createPresence(log, 'mongo');
  let connection = connect(settings, onCommand);
  /** When the current unbroken series of failures began, on the monotonic clock. */
  let awaySince: number | undefined;
  let closed = false;

  const run: Run = async (work) => {
    if (closed) throw new StoreAway('the store is closed');
    try {
      const answer = await within(clock, settings.timeoutMs, connection.opened().then(work));
      presence.here();
      awaySince = undefined;
      return answer;
    } catch (error) {
      const reason = awayReason(error);
      if (reason === null) throw error;
      presence.away(reason);
      renewAfterWhile();
      throw new StoreAway(reason);
    }
  };

  /** Replaces a client that has found no server for a while: it may have stopped looking for one. */
  function renewAfterWhile(): void {
    const now = clock.monotonic();
    awaySince ??= now;
    if (closed || now - awaySince < RENEW_AFTER * settings.timeoutMs) return;
    awaySince = now;
    void connection.close(clock);
    connection = connect(settings, onCommand);
  }

  return {
    run,
    async close() {
      closed = true;
      await connection.close(clock);
    },
  };
}

/**
 * A client is replaced after this many timeouts without an answer. If the server closes all connections at once, the
 * driver may write its next heartbeat to a socket that is destroyed already, and waits forever for it to drain: it
 * never looks for the server again (mongodb 7.9, in a third of the cuts that were tried). An operation that waits like
 * this keeps its connection, too.
 */
const RENEW_AFTER = 3;

/** A client of the driver, which connects with the first operation. */
function connect(settings: MongoSettings, onCommand: MongoDeps['onCommand']) {
  const client = createClient(settings, onCommand);
  const db = client.db(databaseName(settings));
  let opening: Promise<Db> | undefined;
  return {
    opened: () =>
      (opening ??= client.connect().then(
        () => db,
        (error: unknown) => {
          opening = undefined; // the next operation tries again
          throw error;
        },
      )),
    close: (clock: Clock) => within(clock, CLOSE_MS, client.close()).catch(() => forceClose(client)),
  };
}

function createClient(
  { url, timeoutMs, maxConnections, idleMs }: MongoSettings,
  onCommand: MongoDeps['onCommand'],
): MongoClient {
  const named = (option: string) => new RegExp(`[?&]${option}=`, 'i').test(url);
  const client = new MongoClient(url, {
    appName: 'postern',
    monitorCommands: onCommand !== undefined,
    serverSelectionTimeoutMS: timeoutMs,
    connectTimeoutMS: timeoutMs,
    socketTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
    ...(maxConnections !== undefined && !named('maxPoolSize') && { maxPoolSize: maxConnections }),
    ...(idleMs !== undefined && !named('maxIdleTimeMS') && { maxIdleTimeMS: idleMs }),
  });
  if (onCommand) client.on('commandStarted', ({ commandName, command }) => onCommand(commandName, command));
  return client;
}

const CLOSE_MS = 1000;

/**
 * Closing sends a final command to the server, and if a connection ends at that moment the driver waits forever (seen
 * with mongodb 7.9). Its topology, which is not in its types, holds the sockets and timers.
 */
function forceClose(client: MongoClient): void {
  const topology: unknown = Reflect.get(client, 'topology');
  if (typeof topology === 'object' && topology !== null && 'close' in topology && typeof topology.close === 'function')
    topology.close();
}

/** The driver's own default is a database named `test`. */
function databaseName({ url }: MongoSettings): string | undefined {
  return /^mongodb(\+srv)?:\/\/[^/?]*\/[^?]/.test(url) ? undefined : 'postern';
}

/**
 * Transient server errors: stepping down, shutting down, time limits, no majority
 * (mongodb.com/docs/manual/reference/error-codes). And 1, InternalError: the answer of a server whose own backing
 * database is away.
 */
export const PASSING: ReadonlySet<number> = new Set([
  1, 6, 7, 50, 64, 79, 89, 91, 100, 133, 189, 202, 262, 9001, 10107, 11600, 11602, 13435, 13436, 14031,
]);
const PASSING_LABELS = ['RetryableWriteError', 'HandshakeError'];
export const DUPLICATE_KEY = 11000;

/** Errors for commands that the driver refuses to send: faults of ours. */
const UNSENDABLE = new Set([
  'MongoInvalidArgumentError',
  'MongoAPIError',
  'MongoParseError',
  'MongoCompatibilityError',
]);

/** Why the store is unavailable, or null if the error is a fault of ours. */
function awayReason(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  return error instanceof StoreAway || isPassing(error) ? error.message : null;
}

function isPassing(error: Error): boolean {
  if (error.name === 'MongoWriteConcernError') return true; // written, but possibly not durable
  // For several documents, the code is that of the server's error, if there was one.
  if (error.name === 'MongoServerError' || (error.name === 'MongoBulkWriteError' && codeOf(error) !== undefined))
    return PASSING.has(Number(codeOf(error))) || PASSING_LABELS.some((label) => labelsOf(error).includes(label));
  // Driver errors without a server response: no connection, no server to select, no free socket, closed.
  if (error.name.startsWith('Mongo')) return !UNSENDABLE.has(error.name);
  // A socket that closes at the wrong moment gives a Node error that the driver passes on (EPIPE, seen with mongodb
  // 7.9).
  return /^(E[A-Z]+|ERR_(SOCKET|STREAM|TLS|SSL)_\w+)$/.test(String(codeOf(error)));
}

/** Whether a unique index, or the id, was violated. */
export function isDuplicate(error: unknown): boolean {
  return error instanceof Error && error.name === 'MongoServerError' && codeOf(error) === DUPLICATE_KEY;
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined;
}

function labelsOf(error: Error): readonly unknown[] {
  return 'errorLabels' in error && Array.isArray(error.errorLabels) ? error.errorLabels : [];
}
