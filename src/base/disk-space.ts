import { statfs } from 'node:fs/promises';
import { type Clock, createLoop } from './clock.ts';
import { frozen } from './frozen.ts';
import type { Log } from './log.ts';

/** Size and available space of a disk, in bytes. */
interface Disk {
  readonly total: number;
  readonly free: number;
}

/** The minimum free space: the largest of the three, `times` as much. */
export interface DiskSpaceSettings {
  readonly minFreePercent: number;
  readonly minFreeBytes: number;
  /** Room for three messages of this size is always kept. */
  readonly maxMessageBytes: number;
  /** 1 if not given. */
  readonly times?: number;
}

/**
 * Room for new data above the minimum free space of a disk. Between two reads of the free space it counts written
 * bytes, so that fast writers do not exceed it.
 */
export type DiskSpace = ReturnType<typeof createDiskSpace>;

const LOOK_MS = 1000;
/** The free space is read earlier once this share of the room has been written. */
const EARLY_SHARE = 1 / 8;

/** Reads size and available space of the disk that holds a folder. */
export async function readDiskSpace(folder: string): Promise<Disk> {
  const { blocks, bavail, bsize } = await statfs(folder);
  return { total: blocks * bsize, free: bavail * bsize };
}

/** Returns the minimum free space of a disk of this size. */
export function minFreeBytesOf(
  { minFreePercent, minFreeBytes, maxMessageBytes, times = 1 }: DiskSpaceSettings,
  total: number,
): number {
  return Math.max((total * minFreePercent) / 100, minFreeBytes, 3 * maxMessageBytes) * times;
}

/** Watches the free disk space of the spool or the store. Each change is logged once, as an event of `name`. */
export function createDiskSpace(
  name: 'spool' | 'store',
  settings: DiskSpaceSettings,
  deps: { clock: Clock; log: Log; look: () => Promise<Disk> },
) {
  const { clock, log, look } = deps;
  let room = true;
  let seen: Disk | undefined;
  /** Bytes above the floor at the last read; negative below it. */
  let above = 0;
  let reserved = 0;
  /** Bytes written since the last read began. */
  let written = 0;
  let looking: Promise<void> | undefined;

  const spare = () => above - reserved - written;

  const judge = (disk: Disk) => {
    seen = disk;
    const { total, free } = disk;
    const floor = minFreeBytesOf(settings, total);
    above = free - floor;
    if (above >= 0 === room) return;
    room = above >= 0;
    if (room) log.info(`${name}.room`, { free, floor });
    else log.warn(`${name}.full`, { free, floor });
  };

  async function lookNow(): Promise<void> {
    const before = written;
    try {
      const disk = await look();
      // Bytes written during a read may be included in it or not.
      written -= before;
      judge(disk);
    } catch (error) {
      if (room) log.error(`${name}.fault`, { reason: 'cannot read the free disk space', error });
      room = false;
      seen = undefined;
    }
    looking = undefined;
  }

  const lookAgain = () => (looking ??= lookNow());

  const watching = createLoop(clock, async () => {
    await lookAgain();
    return LOOK_MS;
  });

  /** Counts bytes that were written without a reservation. */
  function wrote(bytes: number): void {
    written += bytes;
    if (!watching.isStopped() && seen && written > above * EARLY_SHARE) void lookAgain();
  }

  return frozen({
    has: () => room && (!seen || spare() >= 0),
    /** Bytes that may still be written, without those that are reserved. */
    left: () => (seen ? Math.max(0, spare()) : 0),
    /** Reserves bytes for a write; call the function that is returned when the write has ended. Undefined: no room. */
    reserve(bytes: number) {
      if (!room || spare() < bytes) return undefined;
      reserved += bytes;
      let done = false;
      return () => {
        if (done) return;
        done = true;
        reserved -= bytes;
        wrote(bytes);
      };
    },
    /** Reads the free space now: there may be more room than at the last read. */
    look: lookAgain,
    wrote,
    /** The result of the last read. */
    disk: () => seen,
    /** Reads the free space now, and once a second from then on. */
    start: watching.start,
    stop: () => void watching.stop(),
  });
}
