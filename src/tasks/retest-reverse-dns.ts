import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { checkA, checkPtr } from '../dns/address-checks.ts';
import type { Resolver } from '../dns/types.ts';
import { fallbackDomain, type IpRow, isPending, PENDING_ERROR } from '../store/ips.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

export interface ReverseDnsDeps {
  readonly store: Pick<Store, 'ips'>;
  /** Asks anew: a cached answer would keep a change pending. */
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly log: Log;
}

const MINUTE_MS = 60_000;
/** How long until the next look: one who waits for a change, or whose DNS was mute, wants to know soon. */
const NEXT_MS = {
  pending: 5 * MINUTE_MS,
  unknown: 5 * MINUTE_MS,
  invalid: 60 * MINUTE_MS,
  valid: 1440 * MINUTE_MS,
} as const;
const MOST_AT_ONCE = 1000;
const IN_FLIGHT = 20;

type Changes = Pick<IpRow, 'customState' | 'customError' | 'domain'>;

/** Tests the custom reverse DNS of dedicated addresses: pending changes every five minutes, settled ones daily. */
export function retestReverseDnsTask(settings: { readonly hostname: string }, deps: ReverseDnsDeps): Task {
  const { store, clock, log } = deps;

  async function retest(row: IpRow): Promise<boolean> {
    const found = await look(row, deps.resolver);
    const now = new Date(clock.now());
    const changes = found === 'unknown' ? undefined : settle(row, found, now, settings.hostname);
    const next = changes ? NEXT_MS[changes.customState ?? 'invalid'] : NEXT_MS.unknown;
    // Only where nothing happened meanwhile: another change may have been asked for, or the address given back.
    const { id, account, claim, customState, customSetAt, customTestAt } = row;
    const written = await store.ips.change(
      { id, account, claim, releasedAt: null, customState, customSetAt, customTestAt },
      { ...changes, customTestAt: new Date(now.getTime() + next) },
    );
    const turned = written !== undefined && written.customState !== row.customState;
    if (turned)
      log.info('ip.reverse_dns', {
        ip: id,
        account,
        domain: row.customDomain,
        state: written.customState,
        error: written.customError,
      });
    return turned;
  }

  return {
    name: 'retest-reverse-dns',
    schedule: '*/5 * * * *',
    async run(ending) {
      const due = await store.ips.many(
        { customTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'customTestAt', limit: MOST_AT_ONCE },
      );
      let changed = 0;
      for (let at = 0; at < due.length && !ending?.aborted; at += IN_FLIGHT) {
        changed += (await Promise.all(due.slice(at, at + IN_FLIGHT).map(retest))).filter(Boolean).length;
      }
      return changed > 0 ? { tested: due.length, changed } : undefined;
    },
  };
}

type Found = { readonly forward: string | null; readonly reverse: string | null };

/** What is wrong in either direction: the name must lead to the address, and the address to the name. */
async function look({ id, customDomain }: IpRow, resolver: Resolver): Promise<Found | 'unknown'> {
  const [forward, reverse] = await Promise.all([
    checkA(resolver, customDomain ?? '', id),
    checkPtr(resolver, id, customDomain ?? ''),
  ]);
  return forward === 'unknown' || reverse === 'unknown'
    ? 'unknown'
    : { forward: forward.error, reverse: reverse.error };
}

/** What the row says after a look. */
function settle(row: IpRow, { forward, reverse }: Found, now: Date, hostname: string): Changes {
  if (forward === null && reverse === null)
    return { customState: 'valid', customError: null, domain: row.customDomain ?? row.domain };
  if (isPending(row, now)) return { customState: 'pending', customError: forward ?? PENDING_ERROR, domain: row.domain };
  // What was never valid has not taken the place of the name before.
  const domain = row.customState === 'valid' ? (row.homeDomain ?? fallbackDomain(row.id, hostname)) : row.domain;
  return { customState: 'invalid', customError: forward ?? reverse, domain };
}
