import { DELIVERY_KINDS, type DeliveryKind, routeOfTarget } from '../queue/delivery.ts';
import type { SqlRow } from '../queue/disk/schema.ts';
import { END_NAMES } from '../queue/states.ts';
import {
  type ActionRecord,
  type FailureCause,
  MAIL_STATES,
  type MailRecord,
  type MailState,
  type RefusalRecord,
  type SessionRecord,
  type StoryEntry,
} from './types.ts';

// Converts rows of the journal's file to their records.

export function mailOfRow(row: SqlRow): MailRecord {
  return {
    n: Number(row['n']),
    id: String(row['id']),
    at: Number(row['at']),
    session: text(row, 'session'),
    transaction: number(row, 'transaction_n'),
    kind: toKind(row['kind']),
    account: String(row['account']),
    sender: text(row, 'sender'),
    recipient: String(row['recipient']),
    from: text(row, 'header_from'),
    subject: text(row, 'subject'),
    headerId: text(row, 'header_id'),
    thread: text(row, 'thread'),
    route: routeOfTarget(String(row['route'])),
    pattern: String(row['pattern']),
    url: String(row['url']),
    size: Number(row['size']),
    client: text(row, 'client'),
    helo: text(row, 'helo'),
    tls: text(row, 'tls'),
    spf: text(row, 'spf'),
    dkim: text(row, 'dkim'),
    dmarc: text(row, 'dmarc'),
    state: toState(row['state']),
    attempts: Number(row['attempts']),
    lastStatus: number(row, 'last_status'),
    lastError: text(row, 'last_error'),
    endedAt: number(row, 'ended_at'),
    story: toStory(row['story']),
  };
}

export function toCause(row: SqlRow): FailureCause {
  return {
    url: String(row['url']),
    lastStatus: number(row, 'last_status'),
    lastError: text(row, 'last_error'),
    count: 1,
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

export function toRefusal(row: SqlRow): RefusalRecord {
  return {
    n: Number(row['n']),
    at: Number(row['at']),
    session: text(row, 'session'),
    transaction: number(row, 'transaction_n'),
    listener: String(row['listener']),
    stage: String(row['stage']),
    reply: String(row['reply']),
    reason: String(row['reason']),
    client: String(row['client']),
    helo: text(row, 'helo'),
    tls: text(row, 'tls'),
    sender: text(row, 'sender'),
    recipient: text(row, 'recipient'),
    account: text(row, 'account'),
    times: Number(row['times']),
  };
}

export function toSession(row: SqlRow): SessionRecord {
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

export function actionOfRow(row: SqlRow): ActionRecord {
  return {
    n: Number(row['n']),
    at: Number(row['at']),
    by: String(row['by']),
    account: String(row['account']),
    what: String(row['what']),
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
