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
  const indexed = db.prepare(`SELECT value FROM meta WHERE name = 'indexed'`);
  const filled = db.prepare(`SELECT value FROM meta WHERE name = 'filled'`);
  const one = db.prepare('SELECT * FROM mail WHERE id = ?');
  const session = db.prepare('SELECT * FROM sessions WHERE id = ?');
  const refusalsOf = db.prepare(`SELECT * FROM refusals WHERE session = ? ORDER BY n LIMIT ${MAX_REFUSALS_SHOWN}`);
  const inState = db.prepare(
    `SELECT n, id FROM mail INDEXED BY mail_state WHERE state = ? AND state <> 'delivered' AND n > ? ORDER BY n LIMIT ?`,
  );
  const known = db.prepare('SELECT state, url FROM mail WHERE id = ?');
  db.function(CONTAINS, { deterministic: true }, (where, what) =>
    Number(typeof where === 'string' && where.toLowerCase().includes(String(what))),
  );

  /** The first and last row in a table that a filter can match; it can match none if the first is above the last. */
  function bounds(table: string, times: Times = {}): Window {
    const { sql, values } = all(between('at', times));
    const scan = values.length > 0 ? `${table} INDEXED BY ${table}_at` : table;
    const ends = values.length > 0 ? 'min(n) AS first, max(n) AS last' : BOTH_ENDS(table);
    const { first = null, last = null } = db.prepare(`SELECT ${ends} FROM ${scan} WHERE ${sql}`).get(...values) ?? {};
    return [Number(first ?? 0), Number(last ?? -1)];
  }

  /** Matching mail in a window, newest first. Texts are looked up where rows are indexed, else rows are looked at. */
  function findMail(columns: string, filter: MailFilter, [from, to]: Window, limit: number): SqlRow[] {
    const { texts, rest } = toMailCondition(filter);
    const lookUp = texts.flatMap(toMatch);
    const mark = lookUp.length > 0 ? Number(indexed.get()?.['value'] ?? 0) : 0;
    const scan = all([...rest, ...texts.map(like)]);
    const found = db
      .prepare(`SELECT ${columns} FROM mail WHERE n BETWEEN ? AND ? AND ${scan.sql} ORDER BY n DESC LIMIT ?`)
      .all(Math.max(from, mark + 1), to, ...scan.values, limit);
    if (from > mark || found.length >= limit) return found;
    const look = all([...rest, ...texts.filter((text) => toMatch(text).length === 0).map(like)]);
    const older = db
      .prepare(
        `SELECT ${columns} FROM words CROSS JOIN mail ON mail.n = words.rowid
          WHERE words MATCH ? AND words.rowid BETWEEN ? AND ? AND ${look.sql} ORDER BY words.rowid DESC LIMIT ?`,
      )
      .all(lookUp.join(' AND '), from, Math.min(to, mark), ...look.values, limit - found.length);
    return [...found, ...older];
  }

  const rowsOf = (table: string, { sql, values }: Condition, [from, to]: Window, limit: number): SqlRow[] =>
    db
      .prepare(`SELECT * FROM ${table} WHERE n BETWEEN ? AND ? AND ${sql} ORDER BY n DESC LIMIT ?`)
      .all(from, to, ...values, limit);

  return {
    mailBounds: (times?: Times) => bounds('mail', times),
    refusalBounds: (times?: Times) => bounds('refusals', times),
    actionBounds: () => bounds('actions'),
    /** Matching mail in a window, newest first. */
    mail: (filter: MailFilter, window: Window, limit: number): Mail[] =>
      findMail('mail.*', filter, window, limit).map(toMail),
    /** The ids of matching mail in a window, newest first. */
    ids: (filter: MailFilter, window: Window): string[] =>
      findMail('mail.id', filter, window, -1).map((row) => String(row['id'])),
    one(id: string): MailStory | undefined {
      const row = one.get(id);
      if (!row) return undefined;
      const mail = toMail(row);
      const found = mail.session === null ? undefined : session.get(mail.session);
      const refusals = mail.session === null ? [] : refusalsOf.all(mail.session).map(toRefusal);
      return { mail, session: found && toSession(found), refusals };
    },
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
      rowsOf('actions', all(equal('account', account)), window, limit).map(toAction),
    /** Rows of mail in a state, after row `n`. */
    inState: (state: 'waiting' | 'dead', n: number, limit: number): [n: number, id: string][] =>
      inState.all(state, n, limit).map((row) => [Number(row['n']), String(row['id'])]),
    /** What the journal says of each: null where it does not know it. */
    known: (ids: readonly string[]): ({ readonly state: MailState; readonly url: string } | null)[] =>
      ids.map((id) => {
        const row = known.get(id);
        return row ? { state: toState(row['state']), url: String(row['url']) } : null;
      }),
    /** Whether everything is in it that the queue had when this file was begun. */
    isFilled: (): boolean => filled.get()?.['value'] === 1,
  };
}

