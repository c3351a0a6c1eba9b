import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import type { Action, MailState, Refusal, Session } from './types.ts';

// What is written to the journal. Rows travel as flat arrays of values, which cross threads at a fifth of the cost of
// objects.

/** The columns of a new row in `mail`, in the order in which its values travel. */
export const MAIL_COLUMNS = [
  'id',
  'at',
  'session',
  'kind',
  'account',
  'sender',
  'recipient',
  'header_from',
  'subject',
  'header_id',
  'route',
  'pattern',
  'url',
  'size',
  'client',
  'helo',
  'tls',
  'spf',
  'dkim',
  'dmarc',
  'state',
  'attempts',
  'last_status',
  'last_error',
  'ended_at',
  'story',
] as const;

/** What became of mail whose row has been written: null means no change. Travels as an array, too. */
export type Patch = readonly [
  id: string,
  sender: string | null,
  from: string | null,
  subject: string | null,
  headerId: string | null,
  spf: string | null,
  dkim: string | null,
  dmarc: string | null,
  state: MailState | null,
  attempts: number,
  lastStatus: number | null,
  lastError: string | null,
  endedAt: number | null,
  /** JSON texts of entries for the story. */
  story: readonly string[],
];

/** Everything that was noted in one moment. */
export interface Batch {
  /** The values of new rows, one row after the other. */
  readonly mail: readonly SQLInputValue[];
  readonly patches: readonly Patch[];
  readonly arrivals: readonly (readonly [messageId: string, session: string])[];
  readonly refusals: readonly Omit<Refusal, 'n'>[];
  readonly sessions: readonly Session[];
  readonly actions: readonly Omit<Action, 'n'>[];
}

/** Up to when rows are deleted, and above how many bytes the oldest ones. */
export interface Limits {
  readonly mailBefore: number;
  readonly refusalsBefore: number;
  readonly actionsBefore: number;
  readonly maxBytes: number;
}

/** A story beyond this many characters gets no further entries; attempts are still counted. */
const MAX_STORY = 64 * 1024;
/** Rows deleted in one step, so that none takes long. */
const PURGE_STEP = 2000;
/** Rows of the tables that are not mail are few bytes, but a harvester makes many. */
const MAX_REFUSALS = 1_000_000;

/** The changes that the journal file takes, each a transaction of its own. */
export function createChanges(db: DatabaseSync) {
  const insert = createInserts(db);
  const indexing = createIndexing(db);
  const update = db.prepare(`UPDATE mail SET
    sender = coalesce(?2, sender), header_from = coalesce(?3, header_from), subject = coalesce(?4, subject),
    header_id = coalesce(?5, header_id), spf = coalesce(?6, spf), dkim = coalesce(?7, dkim), dmarc = coalesce(?8, dmarc),
    state = coalesce(?9, state), attempts = attempts + ?10,
    last_status = CASE WHEN ?10 > 0 THEN ?11 ELSE last_status END,
    last_error = CASE WHEN ?10 > 0 THEN ?12 ELSE last_error END,
    ended_at = CASE WHEN ?9 IS NULL THEN ended_at ELSE ?13 END
    WHERE id = ?1 RETURNING n`);
  const tell = db.prepare(
    `UPDATE mail SET story = json_insert(story, '$[#]', json(?)) WHERE n = ? AND length(story) < ${MAX_STORY}`,
  );
  const arrive = db.prepare('UPDATE mail SET session = ? WHERE id > ? AND id < ?');

  function patch(one: Patch): void {
    const [id, sender, from, subject, headerId] = one;
    const reworded = sender !== null || from !== null || subject !== null || headerId !== null;
    const taken = reworded ? indexing.takeOut(id) : undefined;
    const row = update.get(...one.slice(0, -1).map(toValue));
    if (row) for (const entry of one[13]) tell.run(entry, Number(row['n']));
    if (taken !== undefined) indexing.putIn(taken);
  }

  return {
    /** Writes what was noted. */
    write({ mail, patches, arrivals, refusals, sessions, actions }: Batch): void {
      within(db, () => {
        insert.mail(mail);
        for (const one of patches) patch(one);
        for (const [messageId, session] of arrivals) arrive.run(session, `${messageId}-`, `${messageId}.`);
        for (const one of refusals) insert.refusal(one);
        for (const one of sessions) insert.session(one);
        for (const one of actions) insert.action(one);
      });
    },
    /** Indexes the words of up to `most` rows, the oldest first. Answers how many rows are still without. */
    index: (most: number): number => within(db, () => indexing.goOn(most)),
    /** Deletes what is too old or too much, some of it. Answers whether there is more. */
    purge: createPurge(db),
  };
}

export type Changes = ReturnType<typeof createChanges>;

