// Sums of counters. Layer rule: this file knows nothing of the store, so the shapes are named here again, structurally.

/** What is counted of sent mail. */
export interface Tally {
  readonly sent: number;
  readonly hardBounces: number;
  readonly softBounces: number;
  readonly rejects: number;
  readonly complaints: number;
  readonly unsubs: number;
  readonly opens: number;
  readonly uniqueOpens: number;
  readonly clicks: number;
  readonly uniqueClicks: number;
}

/** The counts of one thing in the hour that begins at `start`. */
interface Hour extends Tally {
  readonly start: Date;
}

const ZERO: Tally = {
  sent: 0,
  hardBounces: 0,
  softBounces: 0,
  rejects: 0,
  complaints: 0,
  unsubs: 0,
  opens: 0,
  uniqueOpens: 0,
  clicks: 0,
  uniqueClicks: 0,
};

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

/** The windows of a stats struct. */
export interface Windows {
  /** Since 00:00 UTC. */
  readonly today: Tally;
  /** The last 7 times 24 hours, the hour in which they began included; the others alike. */
  readonly last_7_days: Tally;
  readonly last_30_days: Tally;
  readonly last_60_days: Tally;
  readonly last_90_days: Tally;
}

/** Adds up rows of any span. */
export function addUp(hours: readonly Tally[]): Tally {
  return hours.reduce(
    (sum, hour) => ({
      sent: sum.sent + hour.sent,
      hardBounces: sum.hardBounces + hour.hardBounces,
      softBounces: sum.softBounces + hour.softBounces,
      rejects: sum.rejects + hour.rejects,
      complaints: sum.complaints + hour.complaints,
      unsubs: sum.unsubs + hour.unsubs,
      opens: sum.opens + hour.opens,
      uniqueOpens: sum.uniqueOpens + hour.uniqueOpens,
      clicks: sum.clicks + hour.clicks,
      uniqueClicks: sum.uniqueClicks + hour.uniqueClicks,
    }),
    ZERO,
  );
}

/** Hours that begin later than this belong to the last `days` days: the hour in which they began is one of them. */
export function sinceHours(now: Date, days: number): Date {
  return new Date(now.getTime() - days * DAY_MS - HOUR_MS);
}

/** The sums of every window that ends now. */
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

/** An account begins in the middle, as if it had sent so many messages with that result. */
const PRIOR_MESSAGES = 200;
const PRIOR_REPUTATION = 50;
/** What an account may send in an hour at the reputation it begins with. */
const BASE_QUOTA = 250;
const LEAST_QUOTA = 25;
const MOST_QUOTA = 1_000_000;
/**
 * What one of each takes away from the good of so many messages. Receivers judge by complaints first, then by unknown
 * users.
 */
const WEIGHTS = { hardBounces: 10, rejects: 2, softBounces: 1, unsubs: 2, complaints: 100, resets: 5 } as const;

/** The formula in words, for the reference. */
export const REPUTATION_FORMULA =
  `Reputation counts this month and the one before (UTC): the good is the messages sent, less ${WEIGHTS.hardBounces} for a hard bounce, ${WEIGHTS.softBounces} for a soft bounce, ` +
  `${WEIGHTS.rejects} for a reject, ${WEIGHTS.unsubs} for an unsubscribe and ${WEIGHTS.complaints} for a complaint (never below 0), and then ${WEIGHTS.resets} less for ` +
  'each entry of an event that was taken off the rejection list; ' +
  `reputation = round((good × 100 + ${PRIOR_MESSAGES} × ${PRIOR_REPUTATION}) / (sent + ${PRIOR_MESSAGES})), never below 0, so an account begins with ${PRIOR_REPUTATION}.`;

/** The formula in words, for the reference. */
export const QUOTA_FORMULA = `hourly_quota = round(${BASE_QUOTA} × (reputation / ${PRIOR_REPUTATION})² × (1 + sent in these two months / 1000)), from ${LEAST_QUOTA} to ${MOST_QUOTA}.`;

/**
 * The counts of one month; `resets` are entries of the rejection list that events had made and the account took off.
 */
export interface Month extends Tally {
  readonly resets?: number;
}

/** Adds up months. */
export function addUpMonths(months: readonly Month[]): Month {
  return { ...addUp(months), resets: months.reduce((sum, { resets = 0 }) => sum + resets, 0) };
}

/**
 * The reputation of what was sent in the present month and the one before: a whole number from 0 (poor) to 100
 * (excellent).
 */
export function reputationOf(counts: Month): number {
  const bad =
    counts.hardBounces * WEIGHTS.hardBounces +
    counts.softBounces * WEIGHTS.softBounces +
    counts.rejects * WEIGHTS.rejects +
    counts.unsubs * WEIGHTS.unsubs +
    counts.complaints * WEIGHTS.complaints;
  // Behind the floor: each of them affects the reputation (the contract), also of a small account that nothing good is
  // left of.
  const good = Math.max(0, counts.sent - bad) - (counts.resets ?? 0) * WEIGHTS.resets;
  return Math.max(0, Math.round((good * 100 + PRIOR_MESSAGES * PRIOR_REPUTATION) / (counts.sent + PRIOR_MESSAGES)));
}

/** How many messages may be sent in an hour, by the counts that the reputation was made of. */
export function hourlyQuota(reputation: number, counts: Pick<Tally, 'sent'>): number {
  const earned = BASE_QUOTA * (reputation / PRIOR_REPUTATION) ** 2 * (1 + counts.sent / 1000);
  return Math.min(MOST_QUOTA, Math.max(LEAST_QUOTA, Math.round(earned)));
}
