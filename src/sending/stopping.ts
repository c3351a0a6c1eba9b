import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Recorder } from '../events/record.ts';
import type { Spool } from '../queue/delivery.ts';
import type { SentMessageRow } from '../store/rows/messages.ts';

interface StoppingDeps {
  readonly spool: Pick<Spool, 'drop' | 'delivery'>;
  readonly recorder: Pick<Recorder, 'record'>;
  readonly clock: Clock;
}

/** Ends the delivery of a message that still waits. */
export interface Stopping {
  /**
   * `done`: no attempt begins any more; the message is rejected, as clients see it. `late`: it does not wait on this
   * host. A call that was interrupted is completed by another one.
   */
  stop(row: SentMessageRow): Promise<'done' | 'late'>;
}

export function createStopping({ spool, recorder, clock }: StoppingDeps): Stopping {
  return frozen({
    async stop({ id, account, delivery, state }) {
      if (!delivery) return 'late';
      const at = clock.now();
      const stopped = await spool.drop({ ids: [delivery], account, kinds: ['outbound'], states: ['waiting'] }, at);
      if (stopped === 0 && !((await spool.delivery(delivery))?.state === 'dropped' && mayStillCome(state)))
        return 'late';
      await recorder.record({
        id: `${id}-stopped`,
        account,
        message: id,
        kind: 'reject',
        at: new Date(at),
        detail: { reason: 'rule', diag: 'stopped by its account' },
      });
      return 'done';
    },
  });
}

const mayStillCome = (state: SentMessageRow['state']) => state === 'queued' || state === 'deferred';
