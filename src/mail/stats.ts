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
export interface Hour extends Tally {
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
