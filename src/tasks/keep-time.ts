import type { RunningTime } from '../base/running-time.ts';
import type { Spool } from '../spool/types.ts';
import type { Task } from './task.ts';

/** Keeps how late it is, so that the next start can tell whether its clock is wrong. */
export function keepTimeTask({
  spool,
  time,
}: {
  readonly spool: Pick<Spool, 'keepTime'>;
  readonly time: Pick<RunningTime, 'memory'>;
}): Task {
  return {
    name: 'keep-time',
    schedule: '* * * * *',
    perHost: true,
    async run() {
      const memory = time.memory();
      if (memory) await spool.keepTime(JSON.stringify(memory));
      return undefined;
    },
  };
}
