import type { Clock } from '../base/clock.ts';
import type { TrackingDomains } from '../outbound/tracking-domains.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

export interface RetestTrackingDeps {
  readonly store: Pick<Store, 'trackingDomains'>;
  readonly trackingDomainTests: Pick<TrackingDomains, 'test'>;
  readonly clock: Clock;
}

/** Domains of one run; the rest is oldest at the next one. */
const MOST_AT_ONCE = 500;
const IN_FLIGHT = 10;

/** Tests the tracking domains that are due, the longest due first: each day, each hour while they do not lead here. */
export function retestTrackingDomainsTask({ store, trackingDomainTests, clock }: RetestTrackingDeps): Task {
  return {
    name: 'retest-tracking-domains',
    schedule: '4-59/5 * * * *',
    async run(ending) {
      const due = await store.trackingDomains.many(
        { nextTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'nextTestAt', limit: MOST_AT_ONCE },
      );
      let [tested, changed] = [0, 0];
      for (let at = 0; at < due.length && !ending?.aborted; at += IN_FLIGHT) {
        const step = due.slice(at, at + IN_FLIGHT);
        const after = await Promise.all(step.map((row) => trackingDomainTests.test(row)));
        tested += step.length;
        changed += after.filter((row, index) => row.valid !== step[index]?.valid).length;
      }
      return tested > 0 ? { tested, changed } : undefined;
    },
  };
}
