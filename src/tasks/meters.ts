import type { Clock } from '../base/clock.ts';
import { type Metrics, NO_METRICS } from '../base/metrics.ts';

/** What is counted of the runs of tasks. */
export interface Meters {
  /** Runs it; what it throws is counted by `ended`. */
  timed<T>(task: string, run: () => Promise<T>): Promise<T>;
  ended(task: string, result: 'failed' | 'skipped'): void;
}

/** `tasks`: the names of all there are, so that each is shown from the beginning. */
export function createMeters(
  tasks: readonly string[],
  { clock, metrics = NO_METRICS }: { readonly clock: Clock; readonly metrics?: Metrics | undefined },
): Meters {
  const lastSuccess = new Map<string, number>();
  const of = (task: string) => {
    const runs = (result: string) => metrics.counter('postern_task_runs_total', { task, result });
    return {
      done: runs('done'),
      failed: runs('failed'),
      skipped: runs('skipped'),
      seconds: metrics.histogram('postern_task_seconds', { task }),
    };
  };
  const meters = new Map(tasks.map((task) => [task, of(task)]));
  metrics.gauge('postern_task_last_success_timestamp_seconds', () =>
    [...lastSuccess].map(([task, at]) => [{ task }, at]),
  );
  return Object.freeze({
    async timed<T>(task: string, run: () => Promise<T>): Promise<T> {
      const began = clock.monotonic();
      try {
        const done = await run();
        meters.get(task)?.done.add();
        lastSuccess.set(task, clock.now() / 1000);
        return done;
      } finally {
        meters.get(task)?.seconds.observe((clock.monotonic() - began) / 1000);
      }
    },
    ended(task: string, result: 'failed' | 'skipped') {
      meters.get(task)?.[result].add();
    },
  });
}
