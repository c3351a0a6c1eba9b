import cron from 'node-cron';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Service, Task } from '../base/service.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Leases } from './lease.ts';

/**
 * Runs tasks at the times that the settings say (`tasks`), each one never beside itself.
 *
 * node-cron reads the expressions, tells what is wrong with one, and says which times are whose. Its timers are not
 * used, for two reasons. They wait for a time of the wall clock that they worked out before: a clock that is set back
 * by an hour would hold up every task for that hour. And a task needs more than a timer: its lease, being watched while
 * another host runs it, being poked, the end of the process. So the ticks are ours (`everyTick`), and the rest of this
 * file is what happens at one.
 */
export interface Scheduler extends Service {
  /** Runs a task now, if no other process does. Never throws. */
  run(name: string): Promise<void>;
  /**
   * Has a task run now because there is something to do for it. While it runs, once more after that, however often it
   * is called.
   */
  poke(name: string): void;
}

interface SchedulerDeps {
  readonly leases: Leases;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** What is wrong with a cron expression; undefined when nothing is. */
export function scheduleFault(expression: string): string | undefined {
  const [error] = cron.validateDetailed(expression).errors;
  if (!error) return undefined;
  const field = error.field.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const reason =
    error.field === 'expression' ? 'five fields, or six that begin with seconds' : `${field} cannot be ${error.value}`;
  return `must be a cron expression, as */5 * * * * (${reason})`;
}

/** A task with its name and its times. */
interface Planned {
  readonly name: string;
  readonly schedule: string;
  readonly task: Task;
}

/**
 * How often a lease that another process holds is looked at again, so that a run which died with its process is taken
 * over.
 */
const WATCH_MS = 10_000;

/**
 * `schedules` holds a cron expression for each task, in UTC. A run that fails is logged and comes again at its next
 * time.
 */
export function createScheduler<N extends string>(
  tasks: Readonly<Record<N, Task>>,
  schedules: Readonly<Record<N, string>>,
  deps: SchedulerDeps,
): Scheduler {
  const { clock } = deps;
  const planned = new Map<string, Planned>();
  for (const name in tasks) planned.set(name, { name, schedule: schedules[name], task: tasks[name] });
  const running = new Map<string, Promise<void>>();
  const pokedAgain = new Set<string>();
  const watched = new Map<string, { readonly since: number; cancel(): void }>();
  const ending = new AbortController();
  const attempt = createAttempt(deps, createMeters([...planned.keys()], deps), ending.signal);
  let endTicks = () => {};

  /** `since`: the run is not needed when another process began one after this. */
  function start(one: Planned, since: number): Promise<void> {
    const present = running.get(one.name);
    if (present || ending.signal.aborted) return present ?? Promise.resolve();
    const watch = watched.get(one.name);
    watch?.cancel();
    watched.delete(one.name);
    const asked = Math.max(since, watch?.since ?? since);
    const next = attempt(one, asked).then((elsewhere) => ended(one, elsewhere ? asked : undefined));
    running.set(one.name, next);
    return next;
  }

  /** `watchFrom`: another process holds the lease; what was asked for is still to be done. */
  function ended(one: Planned, watchFrom: number | undefined): void {
    running.delete(one.name);
    if (ending.signal.aborted) return;
    const poked = pokedAgain.delete(one.name);
    if (watchFrom === undefined) {
      if (poked) void start(one, clock.now());
      return;
    }
    const since = poked ? clock.now() : watchFrom;
    watched.set(one.name, { since, cancel: clock.after(WATCH_MS, () => void start(one, since)) });
  }

  return frozen({
    async start() {
      endTicks = atTheirTimes([...planned.values()], clock, (one, sameTimeMs) => start(one, clock.now() - sameTimeMs));
    },
    async stop() {
      ending.abort();
      endTicks();
      for (const { cancel } of watched.values()) cancel();
      await Promise.all(running.values());
    },
    async run(name) {
      const one = planned.get(name);
      if (one) await start(one, Number.POSITIVE_INFINITY);
    },
    poke(name) {
      const one = planned.get(name);
      if (one && running.has(name)) pokedAgain.add(name);
      else if (one) void start(one, clock.now());
    },
  });
}

const SECOND_MS = 1000;
const MINUTE_MS = 60_000;
/** Clocks of hosts may differ by this much and still mean the same time of a schedule. Milliseconds. */
const SAME_TIME_MS = 30_000;
/** The same for a schedule with several times in one minute: less than its smallest step. */
const SAME_SECOND_MS = 500;

/**
 * Calls `run` at the times of each task, until the answer is called. Ticks are a second apart where a schedule needs
 * seconds, else a minute.
 */
function atTheirTimes(
  planned: readonly Planned[],
  clock: Clock,
  run: (one: Planned, sameTimeMs: number) => unknown,
): () => void {
  const jobs = planned.map((one) => {
    const seconds = cron.parse(one.schedule).second;
    const job = cron.createTask(one.schedule, () => {}, { name: one.name, timezone: 'Etc/UTC' });
    return { one, job, seconds, sameTimeMs: seconds.length > 1 ? SAME_SECOND_MS : SAME_TIME_MS };
  });
  const step = jobs.every(({ seconds }) => seconds.length === 1 && seconds[0] === 0) ? MINUTE_MS : SECOND_MS;
  const endTicks = everyTick(clock, step, (time) => {
    const date = new Date(time);
    for (const { one, job, sameTimeMs } of jobs) if (job.match(date)) run(one, sameTimeMs);
  });
  return () => {
    endTicks();
    for (const { job } of jobs) void job.destroy(); // node-cron keeps a list of all there are
  };
}

/**
 * Calls `tick` when a step of the wall clock begins, with its start (milliseconds since 1970), until the answer is
 * called. The pause before each is a step at most, whatever the wall clock does: one that is set back by an hour must
 * not hold up tasks for that hour, and one that is set ahead by days (or a machine that slept) owes one tick and not
 * thousands.
 */
function everyTick(clock: Clock, stepMs: number, tick: (time: number) => void): () => void {
  const present = () => Math.floor(clock.now() / stepMs) * stepMs;
  const arm = () => clock.after(stepMs - (clock.now() % stepMs), look);
  let last = present();
  let cancel = arm();

  function look(): void {
    const time = present();
    cancel = arm();
    // A timer may fire a little before its time, and a leap second shows a time twice.
    if (time === last) return;
    // A process that was busy for seconds makes up for those.
    const first = time > last && time - last <= MINUTE_MS ? last + stepMs : time;
    last = time;
    for (let owed = first; owed <= time; owed += stepMs) tick(owed);
  }

  return () => cancel();
}

/** One run of a task under its lease; true: another process holds the lease. Never throws. */
function createAttempt(
  { leases, log }: SchedulerDeps,
  meters: Meters,
  stopping: AbortSignal,
): (one: Planned, since: number) => Promise<boolean> {
  let away = false;

  async function once({ name, task }: Planned, ending: AbortSignal): Promise<void> {
    const done = await meters.timed(name, () => task.run(ending));
    if (done) log.info('task.run', { task: name, ...done });
  }

  async function leased(one: Planned, since: number): Promise<boolean> {
    const asked = await leases.ask(one.name, since);
    away = false;
    if (asked.kind !== 'held') return asked.kind === 'elsewhere';
    try {
      await once(one, AbortSignal.any([stopping, asked.lease.lost]));
    } finally {
      await asked.lease.release();
    }
    return false;
  }

  return async (one, since) => {
    const { name, task } = one;
    try {
      if (!task.perHost) return await leased(one, since);
      await once(one, stopping);
    } catch (error) {
      meters.ended(name, error instanceof StoreAway ? 'skipped' : 'failed');
      if (!(error instanceof StoreAway)) log.error('task.fault', { task: name, error });
      // One line for the whole time, not one a minute for every task.
      else if (!away)
        log.warn('task.skipped', { task: name, reason: 'the store is away; tasks that need it wait until it is back' });
      away ||= error instanceof StoreAway;
    }
    return false;
  };
}

/** What is counted of the runs of tasks. */
interface Meters {
  /** Runs it; what it throws is counted by `ended`. */
  timed<T>(task: string, run: () => Promise<T>): Promise<T>;
  ended(task: string, result: 'failed' | 'skipped'): void;
}

/** `tasks`: the names of all there are, so that each is shown from the beginning. */
function createMeters(tasks: readonly string[], { clock, metrics }: Pick<SchedulerDeps, 'clock' | 'metrics'>): Meters {
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
