import { createShares, type Shares } from '../../base/shares.ts';
import { COMMAND_LINE, noteAction } from '../../journal/actions.ts';
import type { ActionRecord, HistoryPage, MailFilter, MailStory, RefusalFilter } from '../../journal/types.ts';
import { kindsOf } from '../../queue/delivery.ts';
import type { AccountStore } from '../../store/store.ts';
import { tooMany } from '../errors.ts';
import type { Deps } from './account.ts';

// An account's view of the history of this host.

/** Concurrent queries of the journal: its thread also writes, and one account must not crowd out others. */
const MAX_QUERIES = { all: 20, each: 4 };
/** Seconds after which a client may ask again. */
const RETRY_S = 1;
/** The interval between checks whether a job may run its query. */
const WAIT_MS = 100;

/** Counts the concurrent queries of all accounts. */
export const createQueryShares = (): Shares => createShares(MAX_QUERIES);

const INBOUND = kindsOf('route');
const CONVERSATIONS = kindsOf('route', 'sender');

/**
 * The inbound mail of one account, its conversations, and its refusals. Throws RequestLimitExceeded and `JournalAway`.
 */
export function bindHistory({ history, clock }: Deps<'history' | 'clock'>, shares: Shares, account: string) {
  const mine = (filter: MailFilter): MailFilter => ({ ...filter, account, kinds: INBOUND });

  async function ask<T>(query: () => Promise<T>): Promise<T> {
    if (shares.take(account, 1) !== 'taken') throw tooMany(RETRY_S);
    try {
      return await query();
    } finally {
      shares.give(account, 1);
    }
  }

  return {
    mail: (filter: MailFilter, limit: number, cursor?: number) => ask(() => history.mail(mine(filter), limit, cursor)),
    /** The latest mail of a conversation, received and sent, newest first. */
    conversation: (thread: string, limit: number) =>
      ask(() => history.mail({ account, kinds: CONVERSATIONS, thread }, limit)),
    causes: (filter: MailFilter) => ask(() => history.causes(mine(filter))),
    /** Undefined if it is not known, or not inbound mail of the account. */
    one: (id: string): Promise<MailStory | undefined> =>
      ask(async () => {
        const story = await history.one(id, account);
        return story && INBOUND.includes(story.mail.kind) ? story : undefined;
      }),
    refusals: (filter: RefusalFilter, limit: number, cursor?: number) =>
      ask(async () => ({
        ...(await history.refusals({ ...filter, account }, limit, cursor)),
        byReason: await history.refusalsByReason({ ...filter, account }),
      })),
    actions: (limit: number, cursor?: number): Promise<HistoryPage<ActionRecord>> =>
      ask(() => history.actions(account, limit, cursor)),
    /** Runs a query of the caller, such as one that reads `ids`, within the limit. */
    ask,
    /** The ids of matching mail, in pages. Read them within `ask`. */
    ids: (filter: MailFilter) => history.ids(mine(filter)),
    /** The same for a job: each page waits until the limit allows its query. */
    async *idsInTurn(filter: MailFilter): AsyncGenerator<readonly string[]> {
      const pages = history.ids(mine(filter))[Symbol.asyncIterator]();
      for (;;) {
        while (shares.take(account, 1) !== 'taken') await new Promise<void>((wake) => clock.after(WAIT_MS, wake));
        const { done, value } = await pages.next().finally(() => shares.give(account, 1));
        if (done) return;
        yield value;
      }
    },
  };
}

export type AccountHistory = ReturnType<typeof bindHistory>;

/** Notes an action: its name, the number of deliveries, and a detail as text. */
export type NoteAction = (what: string, count: number, detail: string) => void;

/** The actions of one account, done with an API key (the `id` of its row), by a person, or on the command line. */
export function bindActions(
  { notes, clock }: Deps<'notes' | 'clock'>,
  store: Pick<AccountStore, 'account' | 'keys'>,
  { apiKey, person }: { readonly apiKey: string | null; readonly person: string | null },
) {
  return {
    /** Determines the actor. Call it before the change, because the store may be away after it. */
    async begin(): Promise<NoteAction> {
      const row = apiKey === null ? undefined : await store.keys.one({ id: apiKey });
      const by = person ?? row?.hint ?? COMMAND_LINE;
      const { account } = store;
      return (what, count, detail) => noteAction({ notes, clock, by }, what, count, detail, account);
    },
  };
}
