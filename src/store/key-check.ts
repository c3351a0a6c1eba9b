import type { Clock } from '../base/clock.ts';
import { networkOf } from '../base/networks.ts';
import type { AccountRow } from './accounts.ts';
import { keyHash } from './keys.ts';
import type { Store } from './store.ts';

/** How long a key that was good is not looked up again: so much later a revocation holds at the latest. Milliseconds. */
const FRESH_MS = 1000;
const MAX_REMEMBERED = 10_000;
const MINUTE_MS = 60_000;
/** Our own keys have 22 characters, those an operator brings along rarely more than 64. */
const LONGEST_KEY = 256;

export interface KeyCheckSettings {
  /** Wrong keys from one address in a minute; those that follow are answered nothing but that there were too many. */
  readonly maxBadKeysPerMinute: number;
}

/** good: whose it is, and the id of its row · wrong: no such key, or it was revoked · too-many: wrong, as were too many before it. */
export type KeyAnswer =
  | { readonly kind: 'good'; readonly account: AccountRow; readonly id: string }
  | { readonly kind: 'wrong' | 'too-many' };

/** Finds the account of a key, for the API and for SMTP logins. */
export interface KeyCheck {
  /**
   * Looks the key up before anything else. Only who brings wrong ones is throttled: whoever shares an address with him (an office, a
   * proxy, a cloud's NAT) goes on, and a key of 128 random bits is not guessed whatever the rate. Throws `StoreAway`.
   */
  check(key: unknown, address: string): Promise<KeyAnswer>;
  /** The account of a key by the id of its row; undefined when it was revoked. Throws `StoreAway`. */
  accountOf(id: string): Promise<AccountRow | undefined>;
}

export function createKeyCheck(
  settings: KeyCheckSettings,
  deps: { readonly store: Pick<Store, 'keys' | 'accounts'>; readonly clock: Clock },
): KeyCheck {
  const { store, clock } = deps;
  const good = new Map<string, { readonly account: AccountRow; readonly readAt: number }>();
  const failures = createFailures(settings.maxBadKeysPerMinute, clock);

  async function accountOf(id: string): Promise<AccountRow | undefined> {
    const known = good.get(id);
    if (known && clock.monotonic() - known.readAt < FRESH_MS) return known.account;
    good.delete(id);
    // The store is asked for a good one: a revoked row that came back as far as here would take longer than none at all.
    const row = await store.keys.one({ id, revokedAt: null });
    if (!row) return undefined;
    const account = await store.accounts.one({ id: row.account });
    if (!account) return undefined;
    if (good.size >= MAX_REMEMBERED) good.clear();
    good.set(id, { account, readAt: clock.monotonic() });
    return account;
  }

  return Object.freeze({
    accountOf,
    async check(key: unknown, address: string): Promise<KeyAnswer> {
      const plausible = typeof key === 'string' && key !== '' && key.length <= LONGEST_KEY;
      const id = plausible ? keyHash(key) : '';
      const account = plausible ? await accountOf(id) : undefined;
      if (account) return { kind: 'good', account, id };
      return { kind: failures.note(networkOf(address)) ? 'wrong' : 'too-many' };
    },
  });
}

/** Counts failures per network in windows of a minute. `note` answers whether this one was still within the limit. */
function createFailures(limit: number, clock: Clock) {
  const counts = new Map<string, { count: number; readonly from: number }>();
  return {
    note(name: string): boolean {
      const entry = counts.get(name);
      if (entry && clock.monotonic() - entry.from < MINUTE_MS) return ++entry.count <= limit;
      counts.delete(name);
      // The oldest goes first, so that memory stays bounded when the failures come from everywhere.
      const oldest = counts.size >= MAX_REMEMBERED ? counts.keys().next().value : undefined;
      if (oldest !== undefined) counts.delete(oldest);
      counts.set(name, { count: 1, from: clock.monotonic() });
      return limit >= 1;
    },
  };
}
