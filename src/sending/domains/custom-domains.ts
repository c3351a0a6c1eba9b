import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createRecent } from '../../base/memory.ts';
import type { Task } from '../../base/service.ts';
import { checkLeadsTo, leadsTo, mailComesTo } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { Extras } from '../../mail/outgoing.ts';
import { type TrackingDomainRow, trackingDomainId } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import type { ComposeSettings } from '../types.ts';
import { afterTest } from './domain-tests.ts';

interface TrackingDomainSettings {
  /** Where links begin: a tracking domain must lead to its host. */
  readonly publicUrl: string;
}

interface TrackingDomainDeps {
  readonly store: Pick<Store, 'trackingDomains' | 'senderDomains'>;
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/**
 * The list of tracking domains that accounts keep, with what the DNS said at the last test. Whether a message may use
 * one is decided when it is composed (custom-domains.ts), by the same two proofs and not by this list.
 */
export interface TrackingDomains {
  /** The row of a domain, tested now; added when it is not there. Domains are A-labels. */
  add(account: string, domain: string): Promise<TrackingDomainRow>;
  /** Tests a row and answers it as it is afterwards. */
  test(row: TrackingDomainRow): Promise<TrackingDomainRow>;
  /**
   * Those of the account's rows that it has proved to own: the domain, or one above it, is a verified sender domain.
   */
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

  return frozen({
    add,
    test,
    async owned(account, rows) {
      const names = [...new Set(rows.flatMap(({ domain }) => withParents(domain)))];
      const found = names.length === 0 ? [] : await store.senderDomains.many({ account, domain: { in: names } });
      const verified = new Set(found.filter(({ verifiedAt }) => verifiedAt !== null).map(({ domain }) => domain));
      return new Set(
        rows.filter(({ domain }) => withParents(domain).some((name) => verified.has(name))).map(({ domain }) => domain),
      );
    },
  });
}

interface CustomDomainSettings {
  /** Where links begin when a message says nothing, without a final slash. */
  readonly publicUrl: string;
  /** Where mail comes back to when a message says nothing. */
  readonly returnDomain: string;
  /** The names that an MX of ours may have. */
  readonly mxHosts: readonly string[];
}

interface CustomDomainDeps {
  readonly store: Pick<Store, 'senderDomains'>;
  /** Its answers are kept for their TTL. */
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/** Where links of messages begin, and where mail about them comes back to. */
export interface CustomDomains {
  /** Throws `StoreAway` when it cannot be known what belongs to the account. */
  of(
    account: string,
    extras: Extras | undefined,
  ): Promise<Pick<ComposeSettings, 'publicUrl' | 'ownUrl' | 'returnDomain' | 'ownReturns'>>;
}

/** How long an answer is believed: who has just set up a domain need not wait for long. Milliseconds. */
const FRESH_MS = 10_000;

/**
 * A message may name hosts of its account instead of ours. One is used when its DNS leads to us, and it is a domain
 * that the account verified or one below: a name that only points here could be another account's. Else it is as if the
 * message had named none.
 */
export function createCustomDomains(
  settings: CustomDomainSettings,
  { store, resolver, clock }: CustomDomainDeps,
): CustomDomains {
  const { publicUrl, returnDomain, mxHosts } = settings;
  const url = new URL(publicUrl);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // Keys are an account and a domain, apart by a space: neither holds one.
  const tracking = createRecent((key) => usable(key, (domain) => leadsTo(resolver, domain, host)), FRESH_MS);
  // A name that is an alias of the return domain gets its mail wherever that does.
  const returning = createRecent(
    (key) => usable(key, (domain) => mailComesTo(resolver, domain, [...mxHosts, returnDomain])),
    FRESH_MS,
  );

  async function usable(key: string, isOurs: (domain: string) => Promise<boolean>): Promise<boolean> {
    const [account = '', domain = ''] = key.split(' ');
    const rows = await store.senderDomains.many({ account, domain: { in: withParents(domain) } });
    return rows.some(({ verifiedAt }) => verifiedAt !== null) && isOurs(domain);
  }

  return frozen({
    async of(account, extras) {
      const { trackingDomain, returnPathDomain } = extras ?? {};
      const ask = (known: typeof tracking, domain: string | undefined) =>
        domain === undefined ? false : known.get(`${account} ${domain}`, clock.monotonic());
      const [tracks, returns] = await Promise.all([ask(tracking, trackingDomain), ask(returning, returnPathDomain)]);
      return {
        ...(tracks && trackingDomain !== undefined
          ? { publicUrl: atHost(url, trackingDomain), ownUrl: publicUrl }
          : { publicUrl }),
        ...(returns && returnPathDomain !== undefined
          ? { returnDomain: returnPathDomain, ownReturns: true }
          : { returnDomain }),
      };
    },
  });
}

/** A domain and those above it, but for the top one. */
function withParents(domain: string): string[] {
  const labels = domain.split('.');
  return labels.slice(0, -1).map((_, at) => labels.slice(at).join('.'));
}

/** The same place under another host. */
function atHost({ protocol, port, pathname }: URL, host: string): string {
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}${pathname.replace(/\/+$/, '')}`;
}

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
