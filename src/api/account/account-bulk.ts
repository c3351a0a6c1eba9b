import type { MailFilter } from '../../journal/types.ts';
import { type BulkSelection, createBulkChanges } from '../../queue/bulk-changes.ts';
import { kindsOf, type Selection } from '../../queue/delivery.ts';
import { BULK_ACTIONS, type BulkAction, type DeliveryState } from '../../queue/states.ts';
import type { Deps } from './account.ts';
import type { AccountHistory, NoteAction } from './account-history.ts';
import { type BulkOrder, carryOut } from './jobs.ts';

/** Which inbound mail of an account a call means. */
export interface MailSelection {
  /** In one of these states. */
  readonly states: readonly DeliveryState[];
  /** What the queue can select. */
  readonly selection: Omit<Selection, 'account' | 'kinds' | 'webhook' | 'states'>;
  /** A selection that only the history can make; the other selection is ignored then. */
  readonly filter: MailFilter | undefined;
  /** The same in words, for those who ask what was done. */
  readonly words: string;
}

/** How a call wants it changed. */
interface Terms extends Pick<BulkOrder, 'dryRun' | 'atMost' | 'tooMany'> {
  /** Finds out who acts. */
  begin(): Promise<NoteAction>;
}

/** Replays of inbound mail of one account, drops of it, or further attempts now. */
export function bindBulk(
  { spool, dispatcher, jobs, clock }: Deps<'spool' | 'dispatcher' | 'jobs' | 'clock'>,
  history: Pick<AccountHistory, 'ask' | 'ids' | 'idsInTurn'>,
  account: string,
) {
  const bulk = createBulkChanges({ spool, probe: dispatcher.probe, clock });
  const own = { account, kinds: kindsOf('route') };

  /** `idsOf`: how the ids of matching mail are read from the history. */
  const toBulk = (
    { states, selection, filter }: MailSelection,
    idsOf: (filter: MailFilter) => AsyncIterable<readonly string[]>,
  ): BulkSelection =>
    filter
      ? { selections: [{ ...own, states }], found: () => idsOf({ ...filter, states }) }
      : { selections: [{ ...own, ...selection, states }] };

  return {
    change(action: BulkAction, which: MailSelection, { begin, ...terms }: Terms) {
      const ask = <T>(question: () => Promise<T>) => (which.filter ? history.ask(question) : question());
      return carryOut(
        {
          owner: account,
          ...terms,
          count: () => ask(() => bulk.count(action, toBulk(which, history.ids))),
          async begin() {
            const note = await begin();
            const { started, ended } = BULK_ACTIONS[action];
            return async (course, job) => {
              if (job === undefined) {
                const done = await ask(() => bulk.change(action, toBulk(which, history.ids), course));
                if (done > 0) note(ended, done, which.words);
                return done;
              }
              const words = `${jobName(job.id)}: ${which.words}`;
              note(started, job.of, words);
              const done = await bulk.change(action, toBulk(which, history.idsInTurn), course);
              if (!course.stopping?.()) note(ended, done, words);
              return done;
            };
          },
        },
        jobs,
      );
    },
  };
}

/** Whether an action is the start of a job. */
export const isStart = ({ what }: { readonly what: string }): boolean =>
  Object.values(BULK_ACTIONS).some(({ started }) => started === what);

/** How the detail of such actions begins, and of those that end them. */
export const jobName = (id: string): string => `job ${id}`;
