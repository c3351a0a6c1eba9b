import type { Clock } from '../../base/clock.ts';
import { type Metrics, NO_METRICS } from '../../base/metrics.ts';
import { StoreAway } from '../../store/collection.ts';
import { createKeyCheck, type KeyCheckSettings } from '../../store/key-check.ts';
import type { Store } from '../../store/store.ts';
import type { Who } from '../verbs.ts';

/** wrong: no such key, or it was revoked · too-many: wrong, as were too many from that address · away: the store cannot be asked. */
export type Login = { readonly who: Who } | { readonly who?: undefined; readonly why: 'wrong' | 'too-many' | 'away' };

/** Finds the account of a key. */
export interface Logins {
  /** Looks the key up, and counts a failure against the address. */
  logIn(key: string, address: string): Promise<Login>;
  /** Looks again whether the key still holds. */
  check(who: Who): Promise<Login>;
}

/** Each login is counted in the metrics by its result. */
export function createLogins(
  settings: KeyCheckSettings,
  deps: {
    readonly store: Pick<Store, 'keys' | 'accounts'>;
    readonly clock: Clock;
    readonly metrics?: Metrics | undefined;
  },
): Logins {
  const keys = createKeyCheck(settings, deps);
  const count = (result: string) => (deps.metrics ?? NO_METRICS).counter('postern_smtp_logins_total', { result });
  const wrong = count('wrong');
  const results = { ok: count('ok'), wrong, 'too-many': wrong, away: count('away') };

  return Object.freeze({
    async logIn(key: string, address: string) {
      const login = await unlessAway(async () => {
        const found = await keys.check(key, address);
        return found.kind === 'good' ? { who: { account: found.account.id, key: found.id } } : { why: found.kind };
      });
      results[login.who ? 'ok' : login.why].add();
      return login;
    },
    check: (who: Who) => unlessAway(async () => ((await keys.accountOf(who.key)) ? { who } : { why: 'wrong' })),
  });
}

async function unlessAway(look: () => Promise<Login>): Promise<Login> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof StoreAway) return { why: 'away' };
    throw error;
  }
}
