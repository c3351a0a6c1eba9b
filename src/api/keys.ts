import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { AccountRow } from '../store/accounts.ts';
import { keyHash } from '../store/keys.ts';
import type { Store } from '../store/store.ts';
import { network } from './client-address.ts';
import { missing, refusal } from './errors.ts';

/** How long a key that was good is not looked up again: so much later a revocation holds at the latest. Milliseconds. */
const FRESH_MS = 1000;
const MAX_REMEMBERED = 10_000;
const MINUTE_MS = 60_000;
/** Our own keys have 22 characters, those an operator brings along rarely more than 64. */
const LONGEST_KEY = 256;

export interface KeySettings {
  /** Wrong keys from one address in a minute after which it is answered 429. */
  readonly maxBadKeysPerMinute: number;
}

/** Finds the account of a key. A key that was revoked and one that never was are the same. */
export interface KeyReader {
  /** Throws Invalid_Key, RequestLimitExceeded, or ValidationError when there is none. */
  accountOf(key: unknown, address: string): Promise<AccountRow>;
}

export function createKeyReader(settings: KeySettings, deps: { store: Store; clock: Clock; log: Log }): KeyReader {
  const { store, clock, log } = deps;
  const good = new Map<string, { account: AccountRow; readAt: number }>();
  const failures = createFailures(settings.maxBadKeysPerMinute, clock);

  async function lookup(id: string): Promise<AccountRow | undefined> {
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
    async accountOf(key: unknown, address: string) {
      // Before the look-up: who guesses learns nothing more, not even by a right guess.
      if (failures.tooMany(address)) throw refusal('RequestLimitExceeded');
      if (key === undefined) throw missing('key');
      const plausible = typeof key === 'string' && key !== '' && key.length <= LONGEST_KEY;
      const account = plausible ? await lookup(keyHash(key)) : undefined;
      if (account) return account;
      failures.note(address);
      log.info('api.refused_key', { address });
      throw refusal('Invalid_Key');
    },
  });
}

/** Counts failures per network in windows of a minute. */
function createFailures(limit: number, clock: Clock) {
  const counts = new Map<string, { count: number; from: number }>();
  const current = (name: string) => {
    const entry = counts.get(name);
    return entry && clock.monotonic() - entry.from < MINUTE_MS ? entry : undefined;
  };
  return {
    tooMany: (address: string) => (current(network(address))?.count ?? 0) >= limit,
    note(address: string) {
      const name = network(address);
      const entry = current(name);
      if (entry) {
        entry.count++;
        return;
      }
      // The oldest goes first, so that memory stays bounded when the failures come from everywhere.
      const oldest = counts.size >= MAX_REMEMBERED ? counts.keys().next().value : undefined;
      if (oldest !== undefined) counts.delete(oldest);
      counts.delete(name);
      counts.set(name, { count: 1, from: clock.monotonic() });
    },
  };
}
