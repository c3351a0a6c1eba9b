import { frozen } from './frozen.ts';

// Limits that keep one client from exhausting a shared resource: how much it may hold, and how slowly it may send.

/** A resource with a total limit and a limit per client. */
export type Shares = ReturnType<typeof createShares>;

export function createShares(limits: { readonly all: number; readonly each: number }) {
  const held = new Map<string, number>();
  let inAll = 0;
  return frozen({
    /** Takes `amount` for a client, or nothing if that exceeds its own limit (`own-share`) or the total (`all`). */
    take(who: string, amount: number): 'taken' | 'own-share' | 'all' {
      const own = (held.get(who) ?? 0) + amount;
      if (own > limits.each) return 'own-share';
      if (inAll + amount > limits.all) return 'all';
      held.set(who, own);
      inAll += amount;
      return 'taken';
    },
    /** Gives back an amount. */
    give(who: string, amount: number): void {
      const left = (held.get(who) ?? 0) - amount;
      if (left > 0) held.set(who, left);
      else held.delete(who);
      inAll -= amount;
    },
  });
}

/** The minimum rate of incoming data, in bytes per second averaged over `seconds`. */
interface Floor {
  readonly rate: number;
  readonly seconds: number;
}

/**
 * Whether data arrives below the minimum rate; to be called once a second. `totals` has the totals of the last seconds,
 * newest last, and is updated here. Seconds without a call (the event loop was busy) do not count against the sender.
 */
export function isTooSlow(totals: number[], total: number, { rate, seconds }: Floor): boolean {
  totals.push(total);
  if (totals.length <= seconds) return false;
  return total - (totals.shift() ?? 0) < rate * seconds;
}
