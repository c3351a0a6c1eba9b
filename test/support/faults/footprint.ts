import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';

const MEGABYTE = 1024 * 1024;

/** What a process holds of the machine; Linux only. */
interface Footprint {
  /** Resident memory now, in megabytes. */
  resident(): number;
  /** The most resident memory since `forget`, in megabytes. */
  most(): number;
  forget(): void;
  /** Open sockets. */
  sockets(): number;
}

export function footprintOf(pid: number): Footprint {
  const line = (name: string) =>
    (Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024) /
    MEGABYTE;
  const target = (name: string) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${name}`);
    } catch {
      return ''; // closed since the folder was read
    }
  };
  return {
    resident: () => line('VmRSS'),
    most: () => line('VmHWM'),
    // 5 resets the high-water mark (proc(5)).
    forget() {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    },
    sockets: () => readdirSync(`/proc/${pid}/fd`).filter((name) => target(name).startsWith('socket:')).length,
  };
}
