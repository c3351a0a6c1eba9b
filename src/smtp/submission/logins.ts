import type { Clock } from '../../base/clock.ts';
import { NO_METRICS, type Metrics } from '../../base/metrics.ts';
import { StoreAway } from '../../store/collection.ts';
import { keyHash } from '../../store/keys.ts';
import type { Store } from '../../store/store.ts';
import { capKey } from '../addresses.ts';
import type { Who } from '../verbs.ts';

const MINUTE_MS = 60_000;
/** Addresses whose failures are counted at one time. */
const MAX_COUNTED = 10_000;
/** Our own keys have 22 characters, those an operator brings along rarely more than 64. */
const LONGEST_KEY = 256;

/** wrong: no such key, or it was revoked · away: the store cannot be asked. */
export type Login = { readonly who: Who } | { readonly who?: undefined; readonly why: 'wrong' | 'away' };

/** Finds the account of a key. */
export interface Logins {
  /** Whether the address has failed too often in the last minute. Who guesses learns nothing more, not even by a right guess. */
  tooMany(address: string): boolean;
  /** Looks the key up, and counts a failure against the address. */
  logIn(key: string, address: string): Promise<Login>;
  /** Looks again whether the key still holds. */
  check(who: Who): Promise<Login>;
}

export function createLogins(settings: { readonly maxBadKeysPerMinute: number }, deps: { readonly store: Pick<Store, 'keys' | 'accounts'>; readonly clock: Clock }): Logins {
  const { store, clock } = deps;
  const failures = new Map<string, { count: number; readonly from: number }>();

  async function find(id: string): Promise<Login> {
    try {
      const row = await store.keys.one({ id, revokedAt: null });
      if (!row || !await store.accounts.one({ id: row.account })) return { why: 'wrong' };
      return { who: { account: row.account, key: id } };
    } catch (error) {
      if (error instanceof StoreAway) return { why: 'away' };
      throw error;
    }
  }

  function recent(name: string) {
    const entry = failures.get(name);
    return entry && clock.monotonic() - entry.from < MINUTE_MS ? entry : undefined;
  }

  function note(name: string): void {
    const entry = recent(name);
    if (entry) {
      entry.count++;
      return;
    }
    // The oldest goes first, so that memory stays bounded when the failures come from everywhere.
    const oldest = failures.size >= MAX_COUNTED ? failures.keys().next().value : undefined;
    if (oldest !== undefined) failures.delete(oldest);
    failures.delete(name);
    failures.set(name, { count: 1, from: clock.monotonic() });
  }

  return Object.freeze({
    tooMany: (address: string) => (recent(capKey(address))?.count ?? 0) >= settings.maxBadKeysPerMinute,
    async logIn(key: string, address: string) {
      const plausible = key !== '' && key.length <= LONGEST_KEY;
      const login = plausible ? await find(keyHash(key)) : { why: 'wrong' } as const;
      if (!login.who && login.why === 'wrong') note(capKey(address));
      return login;
    },
    check: (who: Who) => find(who.key),
  });
}

/** The same, counted. */
export function countLogins(logins: Logins, metrics: Metrics = NO_METRICS): Logins {
  const count = (result: string) => metrics.counter('postern_smtp_logins_total', { result });
  const results = { ok: count('ok'), wrong: count('wrong'), away: count('away') };
  return Object.freeze({
    ...logins,
    async logIn(key: string, address: string) {
      const login = await logins.logIn(key, address);
      results[login.who ? 'ok' : login.why].add();
      return login;
    },
  });
}
