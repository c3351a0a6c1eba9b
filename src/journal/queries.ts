import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import type { SqlRow } from '../base/sqlite.ts';
import { type OPEN_STATES, TAKEN_OVER } from '../queue/states.ts';
import { mergeSamples, readFigures, type WantedSeries } from './minutes.ts';
import {
  actionOfRow,
  causeOfRow,
  mailOfRow,
  mergeCauses,
  refusalOfRow,
  sessionOfRow,
  toKind,
  toState,
  UNDELIVERED,
} from './rows.ts';
import type {
  ActionRecord,
  FailureCause,
  MailFilter,
  MailRecord,
  MailStory,
  RefusalFilter,
  RefusalRecord,
} from './types.ts';

// The queries of the journal. Long scans are split into windows of row numbers, so that none takes long and writes get
// their turn.

/** A condition with its values. */
interface Condition {
  readonly sql: string;
  readonly values: readonly SQLInputValue[];
}

/** Maximum refusals of a session that are read, and of a transaction that are shown. */
const MAX_REFUSALS = 1000;
const MAX_REFUSALS_SHOWN = 100;

/** The queries of a journal file, over one connection. */
export function createJournalQueries(db: DatabaseSync) {
  const indexed = db.prepare(`SELECT value FROM meta WHERE name = 'indexed'`);
  const filled = db.prepare(`SELECT value FROM meta WHERE name = 'filled'`);
  const one = db.prepare('SELECT * FROM mail WHERE id = ?');
  const session = db.prepare('SELECT * FROM sessions WHERE id = ?');
  const refusalsOf = db.prepare(`SELECT * FROM refusals WHERE session = ? ORDER BY n LIMIT ${MAX_REFUSALS}`);
  const inState = db.prepare(
    `SELECT n, id FROM mail INDEXED BY mail_state
     WHERE state = ? AND state <> 'delivered' AND n > ? ORDER BY n LIMIT ?`,
  );
  const toMatch = createMatching(db);
  const known = db.prepare('SELECT state, url, subject IS NULL AS nameless FROM mail WHERE id = ?');
  // A file of an earlier version, which commands may read, may not have the table.
  const minutes = () => db.prepare('SELECT at, figures FROM minutes WHERE at >= ? AND at < ? ORDER BY at');
  db.function(CONTAINS, { deterministic: true }, (where, what) =>
    Number(typeof where === 'string' && where.toLowerCase().includes(String(what))),
  );

  /** The first and last row of a table that a filter can match; none if the first is above the last. */
  function bounds(table: string, times: Times = {}): Window {
    const { sql, values } = all(between('at', times));
    const scan = values.length > 0 ? `${table} INDEXED BY ${table}_at` : table;
    const ends = values.length > 0 ? 'min(n) AS first, max(n) AS last' : BOTH_ENDS(table);
    const { first = null, last = null } = db.prepare(`SELECT ${ends} FROM ${scan} WHERE ${sql}`).get(...values) ?? {};
    return [Number(first ?? 0), Number(last ?? -1)];
  }

  /** Matching mail in a window, newest first. Rows in the index of words are found with it. */
  function findMail(columns: string, filter: MailFilter, [from, to]: Window, limit: number): SqlRow[] {
    const { texts, condition } = toMailCondition(filter);
    const mark = Number(indexed.get()?.['value'] ?? 0);
    const match = toMatch(texts);
    const found = db
      .prepare(`SELECT ${columns} FROM mail WHERE n BETWEEN ? AND ? AND ${condition.sql} ORDER BY n DESC LIMIT ?`)
      .all(match === undefined ? from : Math.max(from, mark + 1), to, ...condition.values, limit);
    if (match === undefined || from > mark || found.length === limit) return found;
    const older = db
      .prepare(
        `SELECT ${columns} FROM (SELECT rowid AS hit FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?)
          CROSS JOIN mail ON n = hit WHERE ${condition.sql} ORDER BY hit DESC LIMIT ?`,
      )
      .all(match, from, Math.min(to, mark), ...condition.values, limit === -1 ? -1 : limit - found.length);
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
    mail: (filter: MailFilter, window: Window, limit: number): MailRecord[] =>
      findMail('mail.*', filter, window, limit).map(mailOfRow),
    /** The ids of matching mail in a window, newest first. */
    ids: (filter: MailFilter, window: Window): string[] =>
      findMail('mail.id', filter, window, -1).map((row) => String(row['id'])),
    /** Matching mail in a window, counted by endpoint and last answer. */
    causes: (filter: MailFilter, window: Window): readonly FailureCause[] =>
      mergeCauses(findMail('url, last_status, last_error, at, ended_at', filter, window, -1).map(causeOfRow)),
    /** With `account`, refusals of other accounts are left out. */
    one(id: string, account?: string): MailStory | undefined {
      const row = one.get(id);
      if (!row) return undefined;
      const mail = mailOfRow(row);
      const found = mail.session === null ? undefined : session.get(mail.session);
      const all = mail.session === null ? [] : refusalsOf.all(mail.session).map(refusalOfRow);
      const theirs = all.filter((one) => account === undefined || one.account === null || one.account === account);
      const own = theirs.filter((one) => isOf(mail, one));
      const others = theirs.filter((one) => !own.includes(one)).reduce((sum, { times }) => sum + times, 0);
      return {
        mail,
        session: found && sessionOfRow(found),
        refusals: own.slice(0, MAX_REFUSALS_SHOWN),
        otherRefusals: others,
      };
    },
    /** The known ones of these deliveries, without their stories. */
    each: (ids: readonly string[]): MailRecord[] =>
      ids.flatMap((id) => {
        const row = one.get(id);
        return row ? [{ ...mailOfRow(row), story: [] }] : [];
      }),
    refusals: (filter: RefusalFilter, window: Window, limit: number): RefusalRecord[] =>
      rowsOf('refusals', toRefusalCondition(filter), window, limit).map(refusalOfRow),
    reasons(filter: RefusalFilter, [from, to]: Window): [reason: string, count: number][] {
      const { sql, values } = toRefusalCondition(filter);
      return db
        .prepare(`SELECT reason, sum(times) AS count FROM refusals WHERE n BETWEEN ? AND ? AND ${sql} GROUP BY reason`)
        .all(from, to, ...values)
        .map((row) => [String(row['reason']), Number(row['count'])]);
    },
    /** Counts mail in a window that was accepted at that time or later, without mail that another host took over. */
    mailByAccount: ([from, to]: Window, since: number) =>
      db
        .prepare(
          `SELECT account, kind, state, count(*) AS n FROM mail
            WHERE n BETWEEN ? AND ? AND at >= ? AND NOT (state = 'dropped' AND last_error IS ?) GROUP BY 1, 2, 3`,
        )
        .all(from, to, since, TAKEN_OVER)
        .map((row) => ({
          account: String(row['account']),
          kind: toKind(row['kind']),
          state: toState(row['state']),
          count: Number(row['n']),
        })),
    refusalsByAccount: ([from, to]: Window, since: number): [account: string, count: number][] =>
      db
        .prepare(
          `SELECT account, sum(times) AS n FROM refusals
            WHERE n BETWEEN ? AND ? AND at >= ? AND account IS NOT NULL GROUP BY 1`,
        )
        .all(from, to, since)
        .map((row) => [String(row['account']), Number(row['n'])]),
    /** The figures of each step between these times, which are multiples of `step`. */
    minutes: (wanted: readonly WantedSeries[], from: number, to: number, step: number): (number | null)[][] =>
      mergeSamples(
        minutes()
          .all(from, to)
          .map((row) => ({ at: Number(row['at']), values: readFigures(String(row['figures'])) })),
        wanted,
        { from, to, step },
      ),
    actions: (account: string | undefined, window: Window, limit: number): ActionRecord[] =>
      rowsOf('actions', all(equal('account', account)), window, limit).map(actionOfRow),
    /** Rows of mail in a state, after row `n`. */
    inState: (state: (typeof OPEN_STATES)[number], n: number, limit: number): [n: number, id: string][] =>
      inState.all(state, n, limit).map((row) => [Number(row['n']), String(row['id'])]),
    /** The journal's facts about each delivery; null if it is unknown. */
    known: (ids: readonly string[]) =>
      ids.map((id) => {
        const row = known.get(id);
        if (!row) return null;
        // Nameless: its header was never read. A message without a subject has an empty one.
        return { state: toState(row['state']), url: String(row['url']), isNameless: row['nameless'] === 1 };
      }),
    /** Whether the file has everything that was in the queue when it was created. */
    isFilled: (): boolean => filled.get()?.['value'] === 1,
  };
}

