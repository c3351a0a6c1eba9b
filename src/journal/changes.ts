import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { inTransaction, pragma } from '../base/sqlite.ts';
import { fieldsIn, namesOf } from '../base/tables.ts';
import { mailSummaryOf } from '../mail/summary.ts';
import { END_NAMES, ENDED_STATES } from '../queue/states.ts';

// The writes to the journal. Rows travel as flat arrays of values, one row after the other, which cross threads at a
// fifth of the cost of objects.

/** Beyond this many characters a story gets no further entries; attempts are still counted. */
export const MAX_STORY = 64 * 1024;

/** The fields of each table's records, in the order in which the values of a new row travel. */
export const COLUMNS = {
  mail: fieldsIn(
    'id at session transaction kind account sender recipient header_from subject header_id thread route pattern url',
    'size client helo tls spf dkim dmarc state attempts last_status last_error ended_at story',
  ),
  refusals: fieldsIn(
    'at session transaction listener stage reply reason client helo tls sender recipient account times',
  ),
  sessions: fieldsIn('id at listener client helo tls messages recipients refusals reason durationMs'),
  actions: fieldsIn('at by account what count detail'),
  minutes: fieldsIn('at figures'),
};

/** Columns that have another name than their field. */
const RENAMED: Readonly<Record<string, string>> = { transaction: 'transaction_n', durationMs: 'duration' };

/** The values of a new row. */
export function rowValues<F extends string>(fields: readonly F[], record: Readonly<Record<F, SQLInputValue>>) {
  return fields.map((field) => record[field]);
}

/** The values of a change of mail whose row has been written: null means no change. */
const PATCH = fieldsIn(
  'id sender header_from subject header_id thread spf dkim dmarc',
  'state firm url attempts last_status last_error ended_at story',
);

/** All notes of one moment. */
export interface Batch extends Readonly<Record<keyof typeof COLUMNS, readonly SQLInputValue[]>> {
  readonly patches: readonly SQLInputValue[];
  /** Delivery id and the fields of its summary, which are decoded here. */
  readonly summaries: readonly string[];
  /** Message id, session and transaction. */
  readonly arrivals: readonly (string | number)[];
}

/** The deliveries that a batch is about. */
export function idsOf({ mail, patches }: Pick<Batch, 'mail' | 'patches'>): string[] {
  const first = (values: readonly SQLInputValue[], width: number) =>
    values.filter((_, at) => at % width === 0).map(String);
  return [...first(mail, COLUMNS.mail.length), ...first(patches, PATCH.length)];
}

/** Rows before these times are deleted, and the oldest ones while the file is larger than this. */
interface Limits {
  readonly mailBefore: number;
  readonly refusalsBefore: number;
  readonly actionsBefore: number;
  readonly minutesBefore: number;
  readonly maxBytes: number;
}

/** Rows deleted in one step, so that none takes long. */
const PURGE_STEP = 2000;
/** A harvester causes many refusals, which must not displace the mail. */
const MAX_REFUSALS = 1_000_000;

/** The writes to the journal file, each in its own transaction. */
export function createJournalChanges(db: DatabaseSync) {
  const inserts = namesOf(COLUMNS).map((table) => {
    const columns = COLUMNS[table].map((field) => RENAMED[field] ?? field);
    // A delivery noted as new twice was added from the queue meanwhile: the later note has its state.
    const again =
      table === 'mail'
        ? `ON CONFLICT (id) DO UPDATE SET state = excluded.state, ended_at = excluded.ended_at,
      attempts = max(attempts, excluded.attempts)`
        : '';
    const sql = `INSERT ${again === '' ? 'OR IGNORE ' : ''}INTO ${table} (${columns.join(', ')})
      VALUES (${columns.map(() => '?').join(', ')}) ${again}`;
    return { table, width: columns.length, insert: db.prepare(sql) };
  });
  const indexing = createIndexing(db);
  const patch = createPatching(db, indexing);
  const describe = createDescribing(db, indexing);
  const arrive = db.prepare('UPDATE mail SET session = ?, transaction_n = ? WHERE id > ? AND id < ?');
  const filled = db.prepare(`UPDATE meta SET value = 1 WHERE name = 'filled'`);

  return {
    /** Writes a batch of notes. */
    write(batch: Batch): void {
      const summaries = new Map<SQLInputValue, string>();
      each(batch.summaries, 2, ([id = '', fields = '']) => summaries.set(id, fields));
      inTransaction(db, () => {
        for (const { table, width, insert } of inserts)
          each(batch[table], width, (values) => insert.run(...(table === 'mail' ? named(values, summaries) : values)));
        each(batch.patches, PATCH.length, patch);
        for (const [id, fields] of summaries) describe(String(id), fields);
        each(batch.arrivals, 3, ([id, session = null, n = null]) => arrive.run(session, n, `${id}-`, `${id}.`));
      });
    },
    /** Marks the file as complete: it has everything that was in the queue when the file was created. */
    filled: (): void => void filled.run(),
    /** Indexes the words of up to `most` rows, oldest first. Returns how many rows are not indexed yet. */
    index: (most: number): number => inTransaction(db, () => indexing.goOn(most)),
    /** Deletes some of the rows that are too old or too many. Returns whether there are more. */
    purge: createPurge(db, indexing),
  };
}

