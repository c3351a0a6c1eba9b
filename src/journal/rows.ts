import type { SqlRow } from '../base/sqlite.ts';
import { DELIVERY_KINDS, type DeliveryKind, routeOfTarget } from '../queue/delivery.ts';
import { END_NAMES } from '../queue/states.ts';
import { type FailureCause, MAIL_STATES, type MailState, type StoryEntry } from './types.ts';

// The records of the history, and how they are read from the rows of the journal's file.

/** One message for one recipient: a delivery, kept after the queue has deleted it. */
export function mailOfRow(row: SqlRow) {
  return {
    /** Grows with each row; a cursor. */
    n: Number(row['n']),
    /** The id of the delivery. */
    id: String(row['id']),
    /** When it was accepted. */
    at: Number(row['at']),
    /** The SMTP session it arrived in; null if it did not, or is not known. */
    session: text(row, 'session'),
    /** The number of its transaction in the session, from 1; null if unknown. */
    transaction: number(row, 'transaction_n'),
    kind: toKind(row['kind']),
    account: String(row['account']),
    /** The reverse-path; empty for the null sender, null if not known. */
    sender: text(row, 'sender'),
    recipient: String(row['recipient']),
    // From, Subject and Message-ID; null if they are not kept. A message without a subject has an empty one.
    from: text(row, 'header_from'),
    subject: text(row, 'subject'),
    headerId: text(row, 'header_id'),
    /** Its conversation (mail/replies/thread.ts); null if it names none, or it is not kept. */
    thread: text(row, 'thread'),
    route: routeOfTarget(String(row['route'])),
    pattern: String(row['pattern']),
    url: String(row['url']),
    size: Number(row['size']),
    /** Address, HELO name and TLS version of the client. */
    client: text(row, 'client'),
    helo: text(row, 'helo'),
    tls: text(row, 'tls'),
    spf: text(row, 'spf'),
    dkim: text(row, 'dkim'),
    dmarc: text(row, 'dmarc'),
    state: toState(row['state']),
    /** All attempts, replays included. */
    attempts: Number(row['attempts']),
    lastStatus: number(row, 'last_status'),
    lastError: text(row, 'last_error'),
    endedAt: number(row, 'ended_at'),
    /** The events after it was accepted, oldest first. */
    story: toStory(row['story']),
  };
}

/** Deliveries to one endpoint with the same last answer; here those of one row. */
export function causeOfRow(row: SqlRow) {
  return {
    url: String(row['url']),
    lastStatus: number(row, 'last_status'),
    lastError: text(row, 'last_error'),
    count: 1,
    /** When the oldest of them was accepted, and when the first of them ended; null if none has. */
    oldestAt: Number(row['at']),
    firstEnded: number(row, 'ended_at'),
  };
}

/** Adds up causes of the same endpoint and last answer, the most frequent first. */
export function mergeCauses(causes: Iterable<FailureCause>): readonly FailureCause[] {
  const found = new Map<string, FailureCause>();
  for (const one of causes) {
    const key = JSON.stringify([one.url, one.lastStatus, one.lastError]);
    const known = found.get(key);
    found.set(key, known ? sum(known, one) : one);
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}

function sum(a: FailureCause, b: FailureCause): FailureCause {
  return {
    ...a,
    count: a.count + b.count,
    oldestAt: Math.min(a.oldestAt, b.oldestAt),
    firstEnded: earliest(a.firstEnded, b.firstEnded),
  };
}

function earliest(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.min(a, b);
}

/** A refused command or session. */
export function refusalOfRow(row: SqlRow) {
  return {
    n: Number(row['n']),
    at: Number(row['at']),
    session: text(row, 'session'),
    /** The number of its transaction in the session, from 1; null if none or unknown. */
    transaction: number(row, 'transaction_n'),
    listener: String(row['listener']),
    /** The refused command, such as RCPT; CONNECT for a rejected connection. */
    stage: String(row['stage']),
    reply: String(row['reply']),
    /** Its name in smtp/replies.ts. */
    reason: String(row['reason']),
    client: String(row['client']),
    helo: text(row, 'helo'),
    tls: text(row, 'tls'),
    sender: text(row, 'sender'),
    recipient: text(row, 'recipient'),
    /** The account whose mail was refused; null if there is none. */
    account: text(row, 'account'),
    /** Number of refusals: more than one if a network was refused very often within a minute. */
    times: Number(row['times']),
  };
}

/** One SMTP session. */
export function sessionOfRow(row: SqlRow) {
  return {
    id: String(row['id']),
    at: Number(row['at']),
    listener: String(row['listener']),
    client: String(row['client']),
    helo: text(row, 'helo'),
    tls: text(row, 'tls'),
    messages: Number(row['messages']),
    recipients: Number(row['recipients']),
    refusals: Number(row['refusals']),
    reason: String(row['reason']),
    durationMs: Number(row['duration']),
  };
}

/** An action of a person. */
export function actionOfRow(row: SqlRow) {
  return {
    n: Number(row['n']),
    at: Number(row['at']),
    /** The actor: the start of an API key, a person at the console, or `command line`. */
    by: String(row['by']),
    account: String(row['account']),
    /** The name of the action, such as `replayed`. */
    what: String(row['what']),
    /** The number of affected items. */
    count: Number(row['count']),
    detail: String(row['detail']),
  };
}

export const toKind = (value: unknown): DeliveryKind => DELIVERY_KINDS.find((kind) => kind === value) ?? 'inbound';

export const UNDELIVERED: readonly MailState[] = MAIL_STATES.filter((state) => state !== 'delivered');

export const toState = (value: unknown): MailState => MAIL_STATES.find((state) => state === value) ?? 'unknown';

/** The story, as written by this program; the file may still be damaged. */
function toStory(value: unknown): readonly StoryEntry[] {
  try {
    const read: unknown = JSON.parse(String(value));
    return Array.isArray(read) ? read.flatMap(toEntry) : [];
  } catch {
    return [];
  }
}

const ENDS = [...END_NAMES, 'discarded', 'replayed'] as const;

function toEntry(value: unknown): StoryEntry[] {
  if (!Array.isArray(value)) return [];
  const [what, at, ms, status, error, answer]: unknown[] = value;
  const end = ENDS.find((name) => name === what);
  if (end) return [{ what: end, at: Number(at) }];
  return [
    {
      what: 'attempt',
      at: Number(at),
      ms: Number(ms),
      status: typeof status === 'number' ? status : null,
      error: typeof error === 'string' ? error : null,
      answer: String(answer ?? ''),
    },
  ];
}

function text(row: SqlRow, column: string): string | null {
  const value = row[column] ?? null;
  return value === null ? null : String(value);
}

function number(row: SqlRow, column: string): number | null {
  const value = row[column] ?? null;
  return value === null ? null : Number(value);
}
