import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { isLookedUp, type JournalQueries, type Window } from './queries.ts';
import { mergeCauses } from './rows.ts';
import type { AccountFigures, FailureCause, HistoryPage, MailFilter, MailStory, RefusalFilter } from './types.ts';

/** Queries the file of the journal; rejects if it cannot answer. */
export type AskJournal = <K extends string>(
  name: K,
  ...args: readonly unknown[]
) => Promise<K extends keyof JournalQueries ? ReturnType<JournalQueries[K]> : unknown>;

/** Rows of one step of a scan, and of a search with the index. */
const STEP = 20_000;
const LOOKED_UP_STEP = 200_000;
/** The duration after which a search returns the rows found so far. */
const LONGEST_MS = 60;

export type History = ReturnType<typeof createHistory>;

/** The history behind `ask`, which is queried in steps, so that no search delays others for long. */
export function createHistory(ask: AskJournal, clock: Pick<Clock, 'monotonic'>) {
  /** Searches backwards in steps, until there are enough rows or the time is over. */
  async function back<T extends { readonly n: number; readonly at: number }>(
    bounds: Promise<Window>,
    step: number,
    find: (window: Window, limit: number) => Promise<readonly T[]>,
    limit: number,
    cursor = Number.POSITIVE_INFINITY,
  ): Promise<HistoryPage<T>> {
    const until = clock.monotonic() + LONGEST_MS;
    const [first, last] = await bounds;
    const rows: T[] = [];
    for (const [from, to] of windows([first, Math.min(last, cursor - 1)], step)) {
      rows.push(...(await find([from, to], limit - rows.length)));
      const oldest = rows.at(-1);
      const next = oldest && rows.length >= limit ? oldest.n : from;
      if (next <= first) break;
      if (rows.length >= limit || clock.monotonic() >= until) return { rows: newestFirst(rows), next };
    }
    return { rows: newestFirst(rows), next: null };
  }

  return frozen({
    /** Mail before `cursor`, newest first. After LONGEST_MS returns the rows so far, with a cursor to continue. */
    mail: (filter: MailFilter, limit: number, cursor?: number) =>
      back(
        ask('mailBounds', timesOf(filter)),
        stepOf(filter),
        (...step) => ask('mail', filter, ...step),
        limit,
        cursor,
      ),
    /** The ids of all matching deliveries, newest first, in pages. */
    async *ids(filter: MailFilter): AsyncIterable<readonly string[]> {
      for (const window of windows(await ask('mailBounds', timesOf(filter)), stepOf(filter))) {
        const found = await ask('ids', filter, window);
        if (found.length > 0) yield found;
      }
    },
    /** All matching deliveries counted by endpoint and last answer, the most frequent first. */
    async causes(filter: MailFilter): Promise<readonly FailureCause[]> {
      let causes: readonly FailureCause[] = [];
      for (const window of windows(await ask('mailBounds', timesOf(filter)), stepOf(filter)))
        causes = mergeCauses([...causes, ...(await ask('causes', filter, window))]);
      return causes;
    },
    /** The story of one delivery; undefined if it is not known, or another account's. */
    async one(id: string, account?: string): Promise<MailStory | undefined> {
      const found = await ask('one', id, account);
      return account === undefined || found?.mail.account === account ? found : undefined;
    },
    refusals: (filter: RefusalFilter, limit: number, cursor?: number) =>
      back(ask('refusalBounds', timesOf(filter)), STEP, (...step) => ask('refusals', filter, ...step), limit, cursor),
    /** Refusals counted by reason, the most frequent first. */
    async refusalsByReason(filter: RefusalFilter) {
      const counts = new Map<string, number>();
      for (const window of windows(await ask('refusalBounds', timesOf(filter)), STEP))
        for (const [reason, count] of await ask('reasons', filter, window))
          counts.set(reason, (counts.get(reason) ?? 0) + count);
      return [...counts].map(([reason, count]) => ({ reason, count })).sort((a, b) => b.count - a.count);
    },
    actions: (account: string | undefined, limit: number, cursor?: number) =>
      back(ask('actionBounds'), STEP, (...step) => ask('actions', account, ...step), limit, cursor),
    /** Mail since that time, by account. */
    async byAccount(since: number): Promise<ReadonlyMap<string, AccountFigures>> {
      const figures = new Map<string, Writable<AccountFigures>>();
      const of = (account: string) => {
        const known = figures.get(account) ?? { received: 0, delivered: 0, givenUp: 0, refused: 0, sent: 0 };
        figures.set(account, known);
        return known;
      };
      for (const window of windows(await ask('mailBounds', { since }), STEP))
        for (const { account, kind, state, count } of await ask('mailByAccount', window, since)) {
          const own = of(account);
          if (kind === 'inbound') {
            own.received += count;
            if (state === 'delivered') own.delivered += count;
            if (state === 'dead') own.givenUp += count;
          } else if (kind === 'outbound' && state === 'delivered') own.sent += count;
        }
      for (const window of windows(await ask('refusalBounds', { since }), STEP))
        for (const [account, count] of await ask('refusalsByAccount', window, since)) of(account).refused += count;
      return figures;
    },
  });
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** Rows are written up to a second after their event, so their numbers are not exactly in chronological order. */
const newestFirst = <T extends { readonly n: number; readonly at: number }>(rows: readonly T[]): readonly T[] =>
  rows.toSorted((a, b) => b.at - a.at || b.n - a.n);

/** Windows of `step` rows, from the last to the first. */
function* windows([first, last]: Window, step: number): Iterable<Window> {
  for (let to = last; to >= first; to -= step) yield [Math.max(first, to - step + 1), to];
}

const timesOf = ({ since, before }: Pick<MailFilter, 'since' | 'before'>) => ({ since, before });

const stepOf = ({ words, from, to, subject }: MailFilter): number =>
  [words, from, to, subject].some((texts) => texts?.some(isLookedUp)) ? LOOKED_UP_STEP : STEP;
