import type { DatabaseSync, SQLInputValue, SQLOutputValue } from 'node:sqlite';
import { DELIVERY_KINDS, type DeliveryKind } from '../queue/delivery.ts';
import type {
  Action,
  Mail,
  MailFilter,
  MailState,
  MailStory,
  Refusal,
  RefusalFilter,
  Session,
  StoryEntry,
} from './types.ts';

// What the journal is asked. Long scans come in windows of row numbers, so that none takes long and writes get their turn.

type SqlRow = Record<string, SQLOutputValue>;

/** A condition with its values. */
interface Condition {
  readonly sql: string;
  readonly values: readonly SQLInputValue[];
}

const MAX_REFUSALS_SHOWN = 100;

/** The questions that a journal file answers, over one connection. */
export function createQueries(db: DatabaseSync) {
  const bounds = (table: string) => {
    const found = db.prepare(`SELECT min(n) AS first, max(n) AS last FROM ${table}`);
    return (): [first: number, last: number] => {
      const { first = null, last = null } = found.get() ?? {};
      return [Number(first ?? 0), Number(last ?? -1)];
    };
  };
  const indexed = db.prepare(`SELECT value FROM meta WHERE name = 'indexed'`);
  const one = db.prepare('SELECT * FROM mail WHERE id = ?');
  const session = db.prepare('SELECT * FROM sessions WHERE id = ?');
  const refusalsOf = db.prepare(`SELECT * FROM refusals WHERE session = ? ORDER BY n LIMIT ${MAX_REFUSALS_SHOWN}`);
  const waiting = db.prepare(
    `SELECT n, id FROM mail INDEXED BY mail_waiting WHERE state = 'waiting' AND n > ? ORDER BY n LIMIT ?`,
  );
  const stateOf = db.prepare('SELECT state FROM mail WHERE id = ?');

  const rowsOf = (table: string, { sql, values }: Condition, [from, to]: Window, limit: number): SqlRow[] =>
    db
      .prepare(`SELECT * FROM ${table} WHERE n BETWEEN ? AND ? AND ${sql} ORDER BY n DESC LIMIT ?`)
      .all(from, to, ...values, limit);

  return {
    mailBounds: bounds('mail'),
    refusalBounds: bounds('refusals'),
    actionBounds: bounds('actions'),
    /** Matching mail in a window, newest first. */
    mail: (filter: MailFilter, window: Window, limit: number): Mail[] =>
      rowsOf('mail', toMailCondition(filter, Number(indexed.get()?.['value'] ?? 0)), window, limit).map(toMail),
    /** The ids of matching mail in a window, newest first. */
    ids(filter: MailFilter, [from, to]: Window): string[] {
      const { sql, values } = toMailCondition(filter, Number(indexed.get()?.['value'] ?? 0));
      return db
        .prepare(`SELECT id FROM mail WHERE n BETWEEN ? AND ? AND ${sql} ORDER BY n DESC`)
        .all(from, to, ...values)
        .map((row) => String(row['id']));
    },
    one(id: string): MailStory | undefined {
      const row = one.get(id);
      if (!row) return undefined;
      const mail = toMail(row);
      const found = mail.session === null ? undefined : session.get(mail.session);
      const refusals = mail.session === null ? [] : refusalsOf.all(mail.session).map(toRefusal);
      return { mail, session: found && toSession(found), refusals };
    },
    /** Those of these deliveries that are known, without their stories. */
    each: (ids: readonly string[]): Mail[] =>
      ids.flatMap((id) => {
        const row = one.get(id);
        return row ? [{ ...toMail(row), story: [] }] : [];
      }),
    refusals: (filter: RefusalFilter, window: Window, limit: number): Refusal[] =>
      rowsOf('refusals', toRefusalCondition(filter), window, limit).map(toRefusal),
    reasons(filter: RefusalFilter, [from, to]: Window): [reason: string, count: number][] {
      const { sql, values } = toRefusalCondition(filter);
      return db
        .prepare(`SELECT reason, sum(times) AS count FROM refusals WHERE n BETWEEN ? AND ? AND ${sql} GROUP BY reason`)
        .all(from, to, ...values)
        .map((row) => [String(row['reason']), Number(row['count'])]);
    },
    actions: (account: string | undefined, window: Window, limit: number): Action[] =>
      rowsOf(
        'actions',
        all(account === undefined ? [] : [{ sql: 'account = ?', values: [account] }]),
        window,
        limit,
      ).map(toAction),
    /** Rows that say they wait, after row `n`. */
    waiting: (n: number, limit: number): [n: number, id: string][] =>
      waiting.all(n, limit).map((row) => [Number(row['n']), String(row['id'])]),
    /** What the journal says of each: null where it does not know it. */
    states: (ids: readonly string[]): (string | null)[] => ids.map((id) => text(stateOf.get(id) ?? {}, 'state')),
  };
}

export type Queries = ReturnType<typeof createQueries>;

/** The first and last row number of a scan. */
export type Window = readonly [from: number, to: number];

