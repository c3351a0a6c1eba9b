import { type Clock, createLoop, MAX_CLOCK_SKEW_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { LeaseRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';

/** How long a lease lasts without renewal. Renewed three times as often. Milliseconds. */
const TERM_MS = 60_000;
const RENEW_MS = 20_000;

/** The answer to a request for a lease. */
type LeaseAnswer =
  | { readonly kind: 'held'; readonly lease: Lease }
  /** Another process holds it. */
  | { readonly kind: 'elsewhere' }
  /** It is free, but another run began after `since`. */
  | { readonly kind: 'done' };

/** The right to run one task. */
export interface Lease {
  /** Aborted when the lease was lost, or could not be renewed in time. */
  readonly lost: AbortSignal;
  /** Never throws: a lease that cannot be released expires. */
  release(): Promise<void>;
}

export type Leases = ReturnType<typeof createLeases>;

/** The leases of one process; `holder` identifies the process and is never reused. */
export function createLeases(
  { holder }: { readonly holder: string },
  { store: { leases }, clock }: { store: Pick<Store, 'leases'>; clock: Clock },
) {
  /** Requests the lease of a task, unless another run began after `since` (ms since 1970). Throws StoreAway. */
  async function acquire(task: string, since: number): Promise<LeaseAnswer> {
    const row = await leases.one({ id: task });
    const now = clock.now();
    const refused = row && refusalOf(row, { holder, since, now });
    if (refused) return { kind: refused };
    const mine = { holder, until: new Date(now + TERM_MS), ranAt: new Date(now) };
    // Of all that read the same row, only one succeeds in changing it.
    const taken = row
      ? (await leases.change({ id: task, holder: row.holder, until: row.until }, mine)) !== undefined
      : (await leases.insert({ id: task, ...mine })) === 'inserted';
    return taken ? { kind: 'held', lease: keep(task) } : { kind: 'elsewhere' };
  }

  /** Renews the lease until it is released or lost. */
  function keep(task: string): Lease {
    const losing = new AbortController();
    let until = clock.monotonic() + TERM_MS;
    const renewing = createLoop(clock, async () => {
      const asked = clock.monotonic();
      try {
        const row = await leases.change({ id: task, holder }, { until: new Date(clock.now() + TERM_MS) });
        if (row) until = asked + TERM_MS;
        else losing.abort();
      } catch (error) {
        if (!(error instanceof StoreAway) || clock.monotonic() >= until - RENEW_MS) losing.abort();
      }
      return losing.signal.aborted ? undefined : RENEW_MS;
    });
    renewing.startAfter(RENEW_MS);
    return {
      lost: losing.signal,
      async release() {
        void renewing.stop();
        await leases.change({ id: task, holder }, { holder: null }).catch(() => {});
      },
    };
  }

  return frozen({ acquire });
}

/**
 * Why a lease is not granted. After a clock that ran ahead has been corrected, the times that it wrote must not block a
 * task: the end of an abandoned lease and the start of a run are ignored if they are further in the future than a
 * correct clock could have written.
 */
function refusalOf(
  row: LeaseRow,
  { holder, since, now }: { holder: string; since: number; now: number },
): 'elsewhere' | 'done' | undefined {
  const isBetween = (time: Date, after: number, before: number) => time.getTime() > after && time.getTime() <= before;
  if (row.holder !== null && row.holder !== holder && isBetween(row.until, now, now + TERM_MS + MAX_CLOCK_SKEW_MS))
    return 'elsewhere';
  return row.holder === null && isBetween(row.ranAt, since, now + MAX_CLOCK_SKEW_MS) ? 'done' : undefined;
}
