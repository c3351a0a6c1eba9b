import cron from 'node-cron';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { type Metrics, NO_METRICS } from '../base/metrics.ts';
import type { Service, Task } from '../base/service.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Leases } from './lease.ts';

/** Clocks of hosts may differ by this much and still mean the same time of a schedule. Milliseconds; less than its smallest step. */
const SAME_TIME_MS = 30_000;
/** How often a lease that another process holds is looked at again, so that a run which died with its process is taken over. */
const WATCH_MS = 10_000;

export interface Scheduler extends Service {
  /** Runs a task now, if no other process does. Never throws. */
  run(name: string): Promise<void>;
  /** Has a task run now because there is something to do for it. While it runs, once more after that, however often it is called. */
  poke(name: string): void;
}

export interface SchedulerDeps {
  readonly leases: Leases;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
}

/** Runs tasks at their times, each one never beside itself. A run that fails is logged and comes again at its next time. */
export function createScheduler(tasks: readonly Task[], deps: SchedulerDeps): Scheduler {
  const { clock } = deps;
  const running = new Map<string, Promise<void>>();
  const pokedAgain = new Set<string>();
  const watched = new Map<string, { readonly since: number; cancel(): void }>();
  const ending = new AbortController();
  const attempt = createAttempt(
    deps,
    createMeters(
      tasks.map(({ name }) => name),
      deps,
    ),
    ending.signal,
  );
  // Only asked whether a minute is theirs: node-cron's own timers wait by the wall clock, and stand still when it is set back.
  let jobs: { destroy(): unknown }[] = [];
  let endTicks = () => {};

  /** `since`: the run is not needed when another process began one after this. */
  function start(task: Task, since: number): Promise<void> {
    const present = running.get(task.name);
    if (present || ending.signal.aborted) return present ?? Promise.resolve();
    const watch = watched.get(task.name);
    watch?.cancel();
    watched.delete(task.name);
    const asked = Math.max(since, watch?.since ?? since);
    const next = attempt(task, asked).then((elsewhere) => ended(task, elsewhere ? asked : undefined));
    running.set(task.name, next);
    return next;
  }

  /** `watchFrom`: another process holds the lease; what was asked for is still to be done. */
  function ended(task: Task, watchFrom: number | undefined): void {
    running.delete(task.name);
    if (ending.signal.aborted) return;
    const poked = pokedAgain.delete(task.name);
    if (watchFrom === undefined) {
      if (poked) void start(task, clock.now());
      return;
    }
    const since = poked ? clock.now() : watchFrom;
    watched.set(task.name, { since, cancel: clock.after(WATCH_MS, () => void start(task, since)) });
  }

  const find = (name: string) => tasks.find((known) => known.name === name);
  return frozen({
    async start() {
      const planned = tasks.map((task) => ({
        task,
        job: cron.createTask(task.schedule, () => {}, { name: task.name, timezone: 'Etc/UTC' }),
      }));
      jobs = planned.map(({ job }) => job);
      endTicks = everyMinute(clock, (minute) => {
        const date = new Date(minute);
        for (const { task, job } of planned) if (job.match(date)) void start(task, clock.now() - SAME_TIME_MS);
      });
    },
    async stop() {
      ending.abort();
      endTicks();
      for (const job of jobs.splice(0)) await job.destroy();
      for (const { cancel } of watched.values()) cancel();
      await Promise.all(running.values());
    },
    async run(name) {
      const task = find(name);
      if (task) await start(task, Number.POSITIVE_INFINITY);
    },
    poke(name) {
      const task = find(name);
      if (task && running.has(name)) pokedAgain.add(name);
      else if (task) void start(task, clock.now());
    },
  });
}

/** One run of a task under its lease; true: another process holds the lease. Never throws. */
function createAttempt(
  { leases, log }: SchedulerDeps,
  meters: Meters,
  stopping: AbortSignal,
): (task: Task, since: number) => Promise<boolean> {
  let away = false;

  async function once(task: Task, ending: AbortSignal): Promise<void> {
    const done = await meters.timed(task.name, () => task.run(ending));
    if (done) log.info('task.run', { task: task.name, ...done });
  }

  async function leased(task: Task, since: number): Promise<boolean> {
    const asked = await leases.ask(task.name, since);
    away = false;
    if (asked.kind !== 'held') return asked.kind === 'elsewhere';
    try {
      await once(task, AbortSignal.any([stopping, asked.lease.lost]));
    } finally {
      await asked.lease.release();
    }
    return false;
  }

  return async (task, since) => {
    try {
      if (!task.perHost) return await leased(task, since);
      await once(task, stopping);
    } catch (error) {
      meters.ended(task.name, error instanceof StoreAway ? 'skipped' : 'failed');
      if (!(error instanceof StoreAway)) log.error('task.fault', { task: task.name, error });
      // One line for the whole time, not one a minute for every task.
      else if (!away)
        log.warn('task.skipped', { task: task.name, reason: 'the store is away; so are others until it is back' });
      away ||= error instanceof StoreAway;
    }
    return false;
  };
}

const MINUTE_MS = 60_000;

/**
 * Calls `tick` when a minute of the wall clock begins, with its start (milliseconds since 1970), until the answer is called. The
 * pause before each is a minute at most, whatever the wall clock does: one that is set back by an hour must not hold up tasks for
 * that hour, and one that is set ahead by days (or a machine that slept) owes one tick and not thousands.
 */
export function everyMinute(clock: Clock, tick: (minute: number) => void): () => void {
  const present = () => Math.floor(clock.now() / MINUTE_MS) * MINUTE_MS;
  const arm = () => clock.after(MINUTE_MS - (clock.now() % MINUTE_MS), look);
  let last = present();
  let cancel = arm();

  function look(): void {
    const minute = present();
    cancel = arm();
    // A timer may fire a little before its minute, and a leap second shows a minute twice.
    if (minute === last) return;
    last = minute;
    tick(minute);
  }

  return () => cancel();
}

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
  return frozen({
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
    ended(task, result) {
      meters.get(task)?.[result].add();
    },
  });
}
