import type { Clock } from '../base/clock.ts';
import type { DomainTests } from '../outbound/domain-tests.ts';
import type { KeySwitch } from '../outbound/key-rotation.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

/** Domains of one run; the rest is oldest at the next one. */
const MOST_AT_ONCE = 500;
const IN_FLIGHT = 10;

/** Takes new DKIM keys into use that the DNS shows by now, and tests SPF and DKIM of the sender domains that are due, the longest due first. */
export function retestSenderDomainsTask(deps: {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly domainTests: DomainTests;
  readonly keySwitch: Pick<KeySwitch, 'lookAtAll'>;
  readonly clock: Clock;
}): Task {
  const { store, domainTests, keySwitch, clock } = deps;
  return {
    name: 'retest-sender-domains',
    schedule: '*/5 * * * *',
    async run(ending) {
      const rotated = await keySwitch.lookAtAll(ending);
      const due = await store.senderDomains.many(
        { nextTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'nextTestAt', limit: MOST_AT_ONCE },
      );
      let [tested, changed] = [0, 0];
      for (let at = 0; at < due.length && !ending?.aborted; at += IN_FLIGHT) {
        const step = due.slice(at, at + IN_FLIGHT);
        const after = await Promise.all(step.map((row) => domainTests.test(row)));
        tested += step.length;
        changed += after.filter(
          (row, index) => row.spfValid !== step[index]?.spfValid || row.dkimValid !== step[index]?.dkimValid,
        ).length;
      }
      return tested > 0 || rotated > 0 ? { tested, changed, ...(rotated > 0 && { rotated }) } : undefined;
    },
  };
}
