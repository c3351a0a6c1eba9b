import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { AccountRow } from '../store/accounts.ts';
import { createKeyCheck, type KeyCheckSettings } from '../store/key-check.ts';
import type { Store } from '../store/store.ts';
import { missing, refusal } from './errors.ts';

export type KeySettings = KeyCheckSettings;

/** Finds the account of a key. A key that was revoked and one that never was are the same. */
export interface KeyReader {
  /** `apiKey` is the id of the key's row. Throws Invalid_Key, RequestLimitExceeded, or ValidationError when there is none. */
  accountOf(key: unknown, address: string): Promise<{ readonly account: AccountRow; readonly apiKey: string }>;
}

export function createKeyReader(
  settings: KeySettings,
  deps: { store: Pick<Store, 'keys' | 'accounts'>; clock: Clock; log: Log },
): KeyReader {
  const keys = createKeyCheck(settings, deps);
  return Object.freeze({
    async accountOf(key: unknown, address: string) {
      if (key === undefined) throw missing('key');
      const found = await keys.check(key, address);
      if (found.kind === 'good') return { account: found.account, apiKey: found.id };
      if (found.kind === 'too-many') throw refusal('RequestLimitExceeded');
      deps.log.info('api.refused_key', { address });
      throw refusal('Invalid_Key');
    },
  });
}
