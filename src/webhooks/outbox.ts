import { createReadCache } from '../base/cache.ts';
import { type Clock, MAX_CLOCK_SKEW_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Task } from '../base/service.ts';
import type { Outbox } from '../events/apply.ts';
import type { Spool } from '../queue/delivery.ts';
import type { EventsForHook } from '../queue/events.ts';
import type { Collection } from '../store/driver/port.ts';
import type { RejectRow } from '../store/rows/lists.ts';
import type { MessageEventRow } from '../store/rows/messages.ts';
import {
  type Carrier,
  DEFAULT_EVENTS,
  type HookEvent,
  type UnsentEvent,
  type WebhookRow,
} from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { EventCopies } from './event-copies.ts';

/** Milliseconds for which an account's webhooks are cached: the delay until another host's change is seen. */
const FRESH_MS = 1000;

/** Spools events for every webhook of the account that subscribes to them. */
export function createOutbox(deps: {
  store: Pick<Store, 'webhooks'>;
  spool: Pick<Spool, 'events'>;
  copies: Pick<EventCopies, 'write'>;
  clock: Clock;
}) {
  const { store, spool, copies, clock } = deps;
  const known = createReadCache((account) => store.webhooks.many({ account }), FRESH_MS);

  return frozen({
    async publish(account: string, events: readonly UnsentEvent[]) {
      if (events.length === 0) return;
      const wanted = (await known.get(account, clock.monotonic()))
        .map((row) => toWanted(row, events))
        .filter((one) => one.events.length > 0);
      // Copies first: one that is written after its batch has ended would stay.
      const ours = wanted.length > 0 ? await copies.write(wanted) : wanted;
      if (ours.length > 0) await spool.events.publish(ours, clock.now());
    },
    /** Drops the account's cached webhooks, so that later events go to the current ones. */
    forget: known.forget,
  });
}

function toWanted({ id, account, url, events: named }: WebhookRow, events: readonly UnsentEvent[]): EventsForHook {
  return { hook: { id, account, url }, events: events.filter(({ event }) => wants(named, event)) };
}

function wants(named: readonly HookEvent[], event: HookEvent): boolean {
  return (named.length === 0 ? DEFAULT_EVENTS : named).includes(event);
}

/** Milliseconds. Newer rows may still be in use by their writer. */
const GRACE_MS = 30_000;
const PAGE = 500;

interface CarrierRow extends Carrier {
  readonly account: string;
}

/** A row of the rejection list or the allow list. */
type ListedRow = Pick<RejectRow, 'id' | 'account' | 'version' | 'removed' | keyof Carrier>;

interface SweepDeps {
  readonly store: Pick<Store, 'messageEvents' | 'rejects' | 'whitelists'>;
  readonly outbox: Outbox;
  readonly clock: Clock;
}

/** When the events were added to the rows. */
type Since = { readonly lt: Date } | { readonly gt: Date };

/** A collection whose rows may carry events. */
interface Carriers<R> {
  waiting(since: Since): Promise<R[]>;
  /** Marks the row's events as spooled. Undefined if the row has changed since: it is checked again later. */
  settle(row: R): Promise<R | undefined>;
}

/**
 * Publishes events left in rows by a crash or a failed spool write, and returns the number of rows. Safe while the
 * writer of a row is still running: the spool accepts an event once, and a row that changed meanwhile is skipped.
 * Passes on errors of the store and the spool.
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
        await outbox.publish(row.account, row.unsent ?? []);
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
    for (const since of [{ lt: new Date(now - GRACE_MS) }, { gt: new Date(now + MAX_CLOCK_SKEW_MS) }]) {
      count += await sweep(messageEvents(store.messageEvents), since, ending);
      count += await sweep(listed(store.rejects), since, ending);
      count += await sweep(listed(store.whitelists), since, ending);
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

/** The rows of a list; a removed one stays until its event is on the spool. */
function listed(rows: Pick<Collection<ListedRow>, 'many' | 'change' | 'remove'>): Carriers<ListedRow> {
  return {
    waiting: (since) => rows.many({ unsentSince: { range: since } }, PAGES),
    settle: ({ id, version, removed }) =>
      removed ? rows.remove({ id, version }) : rows.change({ id, version }, { ...SENT, version: version + 1 }),
  };
}

/** Publishes events that were left in their rows. */
export function sweepOutboxTask(deps: { readonly sweep: (ending?: AbortSignal) => Promise<number> }): Task {
  return {
    async run(ending) {
      const rows = await deps.sweep(ending);
      return rows > 0 ? { rows } : undefined;
    },
  };
}
