import type { DiskSpace } from '../base/disk-space.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { Delivery } from './delivery.ts';
import type { Reader } from './disk/reader.ts';

/**
 * The bytes of each account's mail in this host's queue, so that no account uses up the disk. Counted from the file at
 * the start and when an account seems to hold much. In between, accepted mail is added, and finished mail not removed.
 */
export type AccountUsage = ReturnType<typeof createAccountUsage>;

/** An account may hold up to this multiple of the free space: three quarters of the total. */
const SHARE = 3;
/** Counts again when an account seems to hold this fraction of its share. */
const EARLY = 1 / 2;
/** Deliveries counted in one query: about 10 ms. */
const WINDOW = 20_000;
/** The fraction of the reader's time that counting may use. */
const PART_OF_TIME = 0.05;
const PAUSE_MS = 1000;

interface HoldingsParts extends Pick<Tools, 'clock' | 'log'> {
  readonly reading: Pick<Reader, 'read'>;
  readonly room: Pick<DiskSpace, 'left'>;
}

export function createAccountUsage({ reading, room, clock, log }: HoldingsParts) {
  let counted: ReadonlyMap<string, number> = new Map();
  let since = new Map<string, number>();
  let counting: Promise<void> | undefined;
  let nextAt = 0;
  let stopped = false;

  async function countAll(): Promise<void> {
    const began = clock.monotonic();
    const before = new Map(counted);
    for (const [account, bytes] of since) before.set(account, (before.get(account) ?? 0) + bytes);
    counted = before;
    since = new Map();
    const found = new Map<string, number>();
    try {
      const [first, last] = await reading.read('span');
      for (let from = first; from <= last && !stopped; from += WINDOW) {
        for (const { account, bytes } of await reading.read('held', from, from + WINDOW - 1))
          found.set(account, (found.get(account) ?? 0) + bytes);
      }
      if (!stopped) counted = found;
    } catch (error) {
      if (!stopped) log.warn('spool.fault', { reason: 'the bytes that accounts hold cannot be counted', error });
    }
    const now = clock.monotonic();
    nextAt = now + Math.max(PAUSE_MS, (now - began) / PART_OF_TIME);
    counting = undefined;
  }

  return frozen({
    /** Adds an accepted message. */
    add(bytes: number, deliveries: readonly Pick<Delivery, 'account'>[]) {
      for (const { account } of deliveries) since.set(account, (since.get(account) ?? 0) + bytes / deliveries.length);
    },
    /** Whether the account's mail is within its share of the disk. From memory. */
    isWithinShare(account: string) {
      const held = (counted.get(account) ?? 0) + (since.get(account) ?? 0);
      const share = room.left() * SHARE;
      if (held > share * EARLY && !stopped && clock.monotonic() >= nextAt) counting ??= countAll();
      return held <= share;
    },
    /** Counts; resolves when it is done. */
    count: () => (counting ??= countAll()),
    stop() {
      stopped = true;
    },
  });
}
