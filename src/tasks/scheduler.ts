import cron, { type ScheduledTask } from 'node-cron';
import { type Clock, MINUTE_MS } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import { frozen } from '../base/frozen.ts';
import type { Task, TaskResult, TaskState } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Leases } from './lease.ts';

export type Scheduler = ReturnType<typeof createScheduler>;

interface SchedulerDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly leases: Leases;
}

/** Returns what is wrong with a cron expression; undefined if nothing is. */
export function scheduleFault(expression: string): string | undefined {
  const [error] = cron.validateDetailed(expression).errors;
  if (!error) return undefined;
  const field = error.field.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const reason =
    error.field === 'expression' ? 'five fields, or six that begin with seconds' : `${field} cannot be ${error.value}`;
  return `must be a cron expression, such as */5 * * * * (${reason})`;
}

/** A task with its name and its schedule. */
interface ScheduledJob {
  readonly name: string;
  readonly schedule: string;
  readonly task: Task;
}

/** How often a lease held elsewhere is requested again, so that the run of a process that died is taken over. */
const WATCH_MS = 10_000;

/**
 * Runs tasks on the schedules in the settings (`tasks`), never two runs of a task at the same time.
 *
 * node-cron parses and checks the expressions, and decides which times match. Its timers are not used: they wait for a
 * wall clock time computed in advance, so a clock set back by an hour would delay every task by that hour. And a task
 * needs more than a timer: a lease, a watch while another host runs it, `poke`, an end with the process. So the ticks
 * are ours (`everyTick`).
 *
 * `schedules` has a cron expression for each task, in UTC. A failed run is logged and repeated at its next time.
 */
export function createScheduler<N extends string>(
  tasks: Readonly<Record<N, Task>>,
  schedules: Readonly<Record<N, string>>,
  deps: SchedulerDeps,
) {
  const { clock } = deps;
  const planned = new Map<string, ScheduledJob>();
  for (const name in tasks) planned.set(name, { name, schedule: schedules[name], task: tasks[name] });
  const running = new Map<string, Promise<void>>();
  const pokedAgain = new Set<string>();
  const watched = new Map<string, { readonly since: number; cancel(): void }>();
  const ending = new AbortController();
  const lastRuns = new Map<string, TaskState['last']>();
  const attempt = createAttempt(deps, createMeters([...planned.keys()], deps), ending.signal, (name, last) => {
    lastRuns.set(name, last);
  });
  let ticks: Ticks | undefined;

  /** `since`: the run is not needed if another process began one after this time. */
  function start(one: ScheduledJob, since: number): Promise<void> {
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

  /** `watchFrom`: another process holds the lease, and the requested run is still due. */
  function ended(one: ScheduledJob, watchFrom: number | undefined): void {
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
    async start(): Promise<void> {
      ticks = createTicks([...planned.values()], clock, (one, sameTimeMs) => start(one, clock.now() - sameTimeMs));
    },
    async stop(): Promise<void> {
      ending.abort();
      ticks?.end();
      ticks = undefined;
      for (const { cancel } of watched.values()) cancel();
      await Promise.all(running.values());
    },
    /** Runs a task now, unless another process is running it. Never throws. */
    async run(name: string): Promise<void> {
      const one = planned.get(name);
      if (one) await start(one, Number.POSITIVE_INFINITY);
    },
    /** Runs a task now because there is work. If it is running, it runs once more, however often this is called. */
    poke(name: string): void {
      const one = planned.get(name);
      if (one && running.has(name)) pokedAgain.add(name);
      else if (one) void start(one, clock.now());
    },
    /** Every task, with its last run in this process and its next one. */
    tasks: (): readonly TaskState[] =>
      [...planned.values()].map(({ name, schedule, task }) => ({
        name,
        schedule,
        perHost: task.perHost ?? false,
        running: running.has(name),
        last: lastRuns.get(name),
        nextAt: ticks?.nextOf(name),
      })),
  });
}

const SECOND_MS = 1000;
/** How far the clocks of hosts may differ and still mean the same scheduled time. Milliseconds. */
const SAME_TIME_MS = 30_000;
/** The same for a schedule with several times in one minute: less than its smallest step. */
const SAME_SECOND_MS = 500;

type Ticks = ReturnType<typeof createTicks>;

