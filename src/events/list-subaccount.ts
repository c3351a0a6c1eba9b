import type { Clock } from '../base/clock.ts';
import { counterId, NO_COUNTS, startOf } from '../store/counters.ts';
import type { Store } from '../store/store.ts';
import type { Lists, Numbers } from './types.ts';

/** Rows that are removed side by side. */
const AT_ONCE = 100;

export interface SubaccountDeps {
  readonly store: Pick<Store, 'rejects'>;
  readonly lists: Pick<Lists, 'unreject'>;
  readonly numbers: Pick<Numbers, 'forget'>;
}

/** Removes what is kept of a subaccount beside its row: its rejects and its numbers. Its messages stay. Safe to repeat. */
export async function forgetSubaccount(
  { store, lists, numbers }: SubaccountDeps,
  account: string,
  slug: string,
): Promise<void> {
  // One half of the index after the other.
  for (const expired of [false, true]) {
    for (;;) {
      const found = await store.rejects.many(
        { account, subaccount: slug, expired, removed: false },
        { limit: AT_ONCE },
      );
      await Promise.all(found.map(({ email }) => lists.unreject(account, email, slug)));
      if (found.length < AT_ONCE) break;
    }
  }
  await numbers.forget(account, 'subaccount', slug);
}

/** Counts that the account took an entry off its rejection list that events had made: it costs a little reputation (mail/reputation.ts). */
export async function countReset(
  { store, clock }: { store: Pick<Store, 'counters'>; clock: Clock },
  account: string,
  subaccount: string,
): Promise<void> {
  const firstAt = new Date(clock.now());
  const start = startOf('month', firstAt);
  const things = [
    { kind: 'account', key: account } as const,
    ...(subaccount === '' ? [] : [{ kind: 'subaccount', key: subaccount } as const]),
  ];
  for (const { kind, key } of things) {
    await store.counters.add(
      counterId(account, kind, 'month', start, key),
      { resets: 1 },
      { account, kind, span: 'month', key, start, firstAt, ...NO_COUNTS },
    );
  }
}
