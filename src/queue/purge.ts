import { type Clock, DAY_MS, HOUR_MS } from '../base/clock.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Task } from '../base/service.ts';
import type { Spool } from './delivery.ts';

export interface PurgeSettings {
  readonly keepDeadDays: number;
  readonly keepDeliveredHours: number;
  readonly keepDeliveredBytes: number;
}

/** A deviation of the wall clock from running time that means that it was set or is wrong. Milliseconds. */
const JUMP_MS = 3_600_000;
/** How long the clock must then run steadily before anything is deleted. Milliseconds. */
const STEADY_MS = 600_000;

/** Whether the clock was in doubt at the start. */
export type ClockTrust = Pick<RunningTime, 'believed'>;

/** Returns a test whether the wall clock can be trusted: after a jump, a purge could delete mail too early. */
export function createSteadiness(clock: Clock, time: ClockTrust): () => boolean {
  let offset = clock.now() - clock.monotonic();
  let jumpedAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = clock.now() - clock.monotonic();
    if (Math.abs(now - offset) > JUMP_MS) jumpedAt = clock.monotonic();
    offset = now;
    return clock.monotonic() - jumpedAt >= STEADY_MS && time.believed();
  };
}

/** Deletes deliveries that ended long enough ago: delivered messages after hours, dead letters after weeks. */
export function purgeTask(
  settings: PurgeSettings,
  deps: { spool: Pick<Spool, 'purge'>; clock: Clock; time: ClockTrust },
): Task {
  // `run` itself handles a clock that is in doubt from the start.
  const isSteady = createSteadiness(deps.clock, { believed: () => true });
  return {
    perHost: true,
    async run() {
      if (!isSteady()) return undefined;
      // The size limit applies even then: in an hour the disk could fill up.
      const before = (ms: number) => (deps.time.believed() ? deps.clock.now() - ms : 0);
      const forgotten = await deps.spool.purge({
        deliveredBefore: before(settings.keepDeliveredHours * HOUR_MS),
        deadBefore: before(settings.keepDeadDays * DAY_MS),
        deliveredBytes: settings.keepDeliveredBytes,
      });
      return forgotten > 0 ? { forgotten } : undefined;
    },
  };
}

/** Saves the current time, so that the next start can detect a wrong clock. */
export function keepTimeTask(deps: { spool: Pick<Spool, 'keepTime'>; time: Pick<RunningTime, 'memory'> }): Task {
  return {
    perHost: true,
    async run() {
      const memory = deps.time.memory();
      if (memory) await deps.spool.keepTime(JSON.stringify(memory));
      return undefined;
    },
  };
}
