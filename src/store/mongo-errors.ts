import { StoreAway } from './collection.ts';

/** Server errors that come and go: stepping down, shutting down, out of time, no majority (mongodb.com/docs/manual/reference/error-codes). */
const PASSING = new Set([
  6, 7, 50, 64, 79, 89, 91, 100, 133, 189, 202, 262, 9001, 10107, 11600, 11602, 13435, 13436, 14031,
]);
const PASSING_LABELS = ['RetryableWriteError', 'HandshakeError'];
const DUPLICATE_KEY = 11000;

/** What the driver refuses to send is a fault of ours. */
const UNSENDABLE = new Set([
  'MongoInvalidArgumentError',
  'MongoAPIError',
  'MongoParseError',
  'MongoCompatibilityError',
]);

/** Why the store is away, or null when the error is not of that kind but a fault of ours. */
export function awayReason(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  return error instanceof StoreAway || isPassing(error) ? error.message : null;
}

function isPassing(error: Error): boolean {
  if (error.name === 'MongoWriteConcernError') return true; // written, but not known to be durable
  if (error.name === 'MongoServerError')
    return PASSING.has(Number(codeOf(error))) || PASSING_LABELS.some((label) => labelsOf(error).includes(label));
  // What the driver throws without an answer of the server: no connection, no server to choose, no free socket, closed.
  if (error.name.startsWith('Mongo')) return !UNSENDABLE.has(error.name);
  // A socket that ends at the wrong moment gives an error of Node that the driver lets through (EPIPE, seen with mongodb 7.9).
  return /^(E[A-Z]+|ERR_(SOCKET|STREAM|TLS|SSL)_\w+)$/.test(String(codeOf(error)));
}

/** Whether a unique index, or the id, said no. */
export function isDuplicate(error: unknown): boolean {
  return error instanceof Error && error.name === 'MongoServerError' && codeOf(error) === DUPLICATE_KEY;
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined;
}

function labelsOf(error: Error): readonly unknown[] {
  return 'errorLabels' in error && Array.isArray(error.errorLabels) ? error.errorLabels : [];
}
