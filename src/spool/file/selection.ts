import type { SQLInputValue } from 'node:sqlite';
import { REPORT_SCHEME, RETURN_URL } from '../../mail/returns/address.ts';
import { MAIL_SCHEME } from '../../mail/sending.ts';
import type { Selection } from '../types.ts';
import { stateCode } from './schema.ts';

/** A condition over `deliveries d` with the values for its question marks. */
export interface Condition {
  readonly sql: string;
  readonly values: readonly SQLInputValue[];
}

// What goes out is known by its endpoint.
const SENDS = `d.endpoint IN (SELECT key FROM endpoints WHERE substr(url, 1, ${MAIL_SCHEME.length}) = '${MAIL_SCHEME}')`;
const KINDS = {
  mail: `d.message NOT IN (SELECT message FROM batches) AND NOT ${SENDS}
    AND d.endpoint NOT IN (SELECT key FROM endpoints WHERE url = '${RETURN_URL}' OR substr(url, 1, ${REPORT_SCHEME.length}) = '${REPORT_SCHEME}')`,
  batch: 'd.message IN (SELECT message FROM batches)',
  outgoing: SENDS,
} as const;

/** A selection as SQL; everything from outside is a bound value. */
export function toCondition(selection: Selection): Condition {
  const parts: string[] = [];
  const values: SQLInputValue[] = [];
  const add = (sql: string, ...bound: readonly SQLInputValue[]) => {
    parts.push(sql);
    values.push(...bound);
  };
  // Lists travel as one JSON value: their length is not bounded by the number of question marks that SQLite takes.
  const inList = (sql: string, list: readonly (string | number)[] | undefined) => {
    if (list !== undefined) add(`${sql} IN (SELECT value FROM json_each(?))`, JSON.stringify(list));
  };
  inList('d.id', selection.ids);
  inList('d.route', selection.routeIds);
  inList('d.state', selection.states?.map(stateCode));
  if (selection.account !== undefined)
    add('d.endpoint IN (SELECT key FROM endpoints WHERE account = ?)', selection.account);
  if (selection.url !== undefined) add('d.endpoint IN (SELECT key FROM endpoints WHERE url = ?)', selection.url);
  if (selection.kind !== undefined) add(KINDS[selection.kind]);
  if (selection.webhook !== undefined)
    add(
      'd.message IN (SELECT b.message FROM batches b JOIN hooks h ON h.key = b.hook WHERE h.id = ?)',
      selection.webhook,
    );
  if (selection.recipient !== undefined) add('d.recipient = ?', selection.recipient);
  if (selection.from !== undefined) add('d.created_at >= ?', selection.from);
  if (selection.to !== undefined) add('d.created_at < ?', selection.to);
  return { sql: parts.length === 0 ? '1' : parts.join(' AND '), values };
}
