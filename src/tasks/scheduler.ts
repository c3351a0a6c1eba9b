import cron from 'node-cron';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Service } from '../base/service.ts';
import { StoreAway } from '../store/collection.ts';
import type { Leases } from './lease.ts';
import { createMeters, type Meters } from './meters.ts';
import { everyMinute } from './minutes.ts';
import type { Task } from './task.ts';

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
  return Object.freeze({
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
    async run(name: string) {
      const task = find(name);
      if (task) await start(task, Number.POSITIVE_INFINITY);
    },
    poke(name: string) {
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
