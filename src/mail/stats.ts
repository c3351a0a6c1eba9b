import { DAY_MS, HOUR_MS } from '../base/clock.ts';
import { tableOf } from '../base/tables.ts';

// The counters of sent mail, and their sums.

/** Counters of sent mail, in the order in which the API lists them. */
export const COUNTS = [
  'sent',
  'hardBounces',
  'softBounces',
  'rejects',
  'complaints',
  'unsubs',
  'opens',
  'uniqueOpens',
  'clicks',
  'uniqueClicks',
] as const;

export type Counts = Readonly<Record<(typeof COUNTS)[number], number>>;

export const NO_COUNTS: Counts = tableOf(COUNTS, () => 0);

/** The counters for the hour that begins at `start`. */
interface Hour extends Counts {
  readonly start: Date;
}

/** The time windows of a stats struct. */
export interface Windows {
  /** Since 00:00 UTC. */
  readonly today: Counts;
  /** The last 7 times 24 hours, including the whole hour in which they began; likewise for the others. */
  readonly last_7_days: Counts;
  readonly last_30_days: Counts;
  readonly last_60_days: Counts;
  readonly last_90_days: Counts;
}

/** Adds up counters of any time spans. */
export function addUp(hours: readonly Counts[]): Counts {
  const sum: Record<keyof Counts, number> = { ...NO_COUNTS };
  for (const hour of hours) for (const name of COUNTS) sum[name] += hour[name];
  return sum;
}

/** The last `days` days consist of the hours that begin later than this, and so include the hour they began in. */
export function sinceHours(now: Date, days: number): Date {
  return new Date(now.getTime() - days * DAY_MS - HOUR_MS);
}

/** The sums of all windows that end now. */
export function windowsOf(hours: readonly Hour[], now: Date): Windows {
  const after = (time: number) => addUp(hours.filter(({ start }) => start.getTime() > time));
  const days = (count: number) => after(sinceHours(now, count).getTime());
  const midnight = Math.floor(now.getTime() / DAY_MS) * DAY_MS;
  return {
    today: after(midnight - HOUR_MS),
    last_7_days: days(7),
    last_30_days: days(30),
    last_60_days: days(60),
    last_90_days: days(90),
  };
}

/** New accounts start in the middle, as if they had sent this many messages with this reputation. */
const PRIOR_MESSAGES = 200;
const PRIOR_REPUTATION = 50;
/** The hourly quota at the initial reputation. */
const BASE_QUOTA = 250;
const LEAST_QUOTA = 25;
const MAX_QUOTA = 1_000_000;
/** How much each event counts against the messages sent. Receivers judge by complaints first, then by unknown users. */
const WEIGHTS = { hardBounces: 10, rejects: 2, softBounces: 1, unsubs: 2, complaints: 100, resets: 5 } as const;

/** The formula as text for the API reference. */
export const REPUTATION_FORMULA =
  'Reputation is computed from this month and the previous one (UTC): good = messages sent ' +
  `− ${WEIGHTS.hardBounces} × hard bounces − ${WEIGHTS.softBounces} × soft bounces − ${WEIGHTS.rejects} × rejects − ` +
  `${WEIGHTS.unsubs} × unsubscribes − ${WEIGHTS.complaints} × complaints, at least 0, then − ${WEIGHTS.resets} × ` +
  `entries created by events that were removed from the rejection list; reputation = round((good × 100 + ` +
  `${PRIOR_MESSAGES} × ${PRIOR_REPUTATION}) / (sent + ${PRIOR_MESSAGES})), at least 0. A new account has ` +
  `${PRIOR_REPUTATION}.`;

/** The formula as text for the API reference. */
export const QUOTA_FORMULA =
  `hourly_quota = round(${BASE_QUOTA} × (reputation / ${PRIOR_REPUTATION})² × (1 + messages sent in these two months ` +
  `/ 1000)), at least ${LEAST_QUOTA} and at most ${MAX_QUOTA}.`;

/** The counters of a month; `resets`: entries of the rejection list that events created and the account removed. */
export interface Month extends Counts {
  readonly resets?: number;
}

/** Adds up the counters of several months. */
export function addUpMonths(months: readonly Month[]): Month {
  return { ...addUp(months), resets: months.reduce((sum, { resets = 0 }) => sum + resets, 0) };
}

/** The reputation from the counters of this month and the one before: an integer from 0 (poor) to 100 (excellent). */
export function reputationOf(counts: Month): number {
  const bad =
    counts.hardBounces * WEIGHTS.hardBounces +
    counts.softBounces * WEIGHTS.softBounces +
    counts.rejects * WEIGHTS.rejects +
    counts.unsubs * WEIGHTS.unsubs +
    counts.complaints * WEIGHTS.complaints;
  // Subtracted after the floor at 0: each reset affects the reputation (API contract), even if nothing good is left.
  const good = Math.max(0, counts.sent - bad) - (counts.resets ?? 0) * WEIGHTS.resets;
  return Math.max(0, Math.round((good * 100 + PRIOR_MESSAGES * PRIOR_REPUTATION) / (counts.sent + PRIOR_MESSAGES)));
}

/** The hourly quota for a reputation and the counters that it was computed from. */
export function hourlyQuota(reputation: number, counts: Pick<Counts, 'sent'>): number {
  const earned = BASE_QUOTA * (reputation / PRIOR_REPUTATION) ** 2 * (1 + counts.sent / 1000);
  return Math.min(MAX_QUOTA, Math.max(LEAST_QUOTA, Math.round(earned)));
}
