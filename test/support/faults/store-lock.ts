import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

// Readers and writers of a WAL database meet on eight bytes of its -shm file (sqlite.org/walformat.html, 2.3.1). Who
// holds all of them by POSIX locks keeps every other process out, as a backup tool that went wrong does. Node has no
// such locks.
const LOCKER = `
import fcntl, sys
f = open(sys.argv[1], 'r+b')
for byte in [120, 121, 122, 123, 124, 125, 126, 127]:
    fcntl.lockf(f, fcntl.LOCK_EX, 1, byte)
print('locked', flush=True)
sys.stdin.read()
`;

/** Whether this machine has what it takes. */
export function canLock(): boolean {
  try {
    execFileSync('python3', ['-c', 'import fcntl'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Keeps every other process from reading and writing a SQLite file in WAL mode; the answer lets them in again. */
export async function lockStore(file: string): Promise<() => Promise<void>> {
  const locker = spawn('python3', ['-c', LOCKER, `${file}-shm`], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(locker, 'exit');
  const lines = createInterface({ input: locker.stdout });
  await Promise.race([
    once(lines, 'line'),
    exited.then(() => {
      throw new Error('the locker ended');
    }),
  ]);
  return async () => {
    locker.stdin.end();
    await exited;
  };
}