/** Whether a refusal belongs to the transaction of a mail. Older rows do not have the transaction. */
function isOf({ transaction, at, sender }: MailRecord, refusal: RefusalRecord): boolean {
  if (transaction !== null) return refusal.transaction === transaction;
  return refusal.at <= at && refusal.sender === sender && refusal.recipient !== null;
}

/** Two queries, each of which reads one end of the index; in one, SQLite would read all of it. */
const BOTH_ENDS = (table: string) => `(SELECT min(n) FROM ${table}) AS first, (SELECT max(n) FROM ${table}) AS last`;

/** Accepted at or after, before. */
type Times = Pick<MailFilter, 'since' | 'before'>;

export type JournalQueries = ReturnType<typeof createJournalQueries>;

/** The first and last row number of a scan. */
export type Window = readonly [from: number, to: number];

function toMailCondition(filter: MailFilter): { readonly texts: readonly string[]; readonly condition: Condition } {
  const { account, kinds, words = [], from = [], to = [], subject = [], client = [] } = filter;
  const { thread, route, url, exceptUrls, status, unanswered, ids, isOwn } = filter;
  // Delivered mail was answered with 2xx. It is not in the index of states, so exclude it where possible.
  const failed = unanswered || (status !== undefined && status.from >= 300);
  const states = filter.states ?? (failed ? UNDELIVERED : undefined);
  return {
    texts: [...words, ...from, ...to, ...subject],
    condition: all([
      ...equal('account', account),
      ...among('kind', kinds),
      ...among('state', states),
      ...(states && !states.includes('delivered') ? [{ sql: `state <> 'delivered'`, values: [] }] : []),
      ...(route === undefined ? [] : [{ sql: `(${ROUTE} = ? OR pattern = ?)`, values: [route, route] }]),
      ...(thread === undefined ? [] : [{ sql: 'n IN (SELECT n FROM mail WHERE thread = ?)', values: [thread] }]),
      ...equal('url', url),
      ...(exceptUrls ?? []).map((one) => ({ sql: 'url <> ?', values: [one] })),
      ...(status === undefined ? [] : [{ sql: 'last_status BETWEEN ? AND ?', values: [status.from, status.to] }]),
      ...(isOwn ? [{ sql: `NOT (state = 'dropped' AND last_error IS ?)`, values: [TAKEN_OVER] }] : []),
      ...(unanswered ? [{ sql: 'last_error IS NOT NULL', values: [] }] : []),
      ...(ids === undefined ? [] : [anyId(ids)]),
      ...between('at', filter),
      ...words.map((text) => containing(['sender', 'header_from', 'recipient', 'subject', 'header_id'], text)),
      ...from.map((text) => containing(['sender', 'header_from'], text)),
      ...to.map((text) => containing(['recipient'], text)),
      ...subject.map((text) => containing(['subject'], text)),
      ...client.map((text) => containing(['client', 'helo'], text)),
    ]),
  };
}

