import { createLoop } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { RunningTime } from '../../base/running-time.ts';
import type { Tools } from '../../base/tools.ts';
import type { QueuedDelivery, Spool } from '../delivery.ts';
import type { Roads } from '../road.ts';

// Expires pulled deliveries, which are in no lane.

/** Milliseconds between two checks. */
const EVERY = 60_000;
/** Deliveries of one endpoint that are given up in one step. */
const STEP = 200;

interface OverdueDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'waitingOfAll' | 'overdue'>;
  readonly roads: Roads;
  readonly time: Pick<RunningTime, 'age' | 'sure'>;
  /** Gives up a delivery. Never throws. */
  readonly giveUp: (delivery: QueuedDelivery) => Promise<void>;
}

/** Gives up deliveries whose consumer did not pull them in time. */
export function createOverdue({ spool, roads, time, clock, log, giveUp }: OverdueDeps) {
  async function look(): Promise<void> {
    if (!time.sure()) return;
    for (const endpoint of spool.waitingOfAll()) {
      const { limit, isPulled } = roads[endpoint.kind];
      if (!isPulled?.(endpoint.url)) continue;
      for (let more = true; more && !loop.isStopped(); ) {
        const now = clock.now();
        // The age is shorter than the difference of the times, if at all; see base/running-time.ts.
        const found = await spool.overdue(endpoint, now - limit, now, STEP);
        const over = found.filter(({ budgetFrom }) => time.age(budgetFrom) >= limit);
        for (const delivery of over) await giveUp(delivery);
        // Deliveries behind an expired one are due now.
        more = over.length > 0;
      }
    }
  }

  const loop = createLoop(clock, async () => {
    await look().catch((error: unknown) => log.error('spool.fault', { error }));
    return EVERY;
  });

  return frozen({
    start: () => loop.startAfter(EVERY),
    stop: loop.stop,
  });
}
