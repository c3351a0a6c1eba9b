import type { Clock } from '../base/clock.ts';
import type { Spool } from '../spool/types.ts';
import { purgeTask, type PurgeSettings } from './purge.ts';
import type { Task } from './task.ts';

/** Every task of the daemon. */
export function createTasks(settings: { readonly purge: PurgeSettings }, deps: { spool: Spool; clock: Clock }): readonly Task[] {
  return [purgeTask(settings.purge, deps)];
}
