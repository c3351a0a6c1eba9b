import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/**
 * A client process that a test talks to: the client must not share its loop with the test, nor the test with the
 * daemon.
 */
export interface Helper<Report> {
  /** What it has to say now. */
  report(): Promise<Report>;
  /**
   * Takes the processor from it, and gives it back; what it holds open stays open. It must have it back before it is
   * asked anything.
   */
  halt(): void;
  goOn(): void;
  stop(): Promise<void>;
}

/** Starts a file of this folder with its orders; `Report` is what its `answer` (below) gives. */
export function startHelper<Report>(file: string, orders: object): Helper<Report> {
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), [JSON.stringify(orders)], { execArgv: [] });
  const waiting: { resolve(report: Report): void; reject(error: Error): void }[] = [];
  child.on('message', (text) => waiting.shift()?.resolve(JSON.parse(String(text))));
  child.on('exit', () => {
    for (const { reject } of waiting.splice(0)) reject(new Error(`${file} ended`));
  });
  return {
    report: () =>
      new Promise((resolve, reject) => {
        waiting.push({ resolve, reject });
        child.send('report');
      }),
    halt() {
      child.kill('SIGSTOP');
    },
    goOn() {
      child.kill('SIGCONT');
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    },
  };
}

/** Within a helper: its orders, whose shape is that of the test that started it. */
export function orders(): any {
  return JSON.parse(process.argv[2] ?? '{}');
}

/** Within a helper: answers every question for a report. */
export function answer(report: () => object): void {
  process.on('message', () => process.send?.(JSON.stringify(report())));
  process.on('disconnect', () => process.exit());
}
