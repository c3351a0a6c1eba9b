import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { MAX_TESTED, type Task, testDue } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import { checkMx } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import type { Reserved, ReservedNames } from '../mail/addresses/reserved-names.ts';
import { baseOf, isWildcard, memberOf, wildcardsAbove } from '../mail/addresses/wildcard-domain.ts';
import { StoreAway } from '../store/driver/port.ts';
import { pagesById } from '../store/pages.ts';
import { claimId, type InboundDomainRow, isClaim, nameOf } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import type { Routing } from './types.ts';

export interface OwnershipSettings {
  /**
   * How an account gets a domain: `first`, by adding it first; `txt`, by a TXT record. `auto` is `first` while there is
   * one account, and `txt` for domains added once there are two.
   */
  readonly ownership: 'auto' | 'first' | 'txt';
}

interface OwnershipDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'inboundDomains' | 'accounts'>;
  readonly routing: Pick<Routing, 'change'>;
  readonly resolver: Resolver;
  readonly names: ReservedNames;
}

/** A TXT record that proves a domain. */
interface OwnershipRecord {
  readonly name: string;
  readonly value: string;
}

/** The result of adding a domain: the account's row, new or existing, or why it was refused. */
type AddOutcome =
  | { readonly row: InboundDomainRow; readonly isNew: boolean }
  | { readonly refused: Reserved | 'taken' };

/** Which account an inbound domain belongs to. Names are lower-case A-labels. */
export type Ownership = ReturnType<typeof createOwnership>;

/**
 * The TXT record that proves a domain. Its name is below the domain, so that it does not collide with other records and
 * can be delegated (draft-ietf-dnsop-domain-verification-techniques). The value is specific to one account and one
 * domain and need not be secret.
 */
export function ownershipRecordOf({ account, id }: Pick<InboundDomainRow, 'account' | 'id'>): OwnershipRecord {
  const name = nameOf({ id });
  const token = createHash('sha256').update(`${account} ${name}`).digest('hex').slice(0, 32);
  return { name: `_postern-challenge.${baseOf(name)}`, value: `postern-domain=${token}` };
}

/**
 * Decides which account has an inbound domain. An account that proves a domain takes it from one whose own record is
 * not published at that moment, even if that record was never seen: only the owner of the DNS zone can do this, and a
 * domain that is sold goes to its new owner. The account that loses it keeps a claim with its routes, which take effect
 * again once its record is back.
 */
export function createOwnership(settings: OwnershipSettings, deps: OwnershipDeps) {
  const { store, routing, resolver, names, clock, log } = deps;
  const { inboundDomains } = store;
  const now = () => new Date(clock.now());

  /**
   * A name below the wildcard of another account must be proven, whatever the setting, because it would divert mail. So
   * must a wildcard below the domain of another account.
   */
  async function needsProof(account: string, name: string): Promise<boolean> {
    const covering = [...wildcardsAbove(name), ...(isWildcard(name) ? [baseOf(name)] : [])];
    const above = await Promise.all(covering.map((id) => inboundDomains.one({ id })));
    if (above.some((row) => row && row.account !== account)) return true;
    if (settings.ownership !== 'auto') return settings.ownership === 'txt';
    return (await store.accounts.many({}, { limit: 2 })).length > 1;
  }

  /** The account's row of a domain, whether it is a claim or not. */
  async function find(account: string, name: string): Promise<InboundDomainRow | undefined> {
    return (
      (await inboundDomains.one({ id: name, account })) ?? inboundDomains.one({ id: claimId(name, account), account })
    );
  }

  /**
   * Adds a domain to an account, or a claim to it if a proof is required. `domain` is the name as the user wrote it.
   */
  async function add(account: string, name: string, domain: string): Promise<AddOutcome> {
    const mine = await find(account, name);
    if (mine) return { row: mine, isNew: false };
    const reserved = names.whyReserved(name);
    if (reserved !== undefined) return { refused: reserved };
    const id = (await needsProof(account, name)) ? claimId(name, account) : name;
    const row = { id, account, domain, createdAt: now(), validMx: false, testedAt: null, verifiedAt: null };
    const insert = () => inboundDomains.insert(row);
    if ((await (isClaim(row) ? insert() : routing.change(name, insert))) === 'inserted') return { row, isNew: true };
    const present = await find(account, name); // a concurrent call may have added it
    return present ? { row: present, isNew: false } : { refused: 'taken' };
  }

  /** Looks up the proof of a row, applies the result and returns the new row; undefined if it was deleted meanwhile. */
  async function settle(row: InboundDomainRow): Promise<InboundDomainRow | undefined> {
    const name = nameOf(row);
    const answer = await resolver.resolve(ownershipRecordOf(row).name, 'TXT');
    const texts = answer.kind === 'records' ? answer.records : [];
    const proven = texts.includes(ownershipRecordOf(row).value);
    if (!isClaim(row)) return proven && !row.verifiedAt ? verified(row) : find(row.account, name);
    // A name that new settings have reserved must not come into force.
    const mayHave = names.whyReserved(name) === undefined && (proven || !(await needsProof(row.account, name)));
    return mayHave ? promoteClaim(row, proven, texts) : find(row.account, name);
  }

  function verified({ id, account }: InboundDomainRow): Promise<InboundDomainRow | undefined> {
    return inboundDomains.change({ id, account }, { verifiedAt: now() });
  }

  /** Turns a claim into the domain's row. Repeats only after losing a race with another change. */
  async function promoteClaim(
    claim: InboundDomainRow,
    proven: boolean,
    texts: readonly string[],
  ): Promise<InboundDomainRow | undefined> {
    const name = nameOf(claim);
    const { account, domain, createdAt, validMx, mxError = null, testedAt, mxSince = null } = claim;
    const { replyKey = null, previousReplyKey = null } = claim;
    const checked = { validMx, mxError, testedAt, mxSince, verifiedAt: proven ? now() : null };
    const own = { account, domain, createdAt, ...checked, replyKey, previousReplyKey };
    await routing.change(name, async () => {
      while (await inboundDomains.one({ id: claim.id })) {
        const row = { id: name, ...own };
        const isFree = (await inboundDomains.insert(row)) === 'inserted';
        const owner = isFree ? undefined : await inboundDomains.one({ id: name });
        if (!isFree && !owner) continue; // deleted meanwhile
        if (owner && owner.account !== account) {
          if (!proven || texts.includes(ownershipRecordOf(owner).value)) return;
          if (!(await inboundDomains.change({ id: name, account: owner.account }, own))) continue;
          // After a crash here, the previous owner has no claim until they add the domain again; their routes are kept.
          await inboundDomains.insert({ ...owner, id: claimId(name, owner.account), verifiedAt: null });
          log.warn('domain.taken', { domain: name, account, from: owner.account });
        }
        await inboundDomains.remove({ id: claim.id });
        return;
      }
    });
    return find(account, name);
  }

  /** Removes the account's row and claim of a domain, and returns what was removed. */
  async function remove(account: string, name: string): Promise<InboundDomainRow | undefined> {
    const claim = await inboundDomains.remove({ id: claimId(name, account), account });
    return (await inboundDomains.remove({ id: name, account })) ?? claim;
  }

  /** Logs domains that were added before their names were reserved. They stay, because mail to them may be wanted. */
  async function warn(): Promise<void> {
    try {
      for await (const page of pagesById(inboundDomains))
        for (const row of page) {
          const reserved = isClaim(row) ? undefined : names.whyReserved(row.id);
          if (reserved !== undefined) log.warn('domain.reserved', { domain: row.id, account: row.account, reserved });
        }
    } catch (error) {
      if (!(error instanceof StoreAway)) throw error; // the store logs its own outages
    }
  }

  return frozen({ add, find, settle, remove, warn });
}

