import { type Clock, DAY_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { sentId } from '../mail/addresses/return-address.ts';
import type { Spool } from '../queue/delivery.ts';
import type { DeliveryState } from '../queue/states.ts';
import { RowTooNew } from '../store/features.ts';
import { pagesById } from '../store/pages.ts';
import { SCHEDULED_CHANGES, type ScheduledChange, type ScheduledRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';
import type { Copies } from './copies.ts';

interface SchedulingDeps {
  readonly store: Pick<Store, 'scheduled' | 'messages' | 'messageTags' | 'understands'>;
  readonly spool: Pick<Spool, 'drop' | 'reschedule' | 'delivery'>;
  readonly copies: Pick<Copies, 'cancelled'>;
  readonly clock: Clock;
  /** Nothing is deleted while the clock is not trusted. */
  readonly time: Pick<RunningTime, 'sure'>;
}

/** Whether a change came in time. `late`: the host that has the message has claimed it, and may have sent it. */
type WishOutcome = 'done' | 'late';

/**
 * The answer to a host that is about to send a message: `ours`: send it; `cancelled`; `moved`: not before `at`.
 * `first`: it was not claimed before, so it cannot have been sent.
 */
export type Claim =
  | { readonly kind: 'ours'; readonly first: boolean }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'moved'; readonly at: number };

/** Scheduled messages, before they are sent. The store is authoritative for their state, whichever host is asked. */
export type Scheduling = ReturnType<typeof createScheduling>;

/** Rows per query. */
const STEP = 200;
/** How long a claimed row is kept after its send time, so that a late change can be refused as such. */
const LEFT_MS = DAY_MS;
/** How long a row is kept after its send time, so that a host that was down still learns of a cancellation. */
const WAITED_MS = 365 * DAY_MS;
/** Timers do not run by the wall clock: a message is not put off for a difference this small. */
const SLACK_MS = 1000;

const UNCLAIMED = { in: [null, 'moved'] } as const;

export function createScheduling({ store, spool, copies, clock, time }: SchedulingDeps) {
  const { scheduled } = store;
  /** The state of the delivery on this host; undefined: it is on another host's spool, or not on any yet. */
  const stateOf = async ({ delivery }: ScheduledRow): Promise<DeliveryState | undefined> =>
    (await spool.delivery(delivery))?.state;
  const selected = ({ account, delivery }: ScheduledRow) => ({
    ids: [delivery],
    account,
    states: ['waiting' as const],
  });

  /** `done`: no host will send it, not even one that is down now. Calling again completes an interrupted call. */
  async function cancel({ id }: ScheduledRow): Promise<WishOutcome> {
    const row = await scheduled.change({ id, state: { in: [null, ...SCHEDULED_CHANGES] } }, { state: 'cancelled' });
    if (!row) return 'late';
    await finish(row);
    return 'done';
  }

  /**
   * Drops a cancelled delivery and its rows; the schedule row last, once the delivery is settled. If the delivery is on
   * another host, that host deletes the row.
   */
  async function finish(row: ScheduledRow): Promise<boolean> {
    await spool.drop(selected(row), clock.now());
    const state = await stateOf(row);
    await copies.cancelled(row.delivery);
    const message = await store.messages.remove({ id: row.id });
    for (const tag of message?.tags ?? []) await store.messageTags.remove({ id: `${row.id} ${tag}` });
    if (state === undefined || state === 'waiting') return false;
    return (await scheduled.remove({ id: row.id, state: 'cancelled' })) !== undefined;
  }

  /**
   * Reschedules a message; a time in the past means now. `done`: no host sends it earlier. A host that has to send it
   * sooner learns of that within a minute.
   */
  async function move({ id }: ScheduledRow, at: Date): Promise<WishOutcome> {
    const row = await scheduled.change({ id, state: UNCLAIMED }, { sendAt: at, state: 'moved' });
    if (!row) return 'late';
    await align(row);
    return 'done';
  }

  /** Copies the row's time to the spool, if the delivery is here. */
  async function align(row: ScheduledRow): Promise<boolean> {
    const moved = await spool.reschedule(selected(row), Math.max(row.sendAt.getTime(), clock.now()));
    if (moved === 0 && (await stateOf(row)) === undefined) return false;
    // Only if it was not moved again meanwhile.
    return (await scheduled.change({ id: row.id, state: 'moved', sendAt: row.sendAt }, { state: null })) !== undefined;
  }

  /**
   * Claims a message on this host's spool whose time has come; after that it cannot be cancelled or moved. A claim can
   * be repeated, so that a process that ended in between can continue. Throws `StoreAway`: the state is unknown, or a
   * newer version wrote it, and the message has to wait.
   */
  async function claim(delivery: string): Promise<Claim> {
    const id = sentId(delivery);
    const latest = new Date(clock.now() + SLACK_MS);
    const claimed = await scheduled.change(
      { id, state: UNCLAIMED, sendAt: { range: { lte: latest } } },
      { state: 'leaving' },
    );
    if (claimed) return { kind: 'ours', first: true };
    const row = await scheduled.one({ id });
    if (row && !store.understands(row)) throw new RowTooNew(row);
    if (row?.state === 'cancelled') return { kind: 'cancelled' };
    if (row?.state === 'leaving') return { kind: 'ours', first: false };
    if (row && row.sendAt > latest) {
      await align(row);
      return { kind: 'moved', at: row.sendAt.getTime() };
    }
    if (row) return await claim(delivery); // just moved again, to now
    // Without a row (the store was restored from a backup, or deleted it after a year) accepted mail is still owed,
    // unless it was just cancelled on this host: then its delivery was dropped before its row.
    return (await spool.delivery(delivery))?.state === 'waiting'
      ? { kind: 'ours', first: false }
      : { kind: 'cancelled' };
  }

  /** Runs `work` for every row of a state whose delivery is on this host. Returns for how many it made a change. */
  async function tendAll(state: ScheduledChange, work: (row: ScheduledRow) => Promise<boolean>): Promise<number> {
    let count = 0;
    for await (const page of pagesById(scheduled, { filter: { state }, limit: STEP }))
      for (const row of page.filter(store.understands))
        if ((await stateOf(row)) !== undefined && (await work(row))) count++;
    return count;
  }

  async function forget(): Promise<number> {
    if (!time.sure()) return 0;
    const before = (ms: number) => ({ range: { lt: new Date(clock.now() - ms) } });
    const left = await scheduled.many({ state: 'leaving', sendAt: before(LEFT_MS) }, { limit: STEP });
    const old = await scheduled.many({ sendAt: before(WAITED_MS) }, { limit: STEP });
    for (const { id } of [...left, ...old]) await scheduled.remove({ id });
    return left.length + old.length;
  }

  return frozen({
    cancel,
    move,
    claim,
    /** Releases a first claim when nothing was sent. */
    async release(delivery: string) {
      await scheduled.change({ id: sentId(delivery), state: 'leaving' }, { state: null });
    },
    /** Applies changes of other hosts to messages on this spool, and deletes rows no longer needed. Returns the sum. */
    async tend(): Promise<number> {
      return (await tendAll('cancelled', finish)) + (await tendAll('moved', align)) + (await forget());
    },
  });
}

/** Applies changes to scheduled messages that other hosts received. */
export function tendScheduledTask({ scheduling }: { readonly scheduling: Pick<Scheduling, 'tend'> }): Task {
  return {
    perHost: true,
    async run() {
      const tended = await scheduling.tend();
      return tended > 0 ? { tended } : undefined;
    },
  };
}
