import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import { sentId } from '../mail/return-address.ts';
import type { DeliveryState, Spool } from '../queue/delivery.ts';
import type { ScheduledRow } from '../store/rows/messages.ts';
import type { Store } from '../store/store.ts';

interface SchedulingDeps {
  readonly store: Pick<Store, 'scheduled' | 'messages' | 'messageTags'>;
  readonly spool: Pick<Spool, 'drop' | 'reschedule' | 'delivery'>;
  readonly clock: Clock;
  /** Nothing is forgotten by a clock that cannot be believed. */
  readonly time: Pick<RunningTime, 'sure'>;
}

/** Whether a wish came in time. `late`: the host that has the message has claimed it, and may have sent it. */
type WishOutcome = 'done' | 'late';

/**
 * What whoever is about to send a message is told: it is theirs to send; it was cancelled; or it is not to go before
 * that time. `first`: nobody has claimed it before, so that nobody can have sent it.
 */
export type Claim =
  | { readonly kind: 'ours'; readonly first: boolean }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'moved'; readonly at: number };

/**
 * Messages that are to be sent later, while they wait. What is waited for here is the store's to say, whichever host is
 * asked.
 */
export interface Scheduling {
  /** `done`: no host sends it any more, not even one that is down now. Asked again it finishes what was cut off. */
  cancel(row: ScheduledRow): Promise<WishOutcome>;
  /**
   * Sends it at another time; one that has passed means now. `done`: no host sends it before. One that has to send it
   * earlier hears of that within a minute.
   */
  move(row: ScheduledRow, at: Date): Promise<WishOutcome>;
  /**
   * Claims a message of this host's spool whose time has come: from then on nobody can cancel or move it. Whoever has
   * claimed it gets it again, so that a process that ended in between goes on. Throws StoreAway: nobody knows, and it
   * has to wait.
   */
  claim(delivery: string): Promise<Claim>;
  /** Gives a first claim back, of which nothing was sent. */
  release(delivery: string): Promise<void>;
  /**
   * Does what other hosts were asked to do about messages that wait here, and forgets rows that are of no more use.
   * Answers how many of both.
   */
  tend(): Promise<number>;
}

/** Rows of one step. */
const STEP = 200;
const DAY_MS = 86_400_000;
/** So long it can be said that a message has left. */
const LEFT_MS = DAY_MS;
/** So long a host may be down and hear at its return that a message was cancelled. */
const WAITED_MS = 365 * DAY_MS;
/** Timers run by another clock than the wall's: nobody puts a message off for what lies between the two. */
const SLACK_MS = 1000;

const UNCLAIMED = { in: [null, 'moved'] } as const;

export function createScheduling({ store, spool, clock, time }: SchedulingDeps): Scheduling {
  const { scheduled } = store;
  /** How the delivery stands; undefined: it is not here, but on the spool of another host, or not on any yet. */
  const stateOf = async ({ delivery }: ScheduledRow): Promise<DeliveryState | undefined> =>
    (await spool.delivery(delivery))?.state;
  const selected = ({ account, delivery }: ScheduledRow) => ({
    ids: [delivery],
    account,
    states: ['waiting' as const],
  });

  async function cancel({ id }: ScheduledRow): Promise<WishOutcome> {
    const row = await scheduled.change({ id, state: { in: [null, 'moved', 'cancelled'] } }, { state: 'cancelled' });
    if (!row) return 'late';
    await finish(row);
    return 'done';
  }

  /**
   * The row of what is cancelled goes last, when its delivery is over; where that is not here, its own host does it.
   */
  async function finish(row: ScheduledRow): Promise<boolean> {
    await spool.drop(selected(row), clock.now());
    const state = await stateOf(row);
    const message = await store.messages.remove({ id: row.id });
    for (const tag of message?.tags ?? []) await store.messageTags.remove({ id: `${row.id} ${tag}` });
    if (state === undefined || state === 'waiting') return false;
    return (await scheduled.remove({ id: row.id, state: 'cancelled' })) !== undefined;
  }

  async function move({ id }: ScheduledRow, at: Date): Promise<WishOutcome> {
    const row = await scheduled.change({ id, state: UNCLAIMED }, { sendAt: at, state: 'moved' });
    if (!row) return 'late';
    await align(row);
    return 'done';
  }

  /** Takes the time of the row over to the spool, if the delivery is here. */
  async function align(row: ScheduledRow): Promise<boolean> {
    const moved = await spool.reschedule(selected(row), Math.max(row.sendAt.getTime(), clock.now()));
    if (moved === 0 && (await stateOf(row)) === undefined) return false;
    // Not if it was moved again meanwhile.
    return (await scheduled.change({ id: row.id, state: 'moved', sendAt: row.sendAt }, { state: null })) !== undefined;
  }

  async function claim(delivery: string): Promise<Claim> {
    const id = sentId(delivery);
    const latest = new Date(clock.now() + SLACK_MS);
    const claimed = await scheduled.change(
      { id, state: UNCLAIMED, sendAt: { range: { lte: latest } } },
      { state: 'leaving' },
    );
    if (claimed) return { kind: 'ours', first: true };
    const row = await scheduled.one({ id });
    if (row?.state === 'cancelled') return { kind: 'cancelled' };
    if (row?.state === 'leaving') return { kind: 'ours', first: false };
    if (row && row.sendAt > latest) {
      await align(row);
      return { kind: 'moved', at: row.sendAt.getTime() };
    }
    if (row) return await claim(delivery); // it was moved once more in this moment, to now
    // Without a row (the store was set back, or forgot it after a year) we still owe the mail that we took, unless it
    // was cancelled on this host in this moment: then its delivery was dropped before its row went.
    return (await spool.delivery(delivery))?.state === 'waiting'
      ? { kind: 'ours', first: false }
      : { kind: 'cancelled' };
  }

  /** Does `work` for every row of a state, whichever host has it. Answers for how many it did something. */
  async function tendAll(state: 'cancelled' | 'moved', work: (row: ScheduledRow) => Promise<boolean>): Promise<number> {
    let count = 0;
    for (let last = ''; ; ) {
      const rows = await scheduled.many({ state, id: { range: { gt: last } } }, { sort: 'id', limit: STEP });
      for (const row of rows) if ((await stateOf(row)) !== undefined && (await work(row))) count++;
      last = rows.at(-1)?.id ?? last;
      if (rows.length < STEP) return count;
    }
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
    async release(delivery) {
      await scheduled.change({ id: sentId(delivery), state: 'leaving' }, { state: null });
    },
    async tend() {
      return (await tendAll('cancelled', finish)) + (await tendAll('moved', align)) + (await forget());
    },
  });
}

/** Does on this host what was wished on others about messages that are to be sent later. */
export function tendScheduledTask({ scheduling }: { readonly scheduling: Pick<Scheduling, 'tend'> }): Task {
  return {
    perHost: true,
    async run() {
      const tended = await scheduling.tend();
      return tended > 0 ? { tended } : undefined;
    },
  };
}
