import type { Ids } from '../base/ids.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Outgoing } from '../mail/sending.ts';
import { StoreAway } from '../store/collection.ts';
import type { Store } from '../store/store.ts';
import { type SubaccountRow, subaccountId } from '../store/subaccounts.ts';
import { createMeter, type Meter } from './meter.ts';
import { createRecent } from './recent.ts';
import { createSpread, type Spread } from './spread.ts';
import type { Holding, Leave, Leaving } from './types.ts';

export interface LeaveSettings {
  /** Whether accounts, and subaccounts without a quota of their own, are held to the quota that their reputation earns. */
  readonly quota: boolean;
}

export interface LeaveDeps {
  readonly store: Pick<Store, 'subaccounts' | 'counters'>;
  readonly ids: Pick<Ids, 'jitter'>;
  /** How long mail has waited; without it, by the clock. */
  readonly time?: Pick<RunningTime, 'age' | 'sure'> | undefined;
}

/** How long what the store said of a subaccount is believed. Milliseconds. */
const FRESH_MS = 5_000;
/** How long mail waits for a subaccount to be resumed (documented). */
const LONGEST_PAUSE_MS = 3 * 86_400_000;
/** A quota may grow meanwhile, so nobody waits longer before asking again. */
const LONGEST_WAIT_MS = 600_000;
/** While the store is away nobody knows who may send; it is asked again after this time. */
const AWAY_MS = 30_000;

type Verdict = Exclude<Leave, { readonly kind: 'now' }>;

/** One thing that may hold mail back. */
interface Holder {
  readonly meter: Meter;
  readonly spread: Spread;
}

/** Says whether mail may leave now: its subaccount is there and not paused, and neither it nor the account is over its hourly quota. */
export function createLeaving(settings: LeaveSettings, deps: LeaveDeps): Leaving & Holding {
  const { store, ids } = deps;
  const rows = createRecent((id) => store.subaccounts.one({ id }), FRESH_MS);
  const holders = createHolders(settings, deps);

  async function decide(account: string, { subaccount }: Outgoing, queuedAt: number, now: number): Promise<Leave> {
    const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
    if (row === undefined) return { kind: 'never', reason: 'its subaccount was deleted' };
    if (row?.status === 'paused')
      return paused(row, queuedAt, now, holders.of(account, row).spread.next(now, ids.jitter()), deps.time);
    const all = [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])];
    for (const { meter } of all) await meter.read(now);
    // From here on nothing is waited for, so that two that ask at once cannot both have the last place.
    for (const { meter, spread } of all) {
      const at = meter.freeAt(now);
      if (at > now) return { kind: 'later', at: Math.min(at, now + LONGEST_WAIT_MS) + spread.next(now, ids.jitter()) };
    }
    for (const { meter } of all) meter.take(now);
    return { kind: 'now' };
  }

  return Object.freeze({
    changed: (account: string, subaccount: string) => rows.forget(subaccountId(account, subaccount)),
    async heldBecause(account: string, { subaccount }: Outgoing, now: number) {
      const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
      if (row?.status === 'paused') return 'sending-paused';
      for (const { meter } of [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])]) {
        await meter.read(now);
        if (meter.freeAt(now) > now) return 'hourly-quota';
      }
      return undefined;
    },
    async mayLeave(account: string, outgoing: Outgoing, queuedAt: number, now: number) {
      try {
        return await decide(account, outgoing, queuedAt, now);
      } catch (error) {
        if (error instanceof StoreAway) return { kind: 'later', at: now + AWAY_MS } as const;
        throw error;
      }
    },
  });
}

/** What was queued before the pause, or is due since, waits from then on. */
function paused(
  { pausedAt }: SubaccountRow,
  queuedAt: number,
  now: number,
  wait: number,
  time: LeaveDeps['time'],
): Verdict {
  const from = Math.max(queuedAt, pausedAt?.getTime() ?? 0);
  const left = LONGEST_PAUSE_MS - (time ? time.age(from) : Math.max(0, now - from));
  if (left <= 0 && time?.sure() !== false) return { kind: 'never', reason: 'its subaccount was paused for 3 days' };
  return { kind: 'later', at: now + (left > 0 ? Math.min(wait, left) : wait) };
}

/** Accounts and subaccounts that are kept in mind. One that is forgotten is read again. */
const MAX_HOLDERS = 10_000;

function createHolders(
  { quota }: LeaveSettings,
  { store }: LeaveDeps,
): { of(account: string, row: SubaccountRow | null): Holder } {
  const known = new Map<string, Holder>();
  return {
    of(account, row) {
      const key = row ? row.id : account;
      const earned = quota ? ('earned' as const) : null;
      const limit = row?.customQuota ?? earned;
      const found = known.get(key);
      if (found) {
        found.meter.limit(limit);
        return found;
      }
      const first = known.size < MAX_HOLDERS ? undefined : known.keys().next().value;
      if (first !== undefined) known.delete(first);
      const made = {
        meter: createMeter(
          { account, kind: row ? 'subaccount' : 'account', key: row ? row.slug : account, limit },
          { store },
        ),
        spread: createSpread(),
      };
      known.set(key, made);
      return made;
    },
  };
}