function each<T>(values: readonly T[], width: number, use: (row: readonly T[]) => void): void {
  for (let at = 0; at < values.length; at += width) use(values.slice(at, at + width));
}

/** Changes rows of mail by the values of `PATCH`. */
function createPatching(db: DatabaseSync, indexing: Indexing): (values: readonly SQLInputValue[]) => void {
  const find = db.prepare('SELECT n, state FROM mail WHERE id = ?');
  const update = db.prepare(`UPDATE mail SET
    sender = coalesce(?2, sender), header_from = coalesce(?3, header_from), subject = coalesce(?4, subject),
    header_id = coalesce(?5, header_id), thread = coalesce(?6, thread),
    spf = coalesce(?7, spf), dkim = coalesce(?8, dkim), dmarc = coalesce(?9, dmarc),
    state = coalesce(?10, state), url = coalesce(?11, url), attempts = attempts + ?12,
    last_status = CASE WHEN ?12 > 0 THEN ?13 ELSE last_status END,
    last_error = CASE WHEN ?12 > 0 OR ?14 IS NOT NULL THEN ?14 ELSE last_error END,
    ended_at = CASE WHEN ?10 IS NULL THEN ended_at ELSE ?15 END
    WHERE n = ?1`);
  const tell = db.prepare(`UPDATE mail
    SET story = substr(story, 1, length(story) - 1) || iif(story = '[]', '', ',') || ?1 || ']'
    WHERE n = ?2 AND length(story) + length(?1) < ${MAX_STORY}`);

  return (values) => {
    const [id = null, sender, from, subject, headerId, thread, spf, dkim, dmarc, state, firm, url, ...tried] = values;
    const [attempts, status, error, endedAt, story] = tried;
    const row = find.get(id);
    if (!row) return;
    const n = Number(row['n']);
    // As in the queue: an attempt in progress does not change a delivery that has ended meanwhile.
    const late = firm === 0 && ENDED_STATES.some((state) => state === row['state']);
    const reworded = [sender, from, subject, headerId].some((text) => text !== null);
    const wasIn = reworded && indexing.takeOut(n);
    const changed = [sender, from, subject, headerId, thread, spf, dkim, dmarc, late ? null : state, url];
    update.run(...[n, ...changed, attempts, status, error, endedAt].map((value) => value ?? null));
    if (typeof story === 'string' && story !== '') tell.run(late ? attemptsOf(story) : story, n);
    if (wasIn) indexing.putIn(n);
  };
}

const [ID, FROM] = [COLUMNS.mail.indexOf('id'), COLUMNS.mail.indexOf('header_from')];

/** A new row with its texts, which are removed from the summaries. */
function named(values: readonly SQLInputValue[], summaries: Map<SQLInputValue, string>): readonly SQLInputValue[] {
  const id = values[ID] ?? null;
  const fields = summaries.get(id);
  if (fields === undefined) return values;
  summaries.delete(id);
  const { from, subject, messageId, thread } = mailSummaryOf(fields);
  return values.toSpliced(FROM, 4, from, subject, messageId, thread);
}

/** Gives a row its texts, if it has none. */
function createDescribing(db: DatabaseSync, indexing: Indexing): (id: string, fields: string) => void {
  const find = db.prepare('SELECT n FROM mail WHERE id = ? AND subject IS NULL');
  const update = db.prepare('UPDATE mail SET header_from = ?, subject = ?, header_id = ?, thread = ? WHERE n = ?');
  return (id, fields) => {
    const row = find.get(id);
    if (!row) return;
    const n = Number(row['n']);
    const { from, subject, messageId, thread } = mailSummaryOf(fields);
    const wasIn = indexing.takeOut(n);
    update.run(from, subject, messageId, thread, n);
    if (wasIn) indexing.putIn(n);
  };
}

