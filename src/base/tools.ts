import type { Clock } from './clock.ts';
import type { Ids } from './ids.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

/** The dependencies that most parts have; each picks those that it uses. */
export interface Tools {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly metrics: Metrics;
}
