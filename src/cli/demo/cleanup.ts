import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { frozen } from '../../base/frozen.ts';

/** How long a process may take to stop before it is killed. Milliseconds. */
const STOP_MS = 10_000;

/**
 * Runs a command of the shell with `subject` as its `$0` once this process has ended in whatever way, SIGKILL too: its
 * input ends then.
 */
function afterDeath(command: string, subject: string): ChildProcess {
  const guard = spawn('sh', ['-c', `read -r _; ${command}`, subject], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  guard.once('error', () => undefined); // without a shell, resources are left behind only after SIGKILL
  guard.unref();
  return guard;
}

/**
 * The resources of a demo. They end in reverse order when it is closed, and at once if this process ends before that.
 * `folder` is removed last.
 */
export function createCleanup(folder: string) {
  const processes = new Set<ChildProcess>();
  const ends: (() => Promise<unknown>)[] = [];
  let closing: Promise<void> | undefined;
  const folderGuard = afterDeath('sleep 1; rm -rf "$0"', folder);

  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  const endNow = () => {
    for (const child of processes) child.kill('SIGKILL');
    remove();
  };
  process.once('exit', endNow);

  async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
    if (!processes.has(child)) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await gone;
    clearTimeout(late);
  }

  async function closeAll(): Promise<void> {
    try {
      for (const one of ends.toReversed()) await one();
    } finally {
      endNow();
      process.off('exit', endNow);
      folderGuard.kill('SIGKILL');
    }
  }

  return frozen({
    add(stop: () => Promise<unknown>): void {
      if (closing) void stop();
      else ends.push(stop);
    },
    /** A process that is ended with this signal; one that ends by itself is forgotten. */
    addProcess(child: ChildProcess, signal: NodeJS.Signals): void {
      processes.add(child);
      const guard = child.pid === undefined ? undefined : afterDeath('kill -9 "$0"', String(child.pid));
      child.once('exit', () => {
        processes.delete(child);
        guard?.kill('SIGKILL');
      });
      child.once('error', () => processes.delete(child)); // it was never started
      if (closing) child.kill('SIGKILL');
      else ends.push(() => end(child, signal));
    },
    end,
    close: () => (closing ??= closeAll()),
  });
}

export type Cleanup = ReturnType<typeof createCleanup>;