function toMailCondition(filter: MailFilter, indexed: number): Condition {
  const { account, kinds, words, from, to, subject, client, route, url, states, status, unanswered, ids } = filter;
  const conditions: Condition[] = [
    ...(account === undefined ? [] : [{ sql: 'account = ?', values: [account] }]),
    ...among('kind', kinds),
    ...containing(EVERYWHERE, words, indexed),
    ...containing(['sender', 'header_from'], from, indexed),
    ...containing(['recipient'], to, indexed),
    ...containing(['subject'], subject, indexed),
    ...(client ?? []).map((text) => like(['client', 'helo'], text)),
    ...(route === undefined ? [] : [{ sql: '(route = ? OR pattern = ?)', values: [route, route] }]),
    ...(url === undefined ? [] : [{ sql: 'url = ?', values: [url] }]),
    ...among('state', states),
    ...(status === undefined ? [] : [{ sql: 'last_status BETWEEN ? AND ?', values: [status.from, status.to] }]),
    ...(unanswered ? [{ sql: 'last_error IS NOT NULL', values: [] }] : []),
    ...(ids === undefined ? [] : [anyId(ids)]),
    ...between('at', filter),
  ];
  return all(conditions);
}

function toRefusalCondition(filter: RefusalFilter): Condition {
  const { account, words, from, to, client, reason, domain, ...times } = filter;
  return all([
    ...(account === undefined ? [] : [{ sql: 'account = ?', values: [account] }]),
    ...(words ?? []).map((text) => like(['sender', 'recipient', 'client', 'helo'], text)),
    ...(from ?? []).map((text) => like(['sender'], text)),
    ...(to ?? []).map((text) => like(['recipient'], text)),
    ...(client ?? []).map((text) => like(['client', 'helo'], text)),
    ...(reason === undefined ? [] : [{ sql: 'reason = ?', values: [reason] }]),
    ...(domain === undefined ? [] : [{ sql: `recipient LIKE ? ESCAPE '\\'`, values: [`%@${escaped(domain)}`] }]),
    ...between('at', times),
  ]);
}

const EVERYWHERE = ['sender', 'header_from', 'recipient', 'subject', 'header_id'];

/** Shorter texts have no three characters to look up. */
const SHORTEST_INDEXED = 3;

/** Each text in one of the columns: by the index of words where rows are in it, else by looking at the rows. */
function containing(columns: readonly string[], texts: readonly string[] = [], indexed: number): Condition[] {
  return texts.map((text) => {
    const slow = like(columns, text);
    if ([...text].length < SHORTEST_INDEXED) return slow;
    const match = `{${columns.join(' ')}} : "${text.replaceAll('"', '""')}"`;
    return {
      sql: `(n > ? AND ${slow.sql} OR n <= ? AND n IN (SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ?1 AND ?2))`,
      values: [indexed, ...slow.values, indexed, match],
    };
  });
}

function like(columns: readonly string[], text: string): Condition {
  return {
    sql: `(${columns.map((column) => `${column} LIKE ? ESCAPE '\\'`).join(' OR ')})`,
    values: columns.map(() => `%${escaped(text)}%`),
  };
}

const escaped = (text: string): string => text.replace(/[\\%_]/g, '\\$&');

function among(column: string, values: readonly string[] | undefined): Condition[] {
  if (values === undefined) return [];
  return [{ sql: `${column} IN (${values.map(() => '?').join(', ')})`, values }];
}

/** Delivery ids, or message ids, which those of their deliveries begin with. */
function anyId(ids: readonly string[]): Condition {
  return {
    sql: `(${['0', ...ids.map(() => `id = ? OR (id > ? AND id < ?)`)].join(' OR ')})`,
    values: ids.flatMap((id) => [id, `${id}-`, `${id}.`]),
  };
}

function between(column: string, { since, before }: { since?: number | undefined; before?: number | undefined }) {
  return [
    ...(since === undefined ? [] : [{ sql: `${column} >= ?`, values: [since] }]),
    ...(before === undefined ? [] : [{ sql: `${column} < ?`, values: [before] }]),
  ];
}

const all = (conditions: readonly Condition[]): Condition => ({
  sql: ['1', ...conditions.map(({ sql }) => sql)].join(' AND '),
  values: conditions.flatMap(({ values }) => values),
});

function toMail(row: SqlRow): Mail {
  return {
    n: Number(row['n']),
    id: String(row['id']),
    at: Number(row['at']),
    session: text(row, 'session'),
    kind: toKind(row['kind']),
    account: String(row['account']),
    sender: text(row, 'sender'),
    recipient: String(row['recipient']),
    from: text(row, 'header_from'),
    subject: text(row, 'subject'),
    headerId: text(row, 'header_id'),
    route: String(row['route']),
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

function toRefusal(row: SqlRow): Refusal {
  return {
    n: Number(row['n']),
    at: Number(row['at']),
    session: text(row, 'session'),
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

function toSession(row: SqlRow): Session {
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

function toAction(row: SqlRow): Action {
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

const toKind = (value: unknown): DeliveryKind => DELIVERY_KINDS.find((kind) => kind === value) ?? 'inbound';

const STATES: readonly MailState[] = ['waiting', 'delivered', 'dead', 'dropped', 'unknown'];

const toState = (value: unknown): MailState => STATES.find((state) => state === value) ?? 'unknown';

/** The story as it was written by this program; a file may be damaged all the same. */
function toStory(value: unknown): readonly StoryEntry[] {
  try {
    const read: unknown = JSON.parse(String(value));
    return Array.isArray(read) ? read.flatMap(toEntry) : [];
  } catch {
    return [];
  }
}

const ENDS = ['delivered', 'given_up', 'dropped', 'replayed'] as const;

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
