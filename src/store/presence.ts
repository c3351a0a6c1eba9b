import type { Fields, Log } from '../base/log.ts';

/** Notes whether the database answers, and logs each change once. */
export interface Presence {
  here(details?: Fields): void;
  away(reason: string): void;
}

export function createPresence(log: Log, driver: 'embedded' | 'mongo'): Presence {
  let state: 'unknown' | 'here' | 'away' = 'unknown';
  return Object.freeze({
    here(details: Fields = {}) {
      if (state === 'here') return;
      log.info(state === 'away' ? 'store.back' : 'store.connected', { driver, ...details });
      state = 'here';
    },
    away(reason: string) {
      if (state === 'away') return;
      state = 'away';
      log.warn('store.away', { driver, reason });
    },
  });
}
