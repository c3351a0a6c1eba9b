import type { Clock } from '../base/clock.ts';
import type { MailFilter } from '../journal/types.ts';
import { type DeliveryState, kindsOf, type Selection, type Spool } from '../queue/delivery.ts';
import type { AccountHistory, NoteAction } from './account-history.ts';
import type { Job, JobProgress, Jobs } from './jobs.ts';

/** Which deliveries are to be replayed. */
export interface Wish {
  /** In one of these states. */
  readonly states: readonly Exclude<DeliveryState, 'waiting'>[];
  /** What the queue can select. */
  readonly selection: Omit<Selection, 'account' | 'kinds' | 'webhook' | 'states'>;
  /** What only the history can find; the selection is ignored then. */
  readonly filter: MailFilter | undefined;
  /** The wish in words, for those who ask what was done. */
  readonly words: string;
}

/** How many deliveries a wish is about. */
export interface Matched {
  /** Deliveries that can be replayed. */
  readonly matched: number;
  /** Deliveries that the history knows, and the queue no longer has. */
  readonly forgotten: number;
}

interface ReplayDeps {
  readonly spool: Pick<Spool, 'list' | 'count' | 'scan' | 'replay'>;
  readonly history: Pick<AccountHistory, 'ask' | 'ids' | 'idsInTurn'>;
  readonly jobs: Jobs;
  readonly clock: Clock;
}

/** How the ids of matching mail are read from the history. */
type IdsOf = (filter: MailFilter) => AsyncIterable<readonly string[]>;

/** More deliveries than this are replayed by a job. */
export const MOST_AT_ONCE = 1000;
/** Deliveries replayed in one step. */
const STEP = 500;

/** Replays of inbound mail of one account. */
export function bindReplays({ spool, history, jobs, clock }: ReplayDeps, account: string) {
  const own = { account, kinds: kindsOf('route') };

  /** Of some ids, those that can be replayed, and how many the queue does not have. */
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

  async function replay(wish: Wish, idsOf: IdsOf, progress: JobProgress): Promise<number> {
    let done = 0;
    for await (const { ids } of pages(wish, idsOf))
      for (let at = 0; at < ids.length && !progress.stopping(); at += STEP) {
        const step = { ...own, ids: ids.slice(at, at + STEP), states: wish.states };
        done += await spool.replay(step, clock.now());
        progress.done(done);
      }
    return done;
  }

  return {
    count: (wish: Wish): Promise<Matched> => (wish.filter ? history.ask(() => count(wish)) : count(wish)),
    /** Replays them now. */
    async now(wish: Wish, note: NoteAction): Promise<number> {
      const all = () => replay(wish, history.ids, { done: () => undefined, stopping: () => false });
      const done = await (wish.filter ? history.ask(all) : all());
      if (done > 0) note('replayed', done, wish.words);
      return done;
    },
    /** Replays them after the call is answered. */
    later: (wish: Wish, of: number, note: NoteAction): Job =>
      jobs.start(account, of, async (id, progress) => {
        note(STARTED, of, `${jobName(id)}: ${wish.words}`);
        const done = await replay(wish, history.idsInTurn, progress);
        if (!progress.stopping()) note(ENDED, done, `${jobName(id)}: ${wish.words}`);
      }),
  };
}

/** What the history says of a job when it starts, and when it has ended. */
export const STARTED = 'replay started';
export const ENDED = 'replayed';
/** How the detail of both begins. */
export const jobName = (id: string): string => `job ${id}`;
