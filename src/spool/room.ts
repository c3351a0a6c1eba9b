import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { SpoolSettings } from './types.ts';

/** Bytes of a disk: all, and those that we may still use. */
export interface Disk {
  readonly total: number;
  readonly free: number;
}

/** Whether the disk has room for new mail. */
export interface Room {
  has(): boolean;
  /** The disk as it was last seen. */
  disk(): Disk | undefined;
  /** Looks now, and once a second from then on. */
  start(): Promise<void>;
  stop(): void;
}

const LOOK_MS = 1000;

/** Watches free disk; `look` asks the system. Each change is logged once. */
export function createRoom(settings: Omit<SpoolSettings, 'dir'>, deps: { clock: Clock; log: Log; look: () => Promise<Disk> }): Room {
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
    if (room) log.info('spool.room', { free, floor });
    else log.warn('spool.full', { free, floor });
  };

  async function watch(): Promise<void> {
    try {
      judge(await look());
    } catch (error) {
      if (room) log.error('spool.fault', { reason: 'free disk cannot be looked up', error });
      room = false;
      seen = undefined;
    }
    if (!stopped) cancel = clock.after(LOOK_MS, () => void watch());
  }

  return Object.freeze({
    has: () => room,
    disk: () => seen,
    start: watch,
    stop() {
      stopped = true;
      cancel();
    },
  });
}
