import cron from 'node-cron';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import type { Task } from './task.ts';

/** Runs tasks at their times, each one never beside itself. A run that fails is logged and comes again at its next time. */
export function createScheduler(tasks: readonly Task[], deps: { log: Log }): Service & { run(name: string): Promise<void> } {
  const { log } = deps;
  const running = new Map<string, Promise<void>>();
  let jobs: { stop(): unknown; destroy(): unknown }[] = [];

  async function once(task: Task): Promise<void> {
    try {
      const done = await task.run();
      if (done) log.info('task.run', { task: task.name, ...done });
    } catch (error) {
      log.error('task.fault', { task: task.name, error });
    }
  }

  function run(task: Task): Promise<void> {
    const present = running.get(task.name);
    if (present) return present;
    const next = once(task).finally(() => running.delete(task.name));
    running.set(task.name, next);
    return next;
  }

  return Object.freeze({
    async start() {
      jobs = tasks.map((task) => cron.schedule(task.schedule, () => run(task), { name: task.name, timezone: 'Etc/UTC' }));
    },
    async stop() {
      for (const job of jobs.splice(0)) await job.destroy();
      await Promise.all(running.values());
    },
    /** Runs a task now, as its time would. */
    async run(name: string) {
      const task = tasks.find((known) => known.name === name);
      if (task) await run(task);
    },
  });
}
