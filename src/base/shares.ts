import { frozen } from './frozen.ts';
/**
 * What keeps one client from having what is there for all: how much of a thing each may hold, and how slowly it may
 * send.
 */

/** Something of which there is so much in all, and so much for each who asks. */
export interface Shares {
  /**
   * Takes that much for `who`, or nothing: `own-share` when it has too much already, `all` when nobody can have more.
   */
  take(who: string, amount: number): 'taken' | 'own-share' | 'all';
  /** Gives back what was taken. */
  give(who: string, amount: number): void;
}

export function createShares(limits: { readonly all: number; readonly each: number }): Shares {
  const held = new Map<string, number>();
  let inAll = 0;
  return frozen({
    take(who, amount) {
      const own = (held.get(who) ?? 0) + amount;
      if (own > limits.each) return 'own-share';
      if (inAll + amount > limits.all) return 'all';
      held.set(who, own);
      inAll += amount;
      return 'taken';
    },
    give(who, amount) {
      const left = (held.get(who) ?? 0) - amount;
      if (left > 0) held.set(who, left);
      else held.delete(who); // nobody is remembered who holds nothing
      inAll -= amount;
    },
  });
}

/** The slowest that something may arrive: bytes a second, over any `seconds`. */
interface Floor {
  readonly rate: number;
  readonly seconds: number;
}

/**
 * Looks once a second how much has come. `totals` is what was there at each of the last seconds, the newest last, and
 * is kept by this function. Seconds in which we did not look (the event loop was busy) are not held against the sender.
 */
export function isTooSlow(totals: number[], total: number, { rate, seconds }: Floor): boolean {
  totals.push(total);
  if (totals.length <= seconds) return false;
  return total - (totals.shift() ?? 0) < rate * seconds;
}
