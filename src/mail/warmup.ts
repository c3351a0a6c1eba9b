const DAY_MS = 86_400_000;

/** How long a warmup takes, in days. */
export const WARMUP_DAYS = 30;

/**
 * The share at the very beginning. An address carries up to some 500,000 messages a day, and receivers let a new one start
 * with some hundreds. From there to everything in 30 days is a growth of 26% a day, well under the doubling that they distrust.
 */
const FIRST_SHARE = 1 / 1000;

/** When a warmup that begins then is over. */
export function warmupEnd(startedAt: Date): Date {
  return new Date(startedAt.getTime() + WARMUP_DAYS * DAY_MS);
}

/** Whether an address with these times is warming up. */
export function isWarming(endAt: Date | null | undefined, now: Date): boolean {
  return endAt instanceof Date && now < endAt;
}

/**
 * The share of mail, of what would go over the address if it were warm, that does go over it: from 0.001 to 1 along an
 * exponential curve. Null: it is not warming up, and takes everything.
 */
export function warmupShare(startedAt: Date | null, now: Date): number {
  if (startedAt === null) return 1;
  const progress = (now.getTime() - startedAt.getTime()) / (WARMUP_DAYS * DAY_MS);
  return FIRST_SHARE ** (1 - Math.min(1, Math.max(0, progress)));
}