export interface RetestInboundSettings {
  /** The MX host names that point to this service. */
  readonly mxHosts: readonly string[];
}

interface RetestInboundDeps {
  readonly store: Pick<Store, 'inboundDomains'>;
  readonly resolver: Resolver;
  readonly ownership: Pick<Ownership, 'settle'>;
  readonly clock: Clock;
}

/** The changes to the row of a domain after a check of its MX records. */
export function toMxResult(
  { validMx, mxError = null, testedAt, mxSince = null }: InboundDomainRow,
  { valid, error }: { readonly valid: boolean; readonly error: string | null },
  now: Date,
) {
  const isSame = testedAt !== null && validMx === valid && mxError === error;
  return { validMx: valid, mxError: error, testedAt: now, mxSince: isSame ? (mxSince ?? testedAt) : now };
}

/** How long after a check the next one is due. */
export const RETEST_MS = 3_600_000;

/**
 * Task: checks the MX records of inbound domains that were not checked for an hour, oldest check first, and the proofs
 * of claims.
 */
export function retestInboundDomainsTask(
  { mxHosts }: RetestInboundSettings,
  { store, resolver, ownership, clock }: RetestInboundDeps,
): Task {
  /** Returns true if the domain became valid or invalid, or was proven. */
  async function retest(row: InboundDomainRow): Promise<boolean> {
    const found = await checkMx(resolver, memberOf(nameOf(row)), mxHosts);
    // `testedAt` is updated even if the DNS failed, so that unresolvable domains do not delay the others.
    const now = new Date(clock.now());
    // Written only if there was no check meanwhile: a later check has newer records.
    const written = await store.inboundDomains.change(
      { id: row.id, account: row.account, testedAt: row.testedAt },
      found === 'unknown' ? { testedAt: now } : toMxResult(row, found, now),
    );
    const settled = written && isClaim(written) ? await ownership.settle(written) : written;
    return settled !== undefined && (settled.validMx !== row.validMx || settled.id !== row.id);
  }

  return {
    async run(ending) {
      const before = new Date(clock.now() - RETEST_MS);
      const fresh = await store.inboundDomains.many({ testedAt: null }, { limit: MAX_TESTED });
      const old = await store.inboundDomains.many(
        { testedAt: { range: { lte: before } } },
        { sort: 'testedAt', limit: MAX_TESTED },
      );
      return testDue([...fresh, ...old], retest, ending);
    },
  };
}
