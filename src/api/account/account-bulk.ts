import type { MailFilter } from '../../journal/types.ts';
import { type BulkSelection, createBulkChanges } from '../../queue/bulk-changes.ts';
import { kindsOf, type Selection } from '../../queue/delivery.ts';
import { BULK_ACTIONS, type BulkAction, type DeliveryState } from '../../queue/states.ts';
import type { Deps } from './account.ts';
import type { AccountHistory, NoteAction } from './account-history.ts';
import { type BulkRequest, runBulkChange } from './jobs.ts';

/** The inbound mail of an account that a call selects. */
export interface MailSelection {
  /** In one of these states. */
  readonly states: readonly DeliveryState[];
  /** The selection as the queue makes it. */
  readonly selection: Omit<Selection, 'account' | 'kinds' | 'webhook' | 'states'>;
  /** A selection that only the history can make; if set, `selection` is ignored. */
  readonly filter: MailFilter | undefined;
  /** The same as text, for the list of actions. */
  readonly words: string;
}

/** The terms of a change. */
interface Terms extends Pick<BulkRequest, 'dryRun' | 'atMost' | 'tooMany'> {
  /** Determines the actor. Returns the function that notes the action. */
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

  /** `idsOf` reads the ids of matching mail from the history. */
  const toBulk = (
    { states, selection, filter }: MailSelection,
    idsOf: (filter: MailFilter) => AsyncIterable<readonly string[]>,
  ): BulkSelection =>
    filter
      ? { selections: [{ ...own, states }], found: () => idsOf({ ...filter, states }) }
      : { selections: [{ ...own, ...selection, states }] };

  return {
    change(action: BulkAction, which: MailSelection, { begin, ...terms }: Terms) {
      const ask = <T>(query: () => Promise<T>) => (which.filter ? history.ask(query) : query());
      return runBulkChange(
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

/** The beginning of the detail of such actions, and of the actions that end a job. */
export const jobName = (id: string): string => `job ${id}`;
