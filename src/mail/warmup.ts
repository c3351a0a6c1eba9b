const DAY_MS = 86_400_000;

/** How long a warmup takes, in days. */
export const WARMUP_DAYS = 30;

/**
 * Messages that a new address may carry on its first day. The warmup plans that operators publish begin with 50 to 500 a day and
 * double every day or two; 200 that double daily come to the 500,000 a day that one address carries in less than two weeks.
 */
const FIRST_DAY = 200;

/** The curve in words, for the reference. */
export const WARMUP_CURVE = `It carries about ${FIRST_DAY} messages on its first day and twice as many on each day that follows.`;

/** When a warmup that begins then is over. */
export function warmupEnd(startedAt: Date): Date {
  return new Date(startedAt.getTime() + WARMUP_DAYS * DAY_MS);
}

/** Whether an address with these times is warming up. */
export function isWarming(endAt: Date | null | undefined, now: Date): boolean {
  return endAt instanceof Date && now < endAt;
}

/**
 * The share of mail, of what would go over the address if it were warm, that does go over it. `daily` is how many messages that would
 * be in 24 hours: one that sends little warms an address with all of it from the first day on. Null: it is not warming up.
 */
export function warmupShare(startedAt: Date | null, now: Date, daily: number): number {
  if (startedAt === null) return 1;
  const day = Math.floor((now.getTime() - startedAt.getTime()) / DAY_MS);
  const allowed = FIRST_DAY * 2 ** Math.min(WARMUP_DAYS, Math.max(0, day));
  return Math.min(1, allowed / Math.max(1, daily));
}
