import { type Counts, NO_COUNTS } from '../../src/mail/stats.ts';
import { type CounterSubject, counterId, SPANS_OF, startOf } from '../../src/store/rows/counters.ts';
import type { Store } from '../../src/store/store.ts';

/** Counts of one thing at a time, in every span that its kind has, as events would have left them. */
export async function putCounts(
  store: Pick<Store, 'counters'>,
  account: string,
  kind: CounterSubject,
  key: string,
  counts: Partial<Counts>,
  at: Date,
): Promise<void> {
  for (const span of SPANS_OF[kind]) {
    const start = startOf(span, at);
    await store.counters.add(counterId(account, kind, span, start, key), counts, {
      ...NO_COUNTS,
      account,
      kind,
      span,
      key,
      start,
      firstAt: at,
    });
  }
}
