import { type Clock, DAY_MS, HOUR_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { bareHost } from '../../base/networks.ts';
import { MAX_TESTED, type Task, testDue } from '../../base/service.ts';
import { checkPointsTo } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import { type TrackingDomainRow, trackingDomainId } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import { afterTest, changeTested } from './domain-tests.ts';

interface TrackingDomainSettings {
  /** Base of links: a tracking domain must point to its host. */
  readonly publicUrl: string;
}

interface TrackingDomainDeps {
  readonly store: Pick<Store, 'trackingDomains' | 'senderDomains'>;
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/**
 * The tracking domains that accounts keep, with the result of the last DNS test. Whether a message may use one is
 * decided when it is composed (custom-domains.ts), by the same two proofs, not by this list.
 */
export type TrackingDomains = ReturnType<typeof createTrackingDomains>;

export function createTrackingDomains(settings: TrackingDomainSettings, deps: TrackingDomainDeps) {
  const { store, resolver, clock } = deps;
  const host = bareHost(new URL(settings.publicUrl));

  /** Tests a row and returns the updated one. */
  async function test(row: TrackingDomainRow): Promise<TrackingDomainRow> {
    const check = await checkPointsTo(resolver, row.domain, host);
    return changeTested(store.trackingDomains, row, (before) => {
      const now = new Date(clock.now());
      const status = afterTest(before, check, now);
      return {
        valid: status.valid,
        validAfter: status.validAfter,
        error: status.error,
        ...(check !== 'unknown' && { lastTestedAt: now }),
        nextTestAt: new Date(now.getTime() + (status.valid === true ? DAY_MS : HOUR_MS)),
      };
    });
  }

  /** Adds a domain (A-labels) if needed, tests it now, and returns its row. */
  async function add(account: string, domain: string): Promise<TrackingDomainRow> {
    const now = new Date(clock.now());
    const row: TrackingDomainRow = {
      id: trackingDomainId(account, domain),
      account,
      domain,
      createdAt: now,
      lastTestedAt: null,
      valid: null,
      validAfter: null,
      error: null,
      nextTestAt: now,
      version: 0,
    };
    const known =
      (await store.trackingDomains.insert(row)) === 'duplicate'
        ? await store.trackingDomains.one({ id: row.id })
        : undefined;
    return test(known ?? row);
  }

  return frozen({
    add,
    test,
    /** The account's rows with proven ownership: the domain, or a parent, is a verified sender domain. */
    async owned(account: string, rows: readonly TrackingDomainRow[]): Promise<ReadonlySet<string>> {
      const names = [...new Set(rows.flatMap(({ domain }) => withParents(domain)))];
      const found = names.length === 0 ? [] : await store.senderDomains.many({ account, domain: { in: names } });
      const verified = new Set(found.filter(({ verifiedAt }) => verifiedAt !== null).map(({ domain }) => domain));
      return new Set(
        rows.filter(({ domain }) => withParents(domain).some((name) => verified.has(name))).map(({ domain }) => domain),
      );
    },
  });
}

export interface RetestTrackingDeps {
  readonly store: Pick<Store, 'trackingDomains'>;
  readonly trackingDomainTests: Pick<TrackingDomains, 'test'>;
  readonly clock: Clock;
}

/** Tests the tracking domains that are due, longest overdue first: daily, or hourly while they do not point here. */
export function retestTrackingDomainsTask({ store, trackingDomainTests, clock }: RetestTrackingDeps): Task {
  return {
    async run(ending) {
      const due = await store.trackingDomains.many(
        { nextTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'nextTestAt', limit: MAX_TESTED },
      );
      const test = async (row: TrackingDomainRow) => (await trackingDomainTests.test(row)).valid !== row.valid;
      return testDue(due, test, ending);
    },
  };
}

/** A domain and its parents, except the top-level one. */
export function withParents(domain: string): string[] {
  const labels = domain.split('.');
  return labels.slice(0, -1).map((_, at) => labels.slice(at).join('.'));
}
