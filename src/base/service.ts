/** A running part, started and stopped once, in the order that the daemon defines. */
export interface Service {
  start(): Promise<void>;
  /** Ends work in progress, releases resources, and resolves when nothing is running. */
  stop(): Promise<void>;
}

/** How a run of a task ended. skipped: the store was unavailable · elsewhere: another process runs it. */
export type TaskResult = 'done' | 'failed' | 'skipped' | 'elsewhere';

/** A task with its last run in this process, and its next one. Times are milliseconds since 1970. */
export interface TaskState {
  readonly name: string;
  /** A cron expression, in UTC. */
  readonly schedule: string;
  readonly perHost: boolean;
  readonly running: boolean;
  readonly last:
    | { readonly at: number; readonly ms: number; readonly result: TaskResult; readonly text: string }
    | undefined;
  /** Undefined while the scheduler does not run. */
  readonly nextAt: number | undefined;
}

/** Recurring work: safe to run twice, to skip, and to interrupt. Names and schedules are in tasks/index.ts. */
export interface Task {
  /**
   * Runs on every host, without a lease: the work concerns this host only, or the task claims what it works on.
   * Any other task runs in one process at a time among all that share a store.
   */
  readonly perHost?: true;
  /**
   * Runs once and returns fields for the log; undefined if there was nothing to do.
   * `ending` is aborted when the run should end early: the process is stopping, or another one holds the lease now.
   */
  run(ending?: AbortSignal): Promise<Readonly<Record<string, unknown>> | undefined>;
}

/** The most rows that one run of a task tests; the rest come first in the next one. */
export const MAX_TESTED = 500;
const TESTED_AT_ONCE = 10;

/**
 * Tests rows that are due, ten at a time, until `ending` is aborted. `test` returns whether its row changed. Returns
 * the number of rows tested and changed, for the log; undefined if none was tested.
 */
export async function testDue<R>(
  due: readonly R[],
  test: (row: R) => Promise<boolean>,
  ending?: AbortSignal,
): Promise<{ tested: number; changed: number } | undefined> {
  let [tested, changed] = [0, 0];
  for (let at = 0; at < due.length && !ending?.aborted; at += TESTED_AT_ONCE) {
    const results = await Promise.all(due.slice(at, at + TESTED_AT_ONCE).map(test));
    tested += results.length;
    changed += results.filter(Boolean).length;
  }
  return tested > 0 ? { tested, changed } : undefined;
}