function toRefusalCondition(filter: RefusalFilter): Condition {
  const { account, words = [], from = [], to = [], client = [], reason, domain, ...times } = filter;
  return all([
    ...equal('account', account),
    ...words.map((text) => containing(['sender', 'recipient', 'client', 'helo'], text)),
    ...from.map((text) => containing(['sender'], text)),
    ...to.map((text) => containing(['recipient'], text)),
    ...client.map((text) => containing(['client', 'helo'], text)),
    ...equal('reason', reason),
    ...(domain === undefined ? [] : [{ sql: `recipient LIKE ? ESCAPE '\\'`, values: [`%@${escaped(domain)}`] }]),
    ...between('at', times),
  ]);
}

/** Trigrams of a text that are looked up, the rarest first. */
const LOOKED_UP = 3;
const MAX_THREES = 60;
/** The age of a trigram's n-th newest row tells how rare the trigram is. */
const SAMPLE = 20;
const MAX_REMEMBERED = 100;

/**
 * Creates the query for the index of words, whose tokens are three characters each; undefined if no text is that long.
 * The time to look up a token grows with the number of its rows.
 */
function createMatching(db: DatabaseSync): (texts: readonly string[]) => string | undefined {
  const reach = db.prepare(
    `SELECT rowid AS n FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ${SAMPLE}`,
  );
  const remembered = new Map<string, string>();
  return (texts) => {
    const tokens = texts.flatMap(toTokens).slice(0, MAX_THREES);
    if (tokens.length === 0) return undefined;
    const key = tokens.join('');
    const known = remembered.get(key);
    if (known !== undefined) return known;
    const match = [...new Set(tokens)]
      .map((token) => ({ token, n: Number(reach.get(token)?.['n'] ?? 0) }))
      .sort((a, b) => a.n - b.n)
      .slice(0, LOOKED_UP)
      .map(({ token }) => token)
      .join(' AND ');
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    remembered.set(key, match);
    return match;
  };
}

