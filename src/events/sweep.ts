import { AGREE_MS, type Clock } from '../base/clock.ts';
import type { MessageEventRow } from '../store/message-events.ts';
import type { Carrier } from '../store/outbox.ts';
import type { RejectRow } from '../store/rejects.ts';
import type { Store } from '../store/store.ts';
import type { WhitelistRow } from '../store/whitelists.ts';
import type { Outbox } from './types.ts';

/** Younger rows are still in the hands of who wrote them. Milliseconds. */
const GRACE_MS = 30_000;
const PAGE = 500;

interface CarrierRow extends Carrier {
  readonly account: string;
}

export interface SweepDeps {
  readonly store: Pick<Store, 'messageEvents' | 'rejects' | 'whitelists'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
}

/** When rows came to carry what is looked for. */
type Since = { readonly lt: Date } | { readonly gt: Date };

/** A collection whose rows may carry events. */
interface Carriers<R> {
  waiting(since: Since): Promise<R[]>;
  /** The spool has the events of the row. Undefined: somebody changed the row since, and it is looked at again later. */
  settle(row: R): Promise<R | undefined>;
}

/**
 * Publishes what rows still carry: what a crash, or a spool that could not be written, left between the row and the spool.
 * Answers how many rows. Safe beside whoever wrote them: the spool takes an event once, and a row that changed meanwhile is
 * left alone. Throws what the store and the spool throw.
 */
export function createSweep({ store, outbox, clock }: SweepDeps): (ending?: AbortSignal) => Promise<number> {
  async function sweep<R extends CarrierRow>(
    carriers: Carriers<R>,
    since: Since,
    ending: AbortSignal | undefined,
  ): Promise<number> {
    let count = 0;
    while (!ending?.aborted) {
      const found = await carriers.waiting(since);
      let done = 0;
      for (const row of found) {
        await outbox.publish(
          row.account,
          (row.unsent ?? []).map((event) => ({ ...event, at: new Date(event.at) })),
        );
        if (await carriers.settle(row)) done++;
      }
      count += done;
      if (done === 0 || found.length < PAGE) break;
    }
    return count;
  }
  return async (ending) => {
    const now = clock.now();
    let count = 0;
    for (const since of [{ lt: new Date(now - GRACE_MS) }, { gt: new Date(now + AGREE_MS) }]) {
      count += await sweep(messageEvents(store.messageEvents), since, ending);
      count += await sweep(rejects(store.rejects), since, ending);
      count += await sweep(whitelists(store.whitelists), since, ending);
    }
    return count;
  };
}

const SENT = { unsent: null, unsentSince: null } as const;
const PAGES = { sort: 'unsentSince', limit: PAGE } as const;

function messageEvents(rows: Store['messageEvents']): Carriers<MessageEventRow> {
  return {
    waiting: (since) => rows.many({ unsentSince: { range: since } }, PAGES),
    settle: ({ id }) => rows.change({ id }, SENT),
  };
}

function rejects(rows: Store['rejects']): Carriers<RejectRow> {
  return {
    waiting: (since) => rows.many({ unsentSince: { range: since } }, PAGES),
    settle: ({ id, version, removed }) =>
      removed ? rows.remove({ id, version }) : rows.change({ id, version }, { ...SENT, version: version + 1 }),
  };
}

function whitelists(rows: Store['whitelists']): Carriers<WhitelistRow> {
  return {
    waiting: (since) => rows.many({ unsentSince: { range: since } }, PAGES),
    settle: ({ id, version, removed }) =>
      removed ? rows.remove({ id, version }) : rows.change({ id, version }, { ...SENT, version: version + 1 }),
  };
}
