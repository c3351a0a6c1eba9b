import type { Store } from '../store/store.ts';

/** The account behind a number that a token names; undefined when there is none. A number never changes hands, so it is asked for once. */
export type AccountOf = (number: number) => Promise<string | undefined>;

/** Keeps what it has found: as many numbers as there are accounts whose mail comes back. */
export function createAccountOf(store: Pick<Store, 'accounts'>): AccountOf {
  const known = new Map<number, string>();
  return async (number) => {
    const account = known.get(number) ?? (await store.accounts.one({ number }))?.id;
    if (account !== undefined) known.set(number, account);
    return account;
  };
}
