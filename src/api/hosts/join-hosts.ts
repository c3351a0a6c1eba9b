import { z } from 'zod';
import type { AskedHost, Hosts } from '../operation.ts';

// Merges the answers of several hosts into one.

type Given = Readonly<Record<string, unknown>>;

/** Asks this host first, which refuses an invalid call, then all others concurrently. */
export async function askAll<A>({ here, others }: Hosts<A>, change?: (id: string) => Given): Promise<readonly A[]> {
  const ask = (host: AskedHost<A>) => host.ask(change?.(host.id));
  const own = await ask(here);
  const more = await Promise.all(others.map(ask));
  return [own, ...more].filter((answer) => answer !== undefined);
}

/** The parameter `before` of a list in pages, and its `next`: a number for one host, text for several. */
export type Cursor = number | string;

/** The cursor of one host. Throws if it is for several hosts, which then no longer share a store. */
export function localCursor(
  cursor: Cursor | undefined,
  { invalid }: { invalid(field: string, text: string): Error },
  field = 'before',
) {
  if (typeof cursor !== 'string') return cursor;
  throw invalid(field, 'It is from a time with several hosts: please leave it out');
}

export function parseHostCursor(cursor: string): ReadonlyMap<string, number | null> {
  return new Map(
    cursor.split(',').map((one) => {
      const [id = '', position = ''] = one.split(':');
      return [id, position === '' ? null : Number(position)];
    }),
  );
}

/** A record of a list in pages with its sequence number in the history of its host, newest highest. */
export const cursoredPage = <S extends z.ZodType>(record: S) =>
  z.object({ rows: z.array(z.object({ n: z.int(), at: z.number(), record })), next: z.int().nullable() });

interface HostPage {
  readonly rows: readonly { readonly n: number; readonly at: number; readonly record: unknown }[];
  readonly next: number | null;
}

type RowOf<A extends HostPage> = A['rows'][number];

/** A page of records, newest first, and where the next one begins. */
interface Page<A extends HostPage> {
  readonly records: RowOf<A>['record'][];
  readonly next: Cursor | null;
  readonly parts: readonly A[];
}

/** The page that is wanted. */
interface Wanted {
  readonly before: Cursor | undefined;
  readonly limit: number;
  /** Whether hosts without further records are asked, too. */
  readonly all?: boolean;
}

/** Mail that one host took over from another is known to both. */
export interface MailOfHost {
  readonly id: string;
  readonly state: string;
}

/** A host that comes back drops what another has taken over. */
const PROGRESS: Readonly<Record<string, number>> = { unknown: 0, dropped: 0, waiting: 1 };
const progressOf = ({ state }: MailOfHost): number => PROGRESS[state] ?? 2;

/** Records of mail that another host has taken over and also reports. */
export function duplicates<R extends MailOfHost>(records: readonly R[]): ReadonlySet<R> {
  const kept = new Map<string, R>();
  for (const record of records) {
    const other = kept.get(record.id);
    if (!other || progressOf(record) > progressOf(other)) kept.set(record.id, record);
  }
  return new Set(records.filter((record) => kept.get(record.id) !== record));
}

/** The list without them. */
export function withoutDuplicates<R extends MailOfHost>(records: readonly R[]): readonly R[] {
  const left = duplicates(records);
  return records.filter((record) => !left.has(record));
}

/** The position after all records. */
const END = 1;

/**
 * Merges the pages of all hosts, newest first. The cursor has the position in each host, because a merged page uses
 * only some of the records of each. A host that is not in the cursor did not answer the first call and is left out.
 */
export async function joinPages<A extends HostPage>(
  hosts: Hosts<A>,
  { before, limit, all = false }: Wanted,
  repeatedOf: (records: readonly RowOf<A>['record'][]) => ReadonlySet<RowOf<A>['record']> = () => new Set(),
): Promise<Page<A>> {
  const positions = typeof before === 'string' ? parseHostCursor(before) : new Map([[hosts.here.id, before]]);
  const isFirst = before === undefined;
  const isIn = (host: AskedHost<A>) => isFirst || positions.has(host.id);
  const outside = hosts.others.filter((host) => !isIn(host));
  for (const host of outside) host.leaveOut();
  const asked = [hosts.here, ...hosts.others].filter((host) => isIn(host) && (all || positions.get(host.id) !== null));
  const parts = new Map<string, A>();
  const ask = async (host: AskedHost<A>) => {
    const position = positions.get(host.id);
    const part = await host.ask({ limit, before: position === null ? END : position });
    if (part) parts.set(host.id, part);
  };
  // This host refuses an invalid call.
  await Promise.all(asked.filter((host) => host === hosts.here).map(ask));
  await Promise.all(asked.filter((host) => host !== hosts.here).map(ask));

  const { records, left } = takeNewest(parts, limit, repeatedOf);
  const next = new Map<string, number | null>();
  for (const [id, part] of parts) next.set(id, left.get(id) ?? part.next);
  const isEnd = [...next.values()].every((position) => position === null);
  // Hosts without further records, and hosts that do not answer now but may do so for the next page.
  if (!isFirst) for (const [id, position = null] of positions) if (!next.has(id)) next.set(id, position);
  const [only] = hosts.others.length === 0 && typeof before !== 'string' ? next.values() : [];
  return { records, next: isEnd ? null : (only ?? formatHostCursor(next)), parts: [...parts.values()] };
}

/** By id, so that the same positions are the same cursor, whichever host responded first. */
export const formatHostCursor = (positions: ReadonlyMap<string, number | null>): string =>
  [...positions]
    .map(([id, position]) => `${id}:${position ?? ''}`)
    .sort()
    .join(',');

/**
 * The newest records of all hosts, each host's in the order of its numbers. `left`: the cursors of the hosts with
 * further records.
 */
function takeNewest<A extends HostPage>(
  parts: ReadonlyMap<string, A>,
  limit: number,
  repeatedOf: (records: readonly RowOf<A>['record'][]) => ReadonlySet<RowOf<A>['record']>,
) {
  const queues = [...parts].map(([id, { rows, next }]) => ({ id, next, taken: 0, rows: sorted<RowOf<A>>(rows) }));
  const isRepeated = repeatedOf(queues.flatMap(({ rows }) => rows.map(({ record }) => record)));
  const all: RowOf<A>[] = [];
  // If a host has more after its used-up page, these records may be newer than those of the others.
  while (all.length < limit && !queues.some(({ taken, rows, next }) => taken === rows.length && next !== null)) {
    const heads = queues.flatMap((queue) => {
      const row = queue.rows[queue.taken];
      return row ? [{ queue, row }] : [];
    });
    const [first] = heads;
    if (!first) break;
    const newest = heads.reduce((best, one) => (one.row.at > best.row.at ? one : best), first);
    newest.queue.taken++;
    if (!isRepeated.has(newest.row.record)) all.push(newest.row);
  }
  // Nor on the next page, which lacks their records from other hosts.
  for (const queue of queues) while (isRepeated.has(queue.rows[queue.taken]?.record)) queue.taken++;
  const left = new Map<string, number>();
  for (const { id, taken, rows } of queues) {
    const [last, unused] = [rows[taken - 1], rows[taken]];
    if (unused) left.set(id, last ? last.n : unused.n + 1);
  }
  return { records: all.sort((a, b) => b.at - a.at).map(({ record }) => record), left };
}

const sorted = <R extends { readonly n: number }>(rows: readonly R[]): readonly R[] =>
  rows.toSorted((a, b) => b.n - a.n);
