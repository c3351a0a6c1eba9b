import { isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import { DAY_MS } from '../../base/clock.ts';
import { normalizeAddress } from '../../base/networks.ts';
import type { AccountStore } from '../store.ts';
import { collection, type OwnedRow } from './collection.ts';

/**
 * The state of a custom reverse DNS name. `pending`: requested, but the PTR record does not have it yet; `invalid`: the
 * PTR record did not get it in time, or lost it.
 */
type CustomState = 'pending' | 'valid' | 'invalid';

/**
 * A sending address, in the operator's inventory (account '') or dedicated to an account. `id` is the address as
 * `toIpId` writes it. Its pool is in the account's placement (`PlacementRow`), never here.
 */
export interface IpRow extends OwnedRow {
  /** The reverse DNS name of the address, as far as we know; '' in the inventory. */
  readonly domain: string;
  /** The operator's own name for the address; null: one derived from the address and our hostname. */
  readonly homeDomain: string | null;
  /** When the account got it; in the inventory, when it was added or returned. */
  readonly createdAt: Date;
  /** In the inventory: not assigned before this time. */
  readonly freeAt: Date | null;
  /**
   * A new value whenever it enters the inventory, and the token of the request once it is assigned: taking it requires
   * the value that was read when it was chosen, so that a late request takes nothing.
   */
  readonly claim: string;
  /** Released by the account, which no longer sees it; a task returns it to the inventory. */
  readonly releasedAt: Date | null;
  /** Both null: not warming up. */
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
  readonly customDomain: string | null;
  readonly customState: CustomState | null;
  readonly customError: string | null;
  /** When the custom name was requested. */
  readonly customSetAt: Date | null;
  /** When the reverse DNS is checked next; null: nothing to check. */
  readonly customTestAt: Date | null;
}

export const ips = collection<IpRow>()({
  name: 'ips',
  access: 'lent',
  indexes: [['account', 'releasedAt'], ['account', 'freeAt'], ['releasedAt'], ['warmupEndAt'], ['customTestAt']],
  dates: ['createdAt', 'freeAt', 'releasedAt', 'warmupStartAt', 'warmupEndAt', 'customSetAt', 'customTestAt'],
});

/** The account of the operator's addresses. */
export const INVENTORY = '';

/** The initial state of an address: no warmup, no custom name, not released. */
export const PLAIN_IP = {
  releasedAt: null,
  warmupStartAt: null,
  warmupEndAt: null,
  customDomain: null,
  customState: null,
  customError: null,
  customSetAt: null,
  customTestAt: null,
} as const satisfies Partial<IpRow>;

/** Normalizes an IP address. Zoned addresses are refused, because they mean a different address on every host. */
export function toIpId(text: string): string | undefined {
  return text.includes('%') ? undefined : normalizeAddress(text.trim());
}

/** How long the PTR record may take to get a custom domain before the change fails and another may be requested. */
const PENDING_MS = 7 * DAY_MS;

/** The error of the record until the PTR record has the custom domain. */
export const PENDING_ERROR = 'Pending: the reverse DNS of the IP does not name the domain yet';

/** Whether a change of the custom name is pending. */
export function isPending(
  { customState, customSetAt }: Pick<IpRow, 'customState' | 'customSetAt'>,
  now: Date,
): boolean {
  return customState === 'pending' && customSetAt !== null && now.getTime() < customSetAt.getTime() + PENDING_MS;
}

/** The name of an address without one of its own: `192-0-2-1.mx.example.com`. */
export function fallbackDomain(id: string, hostname: string): string {
  // All digits of an IPv6 address: no label may begin or end with a dash, as `::1` would.
  const label = isIPv6(id)
    ? Buffer.from(ipaddr.parse(id).toByteArray())
        .toString('hex')
        .replaceAll(/(?<=.)(?=(?:.{4})+$)/g, '-')
    : id.replaceAll('.', '-');
  return `${label}.${hostname}`;
}

/** The pool that every account has and cannot delete; it contains the addresses that are in no other. */
export const DEFAULT_POOL = 'Main Pool';

/** A named group of dedicated addresses. `id` is `poolId`. Its addresses are in the account's placement. */
export interface PoolRow extends OwnedRow {
  readonly name: string;
  /** Distinguishes this pool from a later one with the same name. */
  readonly token: string;
  readonly createdAt: Date;
}

export const pools = collection<PoolRow>()({
  name: 'pools',
  access: 'own',
  limited: true,
  indexes: [['account', 'name']],
  dates: ['createdAt'],
});

/** The id of a pool's row. */
export function poolId(account: string, name: string): string {
  return `${account} ${name}`;
}

/** A request for a dedicated address, waiting for the provisioning task. `id` is the account: there can be one. */
export interface IpRequestRow extends OwnedRow {
  /** Distinguishes this request from later ones. */
  readonly token: string;
  /** Name of a pool. */
  readonly pool: string;
  readonly warmup: boolean;
  readonly requestedAt: Date;
  /** The chosen address, and the `claim` in its row at that time; null: none yet. */
  readonly ip: string | null;
  readonly claim: string | null;
}

export const ipRequests = collection<IpRequestRow>()({
  name: 'ip_requests',
  access: 'own',
  indexes: [['ip', 'requestedAt']],
  dates: ['requestedAt'],
});

/**
 * The pools of an account's addresses, all in one row, because with single-row writes an invariant over several rows
 * can only be kept if one row has all that it is about. There are two invariants:
 * - set-pool never moves the last address out of the default pool, however many calls run concurrently;
 * - a deleted pool was empty, and nothing is in it afterwards.
 *
 * Every change rewrites the row as it was read (`version`). The order makes it safe: the row is read first, then
 * everything else that the decision depends on (addresses, pools, the request), then the row is written if nobody wrote
 * it meanwhile. Changes to those other things that could invalidate a decision also rewrite this row: a pool is put on
 * `closing` before its row is removed, and the return of an address to the inventory rewrites it as well. A loser
 * decides again on the winner's result; each round has a winner, so all succeed.
 */
export interface PlacementRow extends OwnedRow {
  readonly version: number;
  /** The addresses outside the default pool. One that the account does not have yet is being assigned to it. */
  readonly elsewhere: readonly PooledIp[];
  /** Pools whose rows are being removed. Every reader of this row completes that first. */
  readonly closing: readonly { readonly id: string; readonly token: string }[];
}

/** An address and its pool. */
interface PooledIp {
  readonly ip: string;
  readonly pool: string;
}

export const placements = collection<PlacementRow>()({
  name: 'placements',
  access: 'own',
  indexes: [['account']],
  dates: [],
});

/** The changed fields for `rewrite`; undefined: no change. */
type Decision = Partial<Pick<PlacementRow, 'elsewhere' | 'closing'>> | undefined;

type Part = Pick<AccountStore, 'account' | 'placements' | 'pools'>;

/** The current placement; without a row everything is in the default pool. */
export async function readPlacement(store: Part): Promise<PlacementRow> {
  for (;;) {
    const row = (await store.placements.one({ id: store.account })) ?? {
      id: store.account,
      account: store.account,
      version: 0,
      elsewhere: [],
      closing: [],
    };
    if (row.closing.length === 0) return row;
    for (const { id, token } of row.closing) await store.pools.remove({ id, token });
    await write(store, row, { closing: [] });
  }
}

/** Decides on the current placement, and again if another writer was first. `decide` may throw refusals. */
export async function rewrite(store: Part, decide: (placement: PlacementRow) => Promise<Decision>): Promise<void> {
  for (;;) {
    const placement = await readPlacement(store);
    const decision = await decide(placement);
    if (!decision || (await write(store, placement, decision))) return;
  }
}

async function write(
  store: Part,
  { version, elsewhere, closing }: PlacementRow,
  decision: NonNullable<Decision>,
): Promise<boolean> {
  const next = {
    version: version + 1,
    elsewhere: decision.elsewhere ?? elsewhere,
    closing: decision.closing ?? closing,
  };
  if (version === 0) return (await store.placements.insert({ id: store.account, ...next })) === 'inserted';
  return (await store.placements.change({ id: store.account, version }, next)) !== undefined;
}

/** Returns a function that finds the pool of an address. */
export function createPoolFinder({ elsewhere }: PlacementRow): (ip: string) => string {
  const found = new Map(elsewhere.map(({ ip, pool }) => [ip, pool]));
  return (ip) => found.get(ip) ?? DEFAULT_POOL;
}

/** The addresses outside the default pool, with this one moved to `pool`, by default to the default pool. */
export function moveIp({ elsewhere }: PlacementRow, ip: string, pool: string = DEFAULT_POOL): readonly PooledIp[] {
  const others = elsewhere.filter((one) => one.ip !== ip);
  return pool === DEFAULT_POOL ? others : [...others, { ip, pool }];
}
