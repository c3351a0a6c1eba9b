import type { Clock } from '../base/clock.ts';
import { checkMx } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import type { Ownership } from '../inbound/ownership.ts';
import { type InboundDomainRow, isClaim, nameOf } from '../store/inbound-domains.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

export interface RetestInboundSettings {
  /** The names that an MX may have to be ours. */
  readonly mxHosts: readonly string[];
}

export interface RetestInboundDeps {
  readonly store: Pick<Store, 'inboundDomains'>;
  readonly resolver: Resolver;
  readonly ownership: Pick<Ownership, 'settle'>;
  readonly clock: Clock;
}

const HOUR_MS = 3_600_000;
const MOST_AT_ONCE = 500;
const IN_FLIGHT = 10;

/**
 * Looks up the MX records of the inbound domains that nobody looked at for an hour, the longest ago first, and the proofs of claims.
 */
export function retestInboundDomainsTask(
  { mxHosts }: RetestInboundSettings,
  { store, resolver, ownership, clock }: RetestInboundDeps,
): Task {
  /** True when the domain turned valid or invalid, or was proven. */
  async function retest(row: InboundDomainRow): Promise<boolean> {
    const found = await checkMx(resolver, nameOf(row), mxHosts);
    // Also when the DNS was mute, so that domains without an answer do not keep the others waiting.
    const validMx = found === 'unknown' ? row.validMx : found.valid;
    // Only where nobody looked meanwhile: who asked just now has seen the newer records.
    const written = await store.inboundDomains.change(
      { id: row.id, account: row.account, testedAt: row.testedAt },
      { validMx, testedAt: new Date(clock.now()) },
    );
    const settled = written && isClaim(written) ? await ownership.settle(written) : written;
    return settled !== undefined && (validMx !== row.validMx || settled.id !== row.id);
  }

  return {
    name: 'retest-inbound-domains',
    schedule: '2-59/5 * * * *',
    async run(ending) {
      const before = new Date(clock.now() - HOUR_MS);
      const fresh = await store.inboundDomains.many({ testedAt: null }, { limit: MOST_AT_ONCE });
      const old = await store.inboundDomains.many(
        { testedAt: { range: { lte: before } } },
        { sort: 'testedAt', limit: MOST_AT_ONCE },
      );
      const due = [...fresh, ...old];
      let [tested, changed] = [0, 0];
      for (let at = 0; at < due.length && !ending?.aborted; at += IN_FLIGHT) {
        const turned = await Promise.all(due.slice(at, at + IN_FLIGHT).map(retest));
        tested += turned.length;
        changed += turned.filter(Boolean).length;
      }
      return tested > 0 ? { tested, changed } : undefined;
    },
  };
}