/** Each is found at its end of the index; together SQLite would read all of it. */
const BOTH_ENDS = (table: string) => `(SELECT min(n) FROM ${table}) AS first, (SELECT max(n) FROM ${table}) AS last`;

/** Accepted at or after, before. */
type Times = Pick<MailFilter, 'since' | 'before'>;

export type Queries = ReturnType<typeof createQueries>;

/** The first and last row number of a scan. */
export type Window = readonly [from: number, to: number];

/** A text that must be part of one of the columns. */
interface Part {
  readonly columns: readonly string[];
  readonly text: string;
}

function toMailCondition(filter: MailFilter): { readonly texts: readonly Part[]; readonly rest: readonly Condition[] } {
  const { account, kinds, words, from, to, subject, client, route, url, states, status, unanswered, ids } = filter;
  return {
    texts: [
      ...parts(EVERYWHERE, words),
      ...parts(['sender', 'header_from'], from),
      ...parts(['recipient'], to),
      ...parts(['subject'], subject),
    ],
    rest: [
      ...equal('account', account),
      ...among('kind', kinds),
      ...parts(['client', 'helo'], client).map(like),
      ...(route === undefined ? [] : [{ sql: '(route = ? OR pattern = ?)', values: [route, route] }]),
      ...equal('url', url),
      ...among('state', states),
      // Those that were delivered are not in the index of states.
      ...(states && !states.includes('delivered') ? [{ sql: `state <> 'delivered'`, values: [] }] : []),
      ...(status === undefined ? [] : [{ sql: 'last_status BETWEEN ? AND ?', values: [status.from, status.to] }]),
      ...(unanswered ? [{ sql: 'last_error IS NOT NULL', values: [] }] : []),
      ...(ids === undefined ? [] : [anyId(ids)]),
      ...between('at', filter),
    ],
  };
}

function toRefusalCondition({ account, words, reason, domain, ...times }: RefusalFilter): Condition {
  return all([
    ...equal('account', account),
    ...parts(['sender', 'recipient', 'client', 'helo'], words).map(like),
    ...equal('reason', reason),
    ...(domain === undefined ? [] : [{ sql: `recipient LIKE ? ESCAPE '\\'`, values: [`%@${escaped(domain)}`] }]),
    ...between('at', times),
  ]);
}

const EVERYWHERE = ['sender', 'header_from', 'recipient', 'subject', 'header_id'];

const parts = (columns: readonly string[], texts: readonly string[] = []): Part[] =>
  texts.map((text) => ({ columns, text }));

/** Shorter texts have no three characters to look up. */
const SHORTEST_INDEXED = 3;

/** The question to the index of words; nothing if it cannot be looked up. */
function toMatch({ columns, text }: Part): string[] {
  if ([...text].length < SHORTEST_INDEXED || text.includes('\0')) return [];
  return [`{${columns.join(' ')}} : "${text.replaceAll('"', '""')}"`];
}

const CONTAINS = 'contains_folded';

/** Looks at the rows. LIKE ignores case in ASCII alone, so other letters are compared by a function of ours. */
function like({ columns, text }: Part): Condition {
  const plain = /^[\0-\x7f]*$/.test(text);
  const pattern = `%${escaped(text).replaceAll(/[^\0-\x7f]/gu, '%')}%`;
  const folded = text.toLowerCase();
  const sqls = columns.map((column) =>
    plain ? `${column} LIKE ? ESCAPE '\\'` : `(${column} LIKE ? ESCAPE '\\' AND ${CONTAINS}(${column}, ?))`,
  );
  return {
    sql: `(${sqls.join(' OR ')})`,
    values: columns.flatMap(() => (plain ? [pattern] : [pattern, folded])),
  };
}

const escaped = (text: string): string => text.replace(/[\\%_]/g, '\\$&');

const equal = (column: string, value: string | undefined): Condition[] =>
  value === undefined ? [] : [{ sql: `${column} = ?`, values: [value] }];

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

function between(column: string, { since, before }: Times): Condition[] {
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
