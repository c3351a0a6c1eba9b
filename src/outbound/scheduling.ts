import type { Clock } from '../base/clock.ts';
import type { Spool } from '../spool/types.ts';
import type { ScheduledRow } from '../store/scheduled.ts';
import type { Store } from '../store/store.ts';

export interface SchedulingDeps {
  readonly store: Pick<Store, 'scheduled' | 'messages' | 'messageTags'>;
  readonly spool: Pick<Spool, 'drop' | 'reschedule' | 'delivery'>;
  readonly clock: Clock;
}

/** What became of a wish. `noted`: the message waits on the spool of another host, which does it within a minute. `gone`: it is on its way already. */
export type WishOutcome = 'done' | 'noted' | 'gone';

/** Messages that are to be sent later, while they wait. */
export interface Scheduling {
  /** Never sends it, and forgets it. */
  cancel(row: ScheduledRow): Promise<WishOutcome>;
  /** Sends it at another time; one that has passed means now. */
  move(row: ScheduledRow, at: Date): Promise<WishOutcome>;
  /** Does what was wished on other hosts about messages that wait here, and forgets rows whose time has passed. Answers how many of both. */
  tend(): Promise<number>;
}

/** Rows of one step. */
const STEP = 200;
/** A row may be of use a while after its time: for a wish that comes late, or by a clock that is wrong. */
const KEPT_MS = 86_400_000;

export function createScheduling({ store, spool, clock }: SchedulingDeps): Scheduling {
  /** Whether the delivery is here, and how it stands. */
  const stateOf = async ({ delivery }: ScheduledRow) => (await spool.delivery(delivery))?.state;
  const selected = ({ account, delivery }: ScheduledRow) => ({ ids: [delivery], account, states: ['waiting' as const] });

  async function cancel(row: ScheduledRow): Promise<WishOutcome> {
    const dropped = await spool.drop(selected(row), clock.now());
    const state = dropped > 0 ? 'dropped' : await stateOf(row);
    if (state === 'dropped') {
      await forget(row);
      return 'done';
    }
    if (state !== undefined) return 'gone';
    await store.scheduled.change({ id: row.id }, { wish: 'cancel' });
    return 'noted';
  }

  async function move(row: ScheduledRow, at: Date): Promise<WishOutcome> {
    const moved = await spool.reschedule(selected(row), Math.max(at.getTime(), clock.now()));
    if (moved === 0 && await stateOf(row) !== undefined) return 'gone';
    await store.scheduled.change({ id: row.id }, { sendAt: at, wish: moved > 0 ? null : 'move' });
    return moved > 0 ? 'done' : 'noted';
  }

  /** The listing goes last: cut off in between, whoever cancels again finishes it. */
  async function forget(row: ScheduledRow): Promise<void> {
    const message = await store.messages.remove({ id: row.id });
    for (const tag of message?.tags ?? []) await store.messageTags.remove({ id: `${row.id} ${tag}` });
    await store.scheduled.remove({ id: row.id });
  }

  return Object.freeze({
    cancel,
    move,
    async tend() {
      let count = 0;
      for (const row of await store.scheduled.many({ wish: { in: ['cancel', 'move'] } }, { limit: STEP })) {
        if (await stateOf(row) === undefined) continue;
        const outcome = row.wish === 'cancel' ? await cancel(row) : await move(row, row.sendAt);
        if (outcome === 'gone') await store.scheduled.change({ id: row.id }, { wish: null });
        count++;
      }
      for (const { id } of await store.scheduled.many({ sendAt: { range: { lt: new Date(clock.now() - KEPT_MS) } } }, { limit: STEP })) {
        await store.scheduled.remove({ id });
        count++;
      }
      return count;
    },
  });
}
