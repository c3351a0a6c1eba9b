import type { DatabaseSync } from 'node:sqlite';
import type { SqlRow } from '../../base/sqlite.ts';
import type { CopyEnd, CopyMark, CopyStart } from '../copy-marks.ts';
import { isLost } from './faults.ts';
import { DELIVERY_ROW, isWholeDelivery, number, OPEN_CODES, text, textOrNull, toDelivery } from './schema.ts';

// The marks of the messages of this queue that have a copy in the shared store (queue/copy-marks.ts).

/** Codes in the file. The triggers of the schema raise WRITTEN to CHANGED. */
const [WRITTEN, CHANGED, MISSING] = [0, 1, 2];
const NAMES = ['written', 'changed', 'missing'] as const;

const MARK = `SELECT c.*, m.id AS message_id, m.deliveries FROM copied c LEFT JOIN messages m ON m.key = c.key`;

/** Part of the changes of the writer. */
export function createCopyMarking(db: DatabaseSync) {
  const start = db.prepare(`INSERT INTO copied (key, id, parts, epoch, state, changes)
    SELECT key, ?2, 0, ?3, ${MISSING}, 0 FROM messages WHERE id = ?1 ON CONFLICT DO NOTHING`);
  const find = db.prepare(`${MARK} WHERE m.id = ?`);
  const written = db.prepare(`UPDATE copied SET parts = ?2, epoch = ?3,
    state = CASE WHEN changes = ?4 THEN ${WRITTEN} ELSE ${CHANGED} END WHERE key = ?1`);
  const gone = db.prepare('DELETE FROM copied WHERE key = ? AND changes = ?');
  const missing = db.prepare(`UPDATE copied SET state = ${MISSING} WHERE key = ?`);
  const open = createOpenDeliveries(db);
  return {
    startCopies(starts: readonly CopyStart[]): readonly CopyMark[] {
      return starts.flatMap(({ messageId, id, epoch }) => {
        start.run(messageId, id, epoch);
        const row = find.get(messageId);
        return row ? [toMark(row, open(row))] : [];
      });
    },
    /** Records the state of copies in the store. A message that changed meanwhile is due again. */
    endCopies(ends: readonly CopyEnd[]) {
      for (const { key, changes, parts, epoch, has } of ends) {
        if (has) written.run(key, parts, epoch, changes);
        else if (gone.run(key, changes).changes === 0) missing.run(key);
      }
    },
  };
}

/** Part of the queries of the reader. */
export function createCopyQueries(db: DatabaseSync) {
  const due = db.prepare(`${MARK} WHERE c.state > 0 AND c.key > ? ORDER BY c.key LIMIT ?`);
  const before = db.prepare(`${MARK} WHERE c.epoch < ? AND c.key > ? AND c.state < ${MISSING} ORDER BY c.key LIMIT ?`);
  const missing = db.prepare(`SELECT count(*) AS n FROM copied WHERE state = ${MISSING}`);
  const open = createOpenDeliveries(db);
  const marks = (rows: readonly SqlRow[]) => rows.map((row) => toMark(row, open(row)));
  return {
    dueCopies: (after: number, limit: number) => marks(due.all(after, limit)),
    copiesBefore: (epoch: number, after: number, limit: number) => marks(before.all(epoch, after, limit)),
    missingCopies: () => number(missing.get() ?? {}, 'n'),
  };
}

function createOpenDeliveries(db: DatabaseSync) {
  const open = db.prepare(`${DELIVERY_ROW} WHERE d.key BETWEEN ? AND ? AND d.state IN (${OPEN_CODES.join(', ')})`);
  const first = db.prepare('SELECT 1 FROM deliveries WHERE key = ?1 AND message = ?1');
  return (mark: SqlRow): Pick<CopyMark, 'deliveries' | 'isDamaged'> => {
    const key = number(mark, 'key');
    // A message is not deleted before its deliveries.
    if (mark['message_id'] === null) return { deliveries: [], isDamaged: first.get(key) !== undefined };
    const rows = open.all(key, key + number(mark, 'deliveries') - 1);
    const deliveries = rows.filter(isWholeDelivery).map(toDelivery);
    return { deliveries, isDamaged: deliveries.length < rows.length || deliveries.some(isLost) };
  };
}

function toMark(row: SqlRow, found: Pick<CopyMark, 'deliveries' | 'isDamaged'>): CopyMark {
  return {
    key: number(row, 'key'),
    id: text(row, 'id'),
    messageId: textOrNull(row, 'message_id'),
    parts: number(row, 'parts'),
    epoch: number(row, 'epoch'),
    state: NAMES[number(row, 'state')] ?? 'missing',
    changes: number(row, 'changes'),
    ...found,
  };
}