function createInserts(db: DatabaseSync) {
  const width = MAIL_COLUMNS.length;
  const mail = db.prepare(
    `INSERT OR IGNORE INTO mail (${MAIL_COLUMNS.join(', ')}) VALUES (${MAIL_COLUMNS.map(() => '?').join(', ')})`,
  );
  const refusal = db.prepare(`INSERT INTO refusals
    (at, session, listener, stage, reply, reason, client, helo, tls, sender, recipient, account, times)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`);
  const session = db.prepare(`INSERT OR IGNORE INTO sessions
    (id, at, listener, client, helo, tls, messages, recipients, refusals, reason, duration)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`);
  const action = db.prepare('INSERT INTO actions (at, by, account, what, count, detail) VALUES (?, ?, ?, ?, ?, ?)');
  return {
    mail(values: readonly SQLInputValue[]) {
      for (let at = 0; at < values.length; at += width) mail.run(...values.slice(at, at + width));
    },
    refusal(one: Omit<Refusal, 'n'>) {
      const { at, session, listener, stage, reply, reason, client, helo, tls, sender, recipient, account, times } = one;
      refusal.run(at, session, listener, stage, reply, reason, client, helo, tls, sender, recipient, account, times);
    },
    session(one: Session) {
      const { id, at, listener, client, helo, tls, messages, recipients, refusals, reason, durationMs } = one;
      session.run(id, at, listener, client, helo, tls, messages, recipients, refusals, reason, Math.round(durationMs));
    },
    action({ at, by, account, what, count, detail }: Omit<Action, 'n'>) {
      action.run(at, by, account, what, count, detail);
    },
  };
}

/** The index of words follows the rows when there is time for it. */
function createIndexing(db: DatabaseSync) {
  const WORDS = 'sender, header_from, recipient, subject, header_id';
  const indexed = db.prepare(`SELECT value FROM meta WHERE name = 'indexed'`);
  const move = db.prepare(`UPDATE meta SET value = ? WHERE name = 'indexed'`);
  const last = db.prepare('SELECT max(n) AS n FROM mail');
  const next = db.prepare('SELECT max(n) AS n FROM (SELECT n FROM mail WHERE n > ? ORDER BY n LIMIT ?)');
  const addAll = db.prepare(`INSERT INTO words (rowid, ${WORDS}) SELECT n, ${WORDS} FROM mail WHERE n > ? AND n <= ?`);
  const add = db.prepare(`INSERT INTO words (rowid, ${WORDS}) SELECT n, ${WORDS} FROM mail WHERE n = ?`);
  const remove = db.prepare('DELETE FROM words WHERE rowid = ?');
  const numberOf = db.prepare('SELECT n FROM mail WHERE id = ?');
  const done = () => Number(indexed.get()?.['value'] ?? 0);
  return {
    goOn(most: number): number {
      const from = done();
      const to = Number(next.get(from, most)?.['n'] ?? from);
      if (to > from) {
        addAll.run(from, to);
        move.run(to);
      }
      return Number(last.get()?.['n'] ?? 0) - to;
    },
    /** Takes a row out of the index whose words are about to change; answers its number if it was in. */
    takeOut(id: string): number | undefined {
      const n = Number(numberOf.get(id)?.['n'] ?? Number.POSITIVE_INFINITY);
      if (n > done()) return undefined;
      remove.run(n);
      return n;
    },
    putIn: (n: number) => void add.run(n),
  };
}

function createPurge(db: DatabaseSync): (limits: Limits) => boolean {
  const oldMail = db.prepare('SELECT n FROM mail WHERE n <= ? AND at < ? ORDER BY n LIMIT ?');
  const oldest = db.prepare('SELECT n FROM mail ORDER BY n LIMIT ?');
  const firstMail = db.prepare('SELECT min(n) AS n FROM mail');
  const forget = db.prepare('DELETE FROM mail WHERE n = ?');
  const forgetWords = db.prepare('DELETE FROM words WHERE rowid = ?');
  const others = [
    { table: 'refusals', before: (limits: Limits) => limits.refusalsBefore },
    { table: 'actions', before: (limits: Limits) => limits.actionsBefore },
  ].map(({ table, before }) => ({
    before,
    // Rows are in the order of their numbers, nearly that of their times: the oldest are looked at, not all.
    run: db.prepare(`DELETE FROM ${table} WHERE n IN (SELECT n FROM (
      SELECT n, at FROM ${table} ORDER BY n LIMIT ${PURGE_STEP}) WHERE at < ?)`),
  }));
  const oldSessions = db.prepare(
    `DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE at < ? ORDER BY at LIMIT ${PURGE_STEP})`,
  );
  const tooMany = db.prepare(`DELETE FROM refusals WHERE n <= (SELECT max(n) FROM refusals) - ${MAX_REFUSALS}`);
  const pages = ['page_count', 'freelist_count', 'page_size'].map((name) => db.prepare(`PRAGMA ${name}`));
  const bytes = () => {
    const [all = 0, free = 0, size = 0] = pages.map((pragma) => Number(Object.values(pragma.get() ?? {})[0]));
    return (all - free) * size;
  };
  return (limits) =>
    within(db, () => {
      const first = Number(firstMail.get()?.['n'] ?? 0);
      const full = bytes() > limits.maxBytes;
      const rows = full ? oldest.all(PURGE_STEP) : oldMail.all(first + PURGE_STEP, limits.mailBefore, PURGE_STEP);
      for (const row of rows) {
        forgetWords.run(Number(row['n']));
        forget.run(Number(row['n']));
      }
      let most = rows.length;
      for (const { before, run } of others) most = Math.max(most, Number(run.run(before(limits)).changes));
      most = Math.max(most, Number(oldSessions.run(limits.refusalsBefore).changes));
      tooMany.run();
      db.exec(`PRAGMA incremental_vacuum(${PURGE_STEP})`);
      return most >= PURGE_STEP;
    });
}

/** One transaction. */
function within<T>(db: DatabaseSync, work: () => T): T {
  db.exec('BEGIN IMMEDIATE');
  try {
    const done = work();
    db.exec('COMMIT');
    return done;
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}

const toValue = (value: unknown): SQLInputValue =>
  typeof value === 'string' || typeof value === 'number' ? value : null;
