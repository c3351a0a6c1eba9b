import type { Clock } from '../base/clock.ts';
import { checkLeadsTo } from '../dns/checks-hosts.ts';
import type { Resolver } from '../dns/types.ts';
import type { Store } from '../store/store.ts';
import { type TrackingDomainRow, trackingDomainId } from '../store/tracking-domains.ts';
import { withParents } from './custom-domains.ts';
import { afterTest } from './domain-tests.ts';

export interface TrackingDomainSettings {
  /** Where links begin: a tracking domain must lead to its host. */
  readonly publicUrl: string;
}

export interface TrackingDomainDeps {
  readonly store: Pick<Store, 'trackingDomains' | 'senderDomains'>;
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/**
 * The list of tracking domains that accounts keep, with what the DNS said at the last test. Whether a message may use one is
 * decided when it is composed (custom-domains.ts), by the same two proofs and not by this list.
 */
export interface TrackingDomains {
  /** The row of a domain, tested now; added when it is not there. Domains are A-labels. */
  add(account: string, domain: string): Promise<TrackingDomainRow>;
  /** Tests a row and answers it as it is afterwards. */
  test(row: TrackingDomainRow): Promise<TrackingDomainRow>;
  /** Those of the account's rows that it has proved to own: the domain, or one above it, is a verified sender domain. */
  owned(account: string, rows: readonly TrackingDomainRow[]): Promise<ReadonlySet<string>>;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const TRIES = 5;

export function createTrackingDomains(settings: TrackingDomainSettings, deps: TrackingDomainDeps): TrackingDomains {
  const { store, resolver, clock } = deps;
  const host = new URL(settings.publicUrl).hostname.replace(/^\[|\]$/g, '');

  async function test(row: TrackingDomainRow): Promise<TrackingDomainRow> {
    const check = await checkLeadsTo(resolver, row.domain, host);
    let before: TrackingDomainRow | undefined = row;
    for (let tries = 0; before && tries < TRIES; tries++) {
      const now = new Date(clock.now());
      const { valid, validAfter, error } = afterTest(before, check, now);
      const patch = {
        valid,
        validAfter,
        error,
        ...(check !== 'unknown' && { lastTestedAt: now }),
        nextTestAt: new Date(now.getTime() + (valid === true ? DAY_MS : HOUR_MS)),
        version: before.version + 1,
      };
      const after = await store.trackingDomains.change({ id: row.id, version: before.version }, patch);
      if (after) return after;
      before = await store.trackingDomains.one({ id: row.id }); // somebody else tested it meanwhile
    }
    return before ?? row;
  }

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

  return Object.freeze({
    add,
    test,
    async owned(account: string, rows: readonly TrackingDomainRow[]) {
      const names = [...new Set(rows.flatMap(({ domain }) => withParents(domain)))];
      const found = names.length === 0 ? [] : await store.senderDomains.many({ account, domain: { in: names } });
      const verified = new Set(found.filter(({ verifiedAt }) => verifiedAt !== null).map(({ domain }) => domain));
      return new Set(
        rows.filter(({ domain }) => withParents(domain).some((name) => verified.has(name))).map(({ domain }) => domain),
      );
    },
  });
}
