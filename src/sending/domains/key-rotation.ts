import { type Clock, DAY_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { checkDkim } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { DomainKeyRow, NextKey } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import { LONGEST_TTL_S } from './domain-tests.ts';
import { type KeyNames, type KeyPair, keyRecordNames, selectorOf } from './keys.ts';

// Key rotation: a second key pair is created under a second selector, and its record is published beside the first one.
// The old key signs until DNS shows the new record, and the old record stays for a while after that, because mail it
// signed is still in transit. Two selectors alternate, so that no third name has to be published.

/** resting: mail signed with the previous key is still in transit, and the new key would need its selector. */
type RotationStart =
  | { readonly kind: 'begun' | 'under way'; readonly row: DomainKeyRow; readonly next: NextKey }
  | { readonly kind: 'resting'; readonly until: Date }
  | { readonly kind: 'no key' };

/** Switches to new keys. */
export type KeySwitch = ReturnType<typeof createKeySwitch>;

/** Mail is usually retried for five days (RFC 5321 section 4.5.4.1), and may be verified only when it is fetched. */
const KEPT_MS = 7 * DAY_MS;
const MAX_AT_ONCE = 500;

/** Selectors are labels: at most 63 characters. */
function otherSelector(present: string, base: string): string {
  const second = `${base.slice(0, 62)}${base.endsWith('2') ? '3' : '2'}`;
  return present === second ? base : second;
}

interface RotationDeps {
  readonly store: Pick<Store, 'domainKeys'>;
  readonly clock: Clock;
}

export function createKeyRotation(
  settings: KeyNames,
  deps: RotationDeps & { readonly newKeyPair: () => Promise<KeyPair> },
) {
  const { domainKeys } = deps.store;

  /** Creates the next key pair of a domain (A-labels), or returns the pending one. */
  async function begin(domain: string): Promise<RotationStart> {
    const row = await domainKeys.one({ id: domain });
    if (!row) return { kind: 'no key' };
    if (row.next) return { kind: 'under way', row, next: row.next };
    const now = new Date(deps.clock.now());
    const selector = otherSelector(selectorOf(row, settings), settings.dkimSelector);
    if (row.previous?.selector === selector && row.previous.keepUntil > now)
      return { kind: 'resting', until: row.previous.keepUntil };
    const next = { selector, ...(await deps.newKeyPair()), usableAt: null };
    const begun = await domainKeys.change(
      { id: domain, publicKey: row.publicKey, rotatingSince: null },
      { next, rotatingSince: now },
    );
    return begun ? { kind: 'begun', row: begun, next } : begin(domain); // another process was first
  }

  return frozen({
    begin,
    /** Discards the next key pair; false if there is none. */
    async cancel(domain: string): Promise<boolean> {
      return (
        (await domainKeys.change(
          { id: domain, rotatingSince: { exists: true } },
          { next: null, rotatingSince: null },
        )) !== undefined
      );
    },
  });
}

export function createKeySwitch(
  settings: KeyNames,
  deps: RotationDeps & { readonly resolver: Resolver; readonly log: Log },
) {
  const {
    store: { domainKeys },
    resolver,
    clock,
    log,
  } = deps;

  /** Switches to the next key once DNS shows it. Returns the updated row. */
  async function look(row: DomainKeyRow): Promise<DomainKeyRow> {
    const { id: domain, next } = row;
    if (!next) return row;
    const seen = await checkDkim(resolver, keyRecordNames(settings, domain, next), next.publicKey);
    if (seen === 'unknown') return row;
    if (!seen.valid) return next.usableAt === null ? row : change(row, { next: { ...next, usableAt: null } });
    const now = new Date(clock.now());
    // Until then caches may hold the previous state: no record, or an older key under this selector.
    const usableAt = next.usableAt ?? new Date(now.getTime() + Math.min(seen.ttl, LONGEST_TTL_S) * 1000);
    return usableAt <= now ? takeOver(row, next, now) : change(row, { next: { ...next, usableAt } });
  }

  async function takeOver(
    row: DomainKeyRow,
    { selector, publicKey, privateKey }: NextKey,
    now: Date,
  ): Promise<DomainKeyRow> {
    const previous = {
      selector: selectorOf(row, settings),
      publicKey: row.publicKey,
      keepUntil: new Date(now.getTime() + KEPT_MS),
    };
    const after = await change(row, {
      selector,
      publicKey,
      privateKey,
      createdAt: now,
      next: null,
      rotatingSince: null,
      previous,
    });
    if (after.publicKey === publicKey)
      log.info('dkim.rotated', {
        domain: row.id,
        selector,
        before: previous.selector,
        keep_until: previous.keepUntil.toISOString(),
      });
    return after;
  }

  /** Applies a patch unless a rotation began or ended meanwhile; returns the current row. */
  async function change(row: DomainKeyRow, patch: Partial<Omit<DomainKeyRow, 'id'>>): Promise<DomainKeyRow> {
    const after = await domainKeys.change(
      { id: row.id, publicKey: row.publicKey, rotatingSince: row.rotatingSince ?? null },
      patch,
    );
    return after ?? (await domainKeys.one({ id: row.id })) ?? row;
  }

  return frozen({
    look,
    /** Checks all pending keys. Returns how many were switched. */
    async lookAtAll(ending?: AbortSignal): Promise<number> {
      const waiting = await domainKeys.many(
        { rotatingSince: { exists: true } },
        { sort: 'rotatingSince', limit: MAX_AT_ONCE },
      );
      let switched = 0;
      for (const row of waiting) {
        if (ending?.aborted) break;
        if ((await look(row)).publicKey !== row.publicKey) switched++;
      }
      return switched;
    },
  });
}