/** Whether the index of words can find a text. */
export const isLookedUp = (text: string): boolean => [...text].length >= 3 && !text.includes('\0');

/** Every three characters of a text, quoted. */
function toTokens(text: string): string[] {
  if (!isLookedUp(text)) return [];
  const letters = [...text];
  return letters.slice(2).map(
    (_, i) =>
      `"${letters
        .slice(i, i + 3)
        .join('')
        .replaceAll('"', '""')}"`,
  );
}

const CONTAINS = 'contains_folded';

/** A text in one of the columns. LIKE ignores case only in ASCII, so a function of ours compares other letters. */
function containing(columns: readonly string[], text: string): Condition {
  if (text.includes('\0')) return { sql: '0', values: [] }; // it would end the pattern
  const plain = /^[\0-\x7f]*$/.test(text);
  const pattern = `%${escaped(text).replaceAll(/[^\0-\x7f]/gu, '%')}%`;
  const sqls = columns.map((column) =>
    plain ? `${column} LIKE ? ESCAPE '\\'` : `(${column} LIKE ? ESCAPE '\\' AND ${CONTAINS}(${column}, ?))`,
  );
  return {
    sql: `(${sqls.join(' OR ')})`,
    values: columns.flatMap(() => (plain ? [pattern] : [pattern, text.toLowerCase()])),
  };
}

const escaped = (text: string): string => text.replace(/[\\%_]/g, '\\$&');

const equal = (column: string, value: string | undefined): Condition[] =>
  value === undefined ? [] : [{ sql: `${column} = ?`, values: [value] }];

function among(column: string, values: readonly string[] | undefined): Condition[] {
  if (values === undefined) return [];
  return [{ sql: `${column} IN (${values.map(() => '?').join(', ')})`, values }];
}

/** Ids of deliveries, or of messages, with which the ids of their deliveries begin. */
function anyId(ids: readonly string[]): Condition {
  const one = 'SELECT n FROM mail WHERE id = ? UNION ALL SELECT n FROM mail WHERE id > ? AND id < ?';
  return {
    sql: `n IN (${['SELECT 0', ...ids.map(() => one)].join(' UNION ALL ')})`,
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

/** The route of a delivery, without the number of its URL. */
const ROUTE = `substr(route, 1, instr(route || '+', '+') - 1)`;