/** The story without an end that the queue refused. */
const attemptsOf = (story: string): string => story.replace(END, '');

const END = new RegExp(`,\\["(?:${END_NAMES.join('|')})",\\d+\\]$`);

type Indexing = ReturnType<typeof createIndexing>;

/** The index of words, which is updated when there is time. */
function createIndexing(db: DatabaseSync) {
  const WORDS = 'sender, header_from, recipient, subject, header_id';
  const indexed = db.prepare(`SELECT value FROM meta WHERE name = 'indexed'`);
  const move = db.prepare(`UPDATE meta SET value = ? WHERE name = 'indexed'`);
  const last = db.prepare('SELECT max(n) AS n FROM mail');
  const next = db.prepare('SELECT max(n) AS n FROM (SELECT n FROM mail WHERE n > ? ORDER BY n LIMIT ?)');
  const addAll = db.prepare(`INSERT INTO words (rowid, ${WORDS}) SELECT n, ${WORDS} FROM mail WHERE n > ? AND n <= ?`);
  const add = db.prepare(`INSERT INTO words (rowid, ${WORDS}) SELECT n, ${WORDS} FROM mail WHERE n = ?`);
  const remove = db.prepare('DELETE FROM words WHERE rowid = ?');
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
    /** Removes a row from the index before its words change. Returns whether it was indexed. */
    takeOut(n: number): boolean {
      if (n > done()) return false;
      remove.run(n);
      return true;
    },
    putIn: (n: number) => void add.run(n),
  };
}

function createPurge(db: DatabaseSync, indexing: Indexing): (limits: Limits) => boolean {
  const tables = (['mail', 'refusals', 'sessions', 'actions'] as const).map((table) => ({
    table,
    /** The time of the newest row among the oldest rows of one step. */
    reach: db.prepare(`SELECT max(at) AS at FROM (SELECT at FROM ${table} ORDER BY at LIMIT ${PURGE_STEP})`),
    remove: db.prepare(`DELETE FROM ${table} WHERE at < ?1 AND ${table === 'sessions' ? 'id' : 'n'} IN
      (SELECT ${table === 'sessions' ? 'id' : 'n'} FROM ${table} WHERE at < ?1 ORDER BY at LIMIT ${PURGE_STEP})
      RETURNING ${table === 'mail' ? 'n' : '0 AS n'}`),
  }));
  const minutes = db.prepare(`DELETE FROM minutes WHERE at < ?`);
  const tooMany = db.prepare(`DELETE FROM refusals WHERE n <= (SELECT max(n) FROM refusals) - ${MAX_REFUSALS}`);
  const bytes = () => {
    const [all, free, size] = ['page_count', 'freelist_count', 'page_size'].map((name) => pragma(db, name));
    return (Number(all) - Number(free)) * Number(size);
  };
  /** When the file is too large, the oldest rows of all tables are deleted, up to this time. */
  const cutoff = () =>
    tables.reduce((least, { table, reach }) => {
      const at = table === 'actions' ? null : (reach.get()?.['at'] ?? null);
      return at === null ? least : Math.min(least, Number(at) + 1);
    }, Number.POSITIVE_INFINITY);

  return ({ mailBefore, refusalsBefore, actionsBefore, minutesBefore, maxBytes }) =>
    inTransaction(db, () => {
      const full = bytes() > maxBytes;
      const least = full ? cutoff() : 0;
      const before = {
        mail: Math.max(mailBefore, least),
        refusals: Math.max(refusalsBefore, least),
        sessions: Math.max(refusalsBefore, least),
        actions: actionsBefore,
      };
      let most = 0;
      for (const { table, remove } of tables) {
        const gone = remove.all(before[table]);
        if (table === 'mail') for (const { n } of gone) indexing.takeOut(Number(n));
        most = Math.max(most, gone.length);
      }
      minutes.run(minutesBefore);
      most = Math.max(most, Number(tooMany.run().changes));
      db.exec(`PRAGMA incremental_vacuum(${PURGE_STEP})`);
      return most >= PURGE_STEP || (full && most > 0);
    });
}
