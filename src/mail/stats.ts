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

/** The counts of one hour of one thing. */
export interface Hour extends Tally {
  readonly key: string;
  /** The beginning of the hour. */
  readonly hour: Date;
}

const ZERO: Tally = { sent: 0, hardBounces: 0, softBounces: 0, rejects: 0, complaints: 0, unsubs: 0, opens: 0, uniqueOpens: 0, clicks: 0, uniqueClicks: 0 };

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
  readonly all_time: Tally;
}

/** Adds up hours. */
export function addUp(hours: readonly Tally[]): Tally {
  return hours.reduce((sum, hour) => ({
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
  }), ZERO);
}

/** The sums of every window that ends now. */
export function windowsOf(hours: readonly Hour[], now: Date): Windows {
  const since = (time: number) => addUp(hours.filter((hour) => hour.hour.getTime() > time - HOUR_MS));
  const days = (count: number) => since(now.getTime() - count * DAY_MS);
  const midnight = Math.floor(now.getTime() / DAY_MS) * DAY_MS;
  return {
    today: since(midnight),
    last_7_days: days(7),
    last_30_days: days(30),
    last_60_days: days(60),
    last_90_days: days(90),
    all_time: addUp(hours),
  };
}

/** The sums of each key with the first hour it was seen in, in the order they come. */
export function totals(hours: readonly Hour[]): Map<string, { readonly first: Date; readonly counts: Tally }> {
  const byKey = Map.groupBy(hours, (hour) => hour.key);
  return new Map([...byKey].map(([key, own]) => {
    const first = own.reduce((earliest, { hour }) => hour < earliest ? hour : earliest, own[0]?.hour ?? new Date(0));
    return [key, { first, counts: addUp(own) }];
  }));
}
