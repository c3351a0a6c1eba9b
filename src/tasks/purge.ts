import type { Clock } from '../base/clock.ts';
import type { Spool } from '../spool/types.ts';
import type { Task } from './task.ts';

export interface PurgeSettings {
  readonly keepDeadDays: number;
  readonly keepDeliveredHours: number;
  readonly keepDeliveredBytes: number;
}

/** Forgets what ended long enough ago: delivered messages after hours, dead letters after weeks. */
export function purgeTask(settings: PurgeSettings, deps: { spool: Pick<Spool, 'purge'>; clock: Clock }): Task {
  return {
    name: 'purge',
    schedule: '* * * * *',
    async run() {
      const now = deps.clock.now();
      const forgotten = await deps.spool.purge({
        deliveredBefore: now - settings.keepDeliveredHours * 3_600_000,
        deadBefore: now - settings.keepDeadDays * 86_400_000,
        deliveredBytes: settings.keepDeliveredBytes,
      });
      return forgotten > 0 ? { forgotten } : undefined;
    },
  };
}