/** Calls `run` at the times of each task. Ticks are a minute apart, or a second if a schedule needs that. */
function createTicks(
  planned: readonly ScheduledJob[],
  clock: Clock,
  run: (one: ScheduledJob, sameTimeMs: number) => unknown,
) {
  const jobs = planned.map((one) => {
    const seconds = cron.parse(one.schedule).second;
    let made: ScheduledTask | undefined;
    return {
      one,
      seconds,
      sameTimeMs: seconds.length > 1 ? SAME_SECOND_MS : SAME_TIME_MS,
      /** Created on demand: creating those of all tasks takes 20 ms of a start, and as much of a stop. */
      job() {
        made ??= cron.createTask(one.schedule, () => {}, { name: one.name, timezone: 'Etc/UTC' });
        return made;
      },
      end: () => void made?.destroy(), // node-cron keeps a list of all tasks
    };
  });
  const step = jobs.every(({ seconds }) => seconds.length === 1 && seconds[0] === 0) ? MINUTE_MS : SECOND_MS;
  const endTicks = everyTick(clock, step, (time) => {
    const date = new Date(time);
    for (const { one, job, sameTimeMs } of jobs) if (job().match(date)) run(one, sameTimeMs);
  });
  return {
    /** When a task runs next, by the clock of the machine. */
    nextOf: (name: string): number | undefined =>
      jobs
        .find(({ one }) => one.name === name)
        ?.job()
        .getNextRuns(1)[0]
        ?.getTime(),
    end() {
      endTicks();
      for (const { end } of jobs) end();
    },
  };
}

/**
 * Calls `tick` at the start of each step of the wall clock, with that time (milliseconds since 1970), until the
 * returned function is called. Waits at most one step, whatever the wall clock does: a clock set back by an hour must
 * not delay tasks by that hour, and a clock set ahead by days (or a machine that slept) causes one tick and not
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
    // A timer may fire a little early, and a leap second repeats a time.
    if (time === last) return;
    // Catches up on ticks missed while the process was busy.
    const first = time > last && time - last <= MINUTE_MS ? last + stepMs : time;
    last = time;
    for (let owed = first; owed <= time; owed += stepMs) tick(owed);
  }

  return () => cancel();
}

/** Runs a task once under its lease. Returns true if another process holds that. Never throws. */
function createAttempt(
  { leases, clock, log }: SchedulerDeps,
  meters: Meters,
  stopping: AbortSignal,
  ended: (name: string, last: TaskState['last']) => void,
): (one: ScheduledJob, since: number) => Promise<boolean> {
  let away = false;

  async function once({ name, task }: ScheduledJob, ending: AbortSignal): Promise<void> {
    const [at, began] = [clock.now(), clock.monotonic()];
    const done = await meters.timed(name, () => task.run(ending));
    if (done) log.info('task.run', { task: name, ...done });
    ended(name, { at, ms: Math.round(clock.monotonic() - began), result: 'done', text: toWords(done) });
  }

  async function leased(one: ScheduledJob, since: number): Promise<boolean> {
    const asked = await leases.acquire(one.name, since);
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
    const [at, began] = [clock.now(), clock.monotonic()];
    const endedBadly = (result: TaskResult, text: string) =>
      ended(name, { at, ms: Math.round(clock.monotonic() - began), result, text });
    try {
      if (!task.perHost) {
        const elsewhere = await leased(one, since);
        if (elsewhere) endedBadly('elsewhere', '');
        return elsewhere;
      }
      await once(one, stopping);
    } catch (error) {
      meters.ended(name, error instanceof StoreAway ? 'skipped' : 'failed');
      endedBadly(...reasonOf(error));
      if (!(error instanceof StoreAway)) log.error('task.fault', { task: name, error });
      // One line for the whole outage, not one a minute for every task.
      else if (!away)
        log.warn('task.skipped', {
          task: name,
          reason: 'the store is unavailable; tasks that need it wait until it is back',
        });
      away ||= error instanceof StoreAway;
    }
    return false;
  };
}

/** The result of a run as text: `forgotten 12, kept 3`. */
function toWords(done: Readonly<Record<string, unknown>> | undefined): string {
  return Object.entries(done ?? {})
    .map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ')
    .slice(0, LONGEST_WORDS);
}

function reasonOf(error: unknown): [TaskResult, string] {
  if (error instanceof StoreAway) return ['skipped', 'the store is unavailable'];
  return ['failed', errorText(error).slice(0, LONGEST_WORDS)];
}

const LONGEST_WORDS = 200;

/** Metrics of the runs of tasks. */
type Meters = ReturnType<typeof createMeters>;

/** `tasks`: the names of all tasks, so that each has metrics from the start. */
function createMeters(tasks: readonly string[], { clock, metrics }: Pick<SchedulerDeps, 'clock' | 'metrics'>) {
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
    /** Runs it and counts a success; failures are counted by `ended`. */
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
