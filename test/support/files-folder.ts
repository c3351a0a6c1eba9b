import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const MEMORY = '/dev/shm';
const ENOUGH_BYTES = 2 ** 31;

/**
 * Where tests keep their files: where TEST_FILES says, else in memory where there is enough of it, else on the disk. In
 * memory the same calls are made and none waits for the disk; what a disk really keeps is shown by the faults, which
 * stay on it.
 */
export const filesFolder = (): string => process.env['TEST_FILES'] || (hasMemory() ? MEMORY : tmpdir());

function hasMemory(): boolean {
  const { bavail, bsize } = existsSync(MEMORY) ? statfsSync(MEMORY) : { bavail: 0, bsize: 0 };
  const options = /^\S+ \/dev\/shm \S+ (\S+)/m.exec(read('/proc/self/mounts'))?.[1] ?? 'noexec';
  const available = Number(/^MemAvailable: +(\d+) kB$/m.exec(read('/proc/meminfo'))?.[1]) * 1024;
  const bound = Number.parseInt(read('/sys/fs/cgroup/memory.max'), 10) || Number.POSITIVE_INFINITY; // of this container
  return (
    !options.split(',').includes('noexec') &&
    bavail * bsize >= ENOUGH_BYTES &&
    Math.min(available, bound) >= 2 * ENOUGH_BYTES
  );
}

const read = (file: string) => (existsSync(file) ? readFileSync(file, 'utf8') : '');
