import type { Clock } from '../base/clock.ts';
import { isPulled } from '../inbound/pulled.ts';
import type { MailFilter } from '../journal/types.ts';
import { kindsOf, type QueuedDelivery, type Selection, type Spool } from '../queue/delivery.ts';
import type { Dispatcher } from '../queue/dispatcher.ts';
import type { DeliveryState } from '../queue/states.ts';
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
export type Change = 'replay' | 'drop' | 'retry';

/** How the list of actions says it: when a job starts, and when the work has ended. */
const NOTED: Readonly<Record<Change, { readonly started: string; readonly ended: string }>> = {
  replay: { started: 'replay started', ended: 'replayed' },
  drop: { started: 'drop started', ended: 'dropped' },
  retry: { started: 'retry started', ended: 'retried' },
};

interface BulkDeps {
  readonly spool: Pick<Spool, 'list' | 'count' | 'scan' | Change>;
  readonly history: Pick<AccountHistory, 'ask' | 'ids' | 'idsInTurn'>;
  readonly dispatcher: Pick<Dispatcher, 'probe'>;
  readonly jobs: Jobs;
  readonly clock: Clock;
}

/** Some deliveries of a wish: those that can be changed, and how many of them the queue no longer has. */
interface Sorted {
  readonly rows: readonly QueuedDelivery[];
  readonly forgotten: number;
}

/** How the ids of matching mail are read from the history. */
type IdsOf = (filter: MailFilter) => AsyncIterable<readonly string[]>;

/** More deliveries than this are changed by a job. */
export const MOST_AT_ONCE = 1000;
/** Deliveries changed in one step. */
const STEP = 500;
/** Endpoints that are probed after a retry. */
const MOST_PROBED = 1000;

/** Replays of inbound mail of one account, drops of it, or further attempts now. */
export function bindBulk({ spool, history, dispatcher, jobs, clock }: BulkDeps, account: string, change: Change) {
  const { started, ended } = NOTED[change];
  const own = { account, kinds: kindsOf('route') };

  /** What a consumer pulls is attempted when the consumer asks, and not given out again before its lease ends. */
  const isMeant = ({ url }: QueuedDelivery): boolean => change !== 'retry' || !isPulled(url);

  /** Of some ids, those that can be changed, and how many the queue does not have. */
  async function sort(ids: readonly string[], { states }: Wish): Promise<Sorted> {
    const queued = await spool.list({ ...own, ids }, ids.length);
    const rows = queued.filter((one) => states.some((state) => state === one.state) && isMeant(one));
    return { rows, forgotten: ids.length - queued.length };
  }

  /** The deliveries of a wish, some at a time. What changes meanwhile may be in or not. */
  async function* pages(wish: Wish, idsOf: IdsOf): AsyncGenerator<Sorted> {
    const { filter, selection, states } = wish;
    if (filter) {
      for await (const page of idsOf({ ...filter, states }))
        for (let at = 0; at < page.length; at += STEP) yield sort(page.slice(at, at + STEP), wish);
    } else if (selection.ids) {
      // As many as one call may name.
      const rows = await spool.list({ ...own, ...selection, states }, selection.ids.length);
      yield { rows: rows.filter(isMeant), forgotten: 0 };
    } else {
      for await (const page of spool.scan({ ...own, ...selection, states }))
        yield { rows: page.filter(isMeant), forgotten: 0 };
    }
  }

  async function count(wish: Wish): Promise<Matched> {
    let [matched, forgotten] = [0, 0];
    if (!wish.filter && !wish.selection.ids && change !== 'retry') {
      const counts = await spool.count({ ...own, ...wish.selection, states: wish.states });
      return { matched: wish.states.reduce((sum, state) => sum + counts[state], 0), forgotten };
    }
    for await (const page of pages(wish, history.ids)) {
      matched += page.rows.length;
      forgotten += page.forgotten;
    }
    return { matched, forgotten };
  }

  /** Changes as many as `most` allows: what comes meanwhile may match as well. */
  async function changeAll(wish: Wish, idsOf: IdsOf, most: number, progress: JobProgress): Promise<number> {
    const urls = new Set<string>();
    let done = 0;
    try {
      for await (const { rows } of pages(wish, idsOf))
        for (let at = 0; at < rows.length && !progress.stopping(); at += STEP) {
          const step = rows.slice(at, at + Math.min(STEP, most - done));
          if (step.length === 0) return done;
          for (const { url } of step) if (urls.size < MOST_PROBED) urls.add(url);
          done += await spool[change]({ ...own, ids: step.map(({ id }) => id), states: wish.states }, clock.now());
          progress.done(done);
        }
      return done;
    } finally {
      // An endpoint that is down gets no attempts but probes.
      if (change === 'retry') for (const url of urls) dispatcher.probe({ account, url });
    }
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
