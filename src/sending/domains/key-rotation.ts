import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { checkDkim } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { DomainKeyRow, NextKey } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import { type KeyNames, type KeyPair, keyPlace, selectorOf } from './keys.ts';

// A rotation: a second pair is made, under a second selector, and its record is published beside the first one's. The
// old pair signs until the DNS shows the new record, and the old record stays for a while after that, because mail it
// signed is still under way. Two selectors take turns, so that nobody publishes a third name.

/**
 * resting: mail that the key before the present one signed is still under way, and its selector is the one that would
 * be used.
 */
type RotationStart =
  | { readonly kind: 'begun' | 'under way'; readonly row: DomainKeyRow; readonly next: NextKey }
  | { readonly kind: 'resting'; readonly until: Date }
  | { readonly kind: 'no key' };

interface KeyRotation {
  /** Makes the next pair of a domain (A-labels), or answers the one that waits already. */
  begin(domain: string): Promise<RotationStart>;
  /** Forgets the next pair; false when there is none. */
  cancel(domain: string): Promise<boolean>;
}

/** Takes new keys into use. */
export interface KeySwitch {
  /**
   * Looks whether the DNS shows the next key of a row, and lets it sign when it does. Answers the row as it is then.
   */
  look(row: DomainKeyRow): Promise<DomainKeyRow>;
  /** Looks at all keys that wait. Answers how many took over. */
  lookAtAll(ending?: AbortSignal): Promise<number>;
}

const DAY_MS = 24 * 3_600_000;
/** A TTL of years is a mistake, or mischief (RFC 8767 section 4). */
const LONGEST_TTL_S = 7 * 24 * 3600;
/** Mail is tried for five days as a rule (RFC 5321 section 4.5.4.1), and may be verified when it was fetched. */
const KEPT_MS = 7 * DAY_MS;
const MOST_AT_ONCE = 500;

/** A label has 63 characters at most. */
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
): KeyRotation {
  const { domainKeys } = deps.store;

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
    return begun ? { kind: 'begun', row: begun, next } : begin(domain); // somebody else was quicker
  }

  return frozen({
    begin,
    async cancel(domain) {
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
): KeySwitch {
  const {
    store: { domainKeys },
    resolver,
    clock,
    log,
  } = deps;

  async function look(row: DomainKeyRow): Promise<DomainKeyRow> {
    const { id: domain, next } = row;
    if (!next) return row;
    const seen = await checkDkim(resolver, keyPlace(settings, domain, next), next.publicKey);
    if (seen === 'unknown') return row;
    if (!seen.valid) return next.usableAt === null ? row : change(row, { next: { ...next, usableAt: null } });
    const now = new Date(clock.now());
    // Until then a cache may hold what was there before: nothing, or an older key under this selector.
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

  /** As long as nobody began or ended a rotation meanwhile; answers what is there then. */
  async function change(row: DomainKeyRow, patch: Partial<Omit<DomainKeyRow, 'id'>>): Promise<DomainKeyRow> {
    const after = await domainKeys.change(
      { id: row.id, publicKey: row.publicKey, rotatingSince: row.rotatingSince ?? null },
      patch,
    );
    return after ?? (await domainKeys.one({ id: row.id })) ?? row;
  }

  return frozen({
    look,
    async lookAtAll(ending) {
      const waiting = await domainKeys.many(
        { rotatingSince: { exists: true } },
        { sort: 'rotatingSince', limit: MOST_AT_ONCE },
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
