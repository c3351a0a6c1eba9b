import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Queries, Window } from './queries.ts';
import type { History, MailFilter, Page } from './types.ts';

/** Asks the file of the journal; rejects when it cannot answer. */
export type Ask = <K extends string>(
  name: K,
  ...args: readonly unknown[]
) => Promise<K extends keyof Queries ? ReturnType<Queries[K]> : unknown>;

/** Rows looked at in one step. */
const STEP = 20_000;
/** How long a search looks before it returns what it has. */
const LONGEST_MS = 250;

const timesOf = ({ since, before }: Pick<MailFilter, 'since' | 'before'>) => ({ since, before });

/** The history behind `ask`, which is asked in steps, so that no search keeps others waiting. */
export function createHistory(ask: Ask, clock: Pick<Clock, 'monotonic'>): History {
  /** Goes back from a row in steps, until there are enough rows or it has taken long enough. */
  async function back<T extends { readonly n: number }>(
    bounds: Promise<Window>,
    find: (window: Window, limit: number) => Promise<readonly T[]>,
    limit: number,
    cursor: number | undefined,
  ): Promise<Page<T>> {
    const until = clock.monotonic() + LONGEST_MS;
    const [first, last] = await bounds;
    const rows: T[] = [];
    let to = Math.min(last, (cursor ?? Number.POSITIVE_INFINITY) - 1);
    while (to >= first) {
      const from = Math.max(first, to - STEP + 1);
      rows.push(...(await find([from, to], limit - rows.length)));
      const newest = rows.at(-1);
      if (rows.length >= limit && newest) return { rows, next: newest.n > first ? newest.n : null };
      to = from - 1;
      if (to >= first && clock.monotonic() >= until) return { rows, next: from };
    }
    return { rows, next: null };
  }

  return frozen({
    mail: (filter, limit, cursor) => back(ask('mailBounds', timesOf(filter)), (...step) => ask('mail', filter, ...step), limit, cursor),
    async *ids(filter) {
      const [first, last] = await ask('mailBounds', timesOf(filter));
      for (let to = last; to >= first; to -= STEP) {
        const found = await ask('ids', filter, [Math.max(first, to - STEP + 1), to]);
        if (found.length > 0) yield found;
      }
    },
    async one(id, account) {
      const found = await ask('one', id);
      return account === undefined || found?.mail.account === account ? found : undefined;
    },
    refusals: (filter, limit, cursor) =>
      back(ask('refusalBounds', timesOf(filter)), (...step) => ask('refusals', filter, ...step), limit, cursor),
    async refusalsByReason(filter) {
      const counts = new Map<string, number>();
      const [first, last] = await ask('refusalBounds', timesOf(filter));
      for (let to = last; to >= first; to -= STEP)
        for (const [reason, count] of await ask('reasons', filter, [Math.max(first, to - STEP + 1), to]))
          counts.set(reason, (counts.get(reason) ?? 0) + count);
      return [...counts].map(([reason, count]) => ({ reason, count })).sort((a, b) => b.count - a.count);
    },
    actions: (account, limit, cursor) =>
      back(ask('actionBounds'), (...step) => ask('actions', account, ...step), limit, cursor),
  });
}
