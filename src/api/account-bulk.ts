import type { Clock } from '../base/clock.ts';
import type { MailFilter } from '../journal/types.ts';
import { type DeliveryState, kindsOf, type Selection, type Spool } from '../queue/delivery.ts';
import type { AccountHistory, NoteAction } from './account-history.ts';
import type { Job, JobProgress, Jobs } from './jobs.ts';

/** Which deliveries are to be replayed, or dropped. */
export interface Wish {
  /** In one of these states. */
  readonly states: readonly DeliveryState[];
  /** What the queue can select. */
  readonly selection: Omit<Selection, 'account' | 'kinds' | 'webhook' | 'states'>;
  /** What only the history can find; the selection is ignored then. */
  readonly filter: MailFilter | undefined;
  /** The wish in words, for those who ask what was done. */
  readonly words: string;
}

/** How many deliveries a wish is about. */
export interface Matched {
  /** Deliveries that can be changed. */
  readonly matched: number;
  /** Deliveries that the history knows, and the queue no longer has. */
  readonly forgotten: number;
}

/** What is done with them. */
type Change = 'replay' | 'drop';

/** How the list of actions says it: when a job starts, and when the work has ended. */
const NOTED: Readonly<Record<Change, { readonly started: string; readonly ended: string }>> = {
  replay: { started: 'replay started', ended: 'replayed' },
  drop: { started: 'drop started', ended: 'dropped' },
};

interface BulkDeps {
  readonly spool: Pick<Spool, 'list' | 'count' | 'scan' | Change>;
  readonly history: Pick<AccountHistory, 'ask' | 'ids' | 'idsInTurn'>;
  readonly jobs: Jobs;
  readonly clock: Clock;
}

/** How the ids of matching mail are read from the history. */
type IdsOf = (filter: MailFilter) => AsyncIterable<readonly string[]>;

/** More deliveries than this are changed by a job. */
export const MOST_AT_ONCE = 1000;
/** Deliveries changed in one step. */
const STEP = 500;

/** Replays of inbound mail of one account, or drops of it. */
export function bindBulk({ spool, history, jobs, clock }: BulkDeps, account: string, change: Change) {
  const { started, ended } = NOTED[change];
  const own = { account, kinds: kindsOf('route') };

  /** Of some ids, those that can be changed, and how many the queue does not have. */
  async function sort(ids: readonly string[], { states }: Wish) {
    const queued = await spool.list({ ...own, ids }, ids.length);
    const matching = queued.filter(({ state }) => states.some((one) => one === state));
    return { ids: matching.map(({ id }) => id), forgotten: ids.length - queued.length };
  }

  /** The deliveries of a wish, some at a time. What changes meanwhile may be in or not. */
  async function* pages(wish: Wish, idsOf: IdsOf): AsyncGenerator<Awaited<ReturnType<typeof sort>>> {
    const { filter, selection, states } = wish;
    if (filter) {
      for await (const page of idsOf({ ...filter, states }))
        for (let at = 0; at < page.length; at += STEP) yield sort(page.slice(at, at + STEP), wish);
    } else if (selection.ids) {
      // As many as one call may name.
      const rows = await spool.list({ ...own, ...selection, states }, selection.ids.length);
      yield { ids: rows.map(({ id }) => id), forgotten: 0 };
    } else {
      for await (const page of spool.scan({ ...own, ...selection, states }))
        yield { ids: page.map(({ id }) => id), forgotten: 0 };
    }
  }

  async function count(wish: Wish): Promise<Matched> {
    let [matched, forgotten] = [0, 0];
    if (!wish.filter && !wish.selection.ids) {
      const counts = await spool.count({ ...own, ...wish.selection, states: wish.states });
      return { matched: wish.states.reduce((sum, state) => sum + counts[state], 0), forgotten };
    }
    for await (const page of pages(wish, history.ids)) {
      matched += page.ids.length;
      forgotten += page.forgotten;
    }
    return { matched, forgotten };
  }

  /** Changes as many as `most` allows: what comes meanwhile may match as well. */
  async function changeAll(wish: Wish, idsOf: IdsOf, most: number, progress: JobProgress): Promise<number> {
    let done = 0;
    for await (const { ids } of pages(wish, idsOf))
      for (let at = 0; at < ids.length && !progress.stopping(); at += STEP) {
        const step = { ...own, ids: ids.slice(at, at + Math.min(STEP, most - done)), states: wish.states };
        if (step.ids.length === 0) return done;
        done += await spool[change](step, clock.now());
        progress.done(done);
      }
    return done;
  }

  return {
    count: (wish: Wish): Promise<Matched> => (wish.filter ? history.ask(() => count(wish)) : count(wish)),
    /** Changes them now, but no more than `most`. */
    async now(wish: Wish, note: NoteAction, most = Number.POSITIVE_INFINITY): Promise<number> {
      const all = () => changeAll(wish, history.ids, most, { done: () => undefined, stopping: () => false });
      const done = await (wish.filter ? history.ask(all) : all());
      if (done > 0) note(ended, done, wish.words);
      return done;
    },
    /** Changes them after the call is answered. */
    later: (wish: Wish, of: number, note: NoteAction, most = Number.POSITIVE_INFINITY): Job =>
      jobs.start(account, of, async (id, progress) => {
        note(started, of, `${jobName(id)}: ${wish.words}`);
        const done = await changeAll(wish, history.idsInTurn, most, progress);
        if (!progress.stopping()) note(ended, done, `${jobName(id)}: ${wish.words}`);
      }),
  };
}

/** Whether an action is the start of a job. */
export const isStart = ({ what }: { readonly what: string }): boolean =>
  Object.values(NOTED).some(({ started }) => started === what);
/** How the detail of such actions begins, and of those that end them. */
export const jobName = (id: string): string => `job ${id}`;
