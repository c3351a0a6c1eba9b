import { statfs } from 'node:fs/promises';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import type { Log } from './log.ts';

/** Size and available space of a disk, in bytes. */
interface Disk {
  readonly total: number;
  readonly free: number;
}

/** The minimum free space: the largest of the three. */
export interface RoomSettings {
  readonly minFreePercent: number;
  readonly minFreeBytes: number;
  /** Room for three messages of this size is always kept. */
  readonly maxMessageBytes: number;
}

/** Whether a disk has room for new data. */
export interface Room {
  has(): boolean;
  /** The result of the last check. */
  disk(): Disk | undefined;
  /** Checks now, and once a second from then on. */
  start(): Promise<void>;
  stop(): void;
}

const LOOK_MS = 1000;

/** Reads size and available space of the disk that holds a folder. */
export async function lookAtDisk(folder: string): Promise<Disk> {
  const { blocks, bavail, bsize } = await statfs(folder);
  return { total: blocks * bsize, free: bavail * bsize };
}

/** Returns the minimum free space of a disk of this size. */
export function floorOf({ minFreePercent, minFreeBytes, maxMessageBytes }: RoomSettings, total: number): number {
  return Math.max((total * minFreePercent) / 100, minFreeBytes, 3 * maxMessageBytes);
}

/** Watches the free disk space of the spool or the store. Each change is logged once, as an event of `name`. */
export function createRoom(
  name: 'spool' | 'store',
  settings: RoomSettings,
  deps: { clock: Clock; log: Log; look: () => Promise<Disk> },
): Room {
  const { clock, log, look } = deps;
  let room = true;
  let seen: Disk | undefined;
  let stopped = false;
  let cancel = () => {};

  const judge = (disk: Disk) => {
    seen = disk;
    const { total, free } = disk;
    const floor = floorOf(settings, total);
    if (free >= floor === room) return;
    room = free >= floor;
    if (room) log.info(`${name}.room`, { free, floor });
    else log.warn(`${name}.full`, { free, floor });
  };

  async function watch(): Promise<void> {
    try {
      judge(await look());
    } catch (error) {
      if (room) log.error(`${name}.fault`, { reason: 'cannot read the free disk space', error });
      room = false;
      seen = undefined;
    }
    if (!stopped) cancel = clock.after(LOOK_MS, () => void watch());
  }

  return frozen({
    has: () => room,
    disk: () => seen,
    start: watch,
    stop() {
      stopped = true;
      cancel();
    },
  });
}

/**
 * Frees the memory of a chunk that is no longer used, if the chunk is all of its buffer. The garbage collector does not
 * count the external memory of socket chunks: it lets them pile up and then marks the whole heap for every 64 MB.
 */
export function giveBack(chunk: Uint8Array): void {
  if (chunk.buffer.byteLength === chunk.byteLength) free(chunk);
}

/**
 * Frees the memory of bytes that are no longer used, unless they are part of a slab. Their length is 0 afterwards, and
 * creating a view of their buffer throws.
 */
export function free(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && !buffer.detached && isTight(bytes)) buffer.transfer(0);
}

/** Enough for the final dot of a message and a command or two after it. */
const MOST_SPARE = 1024;

/**
 * Whether bytes make up nearly all of their buffer. Keeping a view keeps the whole buffer in memory, and posting one to
 * a thread copies all of it; the buffer may be a slab that is shared with others.
 */
export function isTight(bytes: Uint8Array): boolean {
  return bytes.buffer.byteLength - bytes.byteLength <= MOST_SPARE;
}
