import { MINUTE_MS } from '../base/clock.ts';
import { type EndpointName, endpointKey } from './delivery.ts';
import type { Reader } from './disk/reader.ts';

// Waiting deliveries, by endpoint and age, as in `qshape` of Postfix.

/** The deliveries that wait for one endpoint. Times are milliseconds since 1970. */
export type WaitingAges = Readonly<ReturnType<typeof newCounting>>;

/** Minutes. */
export const AGES = [5, 10, 20, 40, 80, 160] as const;

/** Deliveries counted in one query: about 10 ms. */
const WINDOW = 20_000;

/** Counts waiting deliveries, in steps between which other queries can run. */
export async function readAges({ read }: Pick<Reader, 'read'>, now: number): Promise<readonly WaitingAges[]> {
  const since = [now + 1, ...AGES.map((minutes) => now - minutes * MINUTE_MS)];
  const found = new Map<string, ReturnType<typeof newCounting>>();
  let after: readonly [number, number] | null = [Number.MIN_SAFE_INTEGER, 0];
  while (after) {
    const { counts, next }: Awaited<ReturnType<typeof read<'waitingSince'>>> = await read(
      'waitingSince',
      since,
      after,
      WINDOW,
    );
    for (const one of counts) {
      const key = endpointKey(one);
      const known = found.get(key) ?? newCounting(one);
      found.set(key, known);
      known.waiting += one.count;
      known.parked += one.parked;
      known.oldest = Math.min(known.oldest, one.oldest);
      if (one.age === 0) known.later += one.count;
      else known.ages[one.age - 1] = (known.ages[one.age - 1] ?? 0) + one.count;
    }
    after = next;
  }
  return [...found.values()];
}

function newCounting({ account, url, oldest }: EndpointName & { readonly oldest: number }) {
  return {
    account,
    url,
    waiting: 0,
    /** The number that have waited less than each limit in `AGES`; the last element: the rest. */
    ages: Array.from({ length: AGES.length + 1 }, () => 0),
    /** Those scheduled for later; they are not in `ages`. */
    later: 0,
    parked: 0,
    /** When the oldest began to wait: when it was accepted, scheduled or replayed. */
    oldest,
  };
}
