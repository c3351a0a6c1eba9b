import { statfs } from 'node:fs/promises';
import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';
import type { Log } from './log.ts';

/** Bytes of a disk: all, and those that we may still use. */
interface Disk {
  readonly total: number;
  readonly free: number;
}

/** Free space that is left alone: the largest of the three. */
export interface RoomSettings {
  readonly minFreePercent: number;
  readonly minFreeBytes: number;
  /** Three messages of this size are always left. */
  readonly maxMessageBytes: number;
}

/** Whether a disk has room for what is new. */
export interface Room {
  has(): boolean;
  /** The disk as it was last seen. */
  disk(): Disk | undefined;
  /** Looks now, and once a second from then on. */
  start(): Promise<void>;
  stop(): void;
}

const LOOK_MS = 1000;

/** The disk that a folder is on. */
export async function lookAtDisk(folder: string): Promise<Disk> {
  const { blocks, bavail, bsize } = await statfs(folder);
  return { total: blocks * bsize, free: bavail * bsize };
}

/**
 * Watches free disk for the spool or the store; `look` asks the system. Each change is logged once, under the name of
 * whose it is.
 */
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

  const floorOf = (total: number) =>
    Math.max((total * settings.minFreePercent) / 100, settings.minFreeBytes, 3 * settings.maxMessageBytes);

  const judge = (disk: Disk) => {
    seen = disk;
    const { total, free } = disk;
    const floor = floorOf(total);
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
 * Frees memory that is the chunk's alone and that nobody reads any more. The collector of garbage does not see how much
 * hangs on a chunk of a socket: it lets them pile up, and then marks the whole heap for every 64 MB of them.
 */
export function giveBack(chunk: Uint8Array): void {
  if (chunk.buffer.byteLength === chunk.byteLength) free(chunk);
}

/**
 * Frees the memory of bytes whose owner has no more use for them, unless they are a piece of a slab. They have no length
 * afterwards, and nothing can be made of them: who uses what is not his any more throws.
 */
export function free(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && !buffer.detached && isTight(bytes)) buffer.transfer(0);
}

/** The final dot of a message and a command or two behind it. */
const MOST_SPARE = 1024;

/**
 * Whether bytes are nearly all of the memory behind them. Keeping a view keeps all of that, and posting one to a thread
 * copies all of it, which may be a slab that is shared with others.
 */
export function isTight(bytes: Uint8Array): boolean {
  return bytes.buffer.byteLength - bytes.byteLength <= MOST_SPARE;
}
