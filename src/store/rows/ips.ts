import { isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';
import { normalizeAddress } from '../../base/networks.ts';
import type { AccountStore } from '../store.ts';
import { collection, type OwnedRow } from './collection.ts';

/**
 * How a custom name in the reverse DNS stands. `pending`: asked for, and the PTR record has not named it yet;
 * `invalid`: it did not do so in time, or names it no more.
 */
type CustomState = 'pending' | 'valid' | 'invalid';

/**
 * A sending address, in the operator's inventory (account '') or dedicated to an account. `id` is the address as
 * `toIpId` writes it. Which pool it is in stands in the account's placement (`PlacementRow`), never here.
 */
export interface IpRow extends OwnedRow {
  /** The name that the reverse DNS of the address gives, as far as we know; '' in the inventory. */
  readonly domain: string;
  /** The operator's own name for the address; null: one made of the address and our hostname. */
  readonly homeDomain: string | null;
  /** When the account got it; in the inventory, when it was added or came back. */
  readonly createdAt: Date;
  /** In the inventory: not given to anybody before. */
  readonly freeAt: Date | null;
  /**
   * Chosen anew whenever it enters the inventory, and the token of the request when it is given away: who wants to take
   * it names what stood here when it was chosen, so that one who is late takes nothing.
   */
  readonly claim: string;
  /** Given back by the account, which sees it no more; a task returns it to the inventory. */
  readonly releasedAt: Date | null;
  /** Both null: not warming up. */
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
  readonly customDomain: string | null;
  readonly customState: CustomState | null;
  readonly customError: string | null;
  /** When the custom name was asked for. */
  readonly customSetAt: Date | null;
  /** When the reverse DNS is asked next; null: there is nothing to ask. */
  readonly customTestAt: Date | null;
}

export const ips = collection<IpRow>()({
  name: 'ips',
  access: 'lent',
  indexes: [['account', 'releasedAt'], ['account', 'freeAt'], ['releasedAt'], ['warmupEndAt'], ['customTestAt']],
  dates: ['createdAt', 'freeAt', 'releasedAt', 'warmupStartAt', 'warmupEndAt', 'customSetAt', 'customTestAt'],
});

/** The account of addresses that belong to the operator. */
export const INVENTORY = '';

/** What every address begins with: no warmup, no custom name, nobody's wish to give it back. */
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

/** An IP address in its one form. One with a zone is none, because it means another address on every host. */
export function toIpId(text: string): string | undefined {
  return text.includes('%') ? undefined : normalizeAddress(text.trim());
}

/**
 * How long the PTR record may take to name a custom domain before the change counts as failed and another may be asked
 * for.
 */
const PENDING_MS = 7 * 86_400_000;

/** What the record says while the PTR record does not name the custom domain yet. */
export const PENDING_ERROR = 'Pending: the reverse DNS of the IP does not name the domain yet';

/** Whether a change of the custom name is under way. */
export function isPending(
  { customState, customSetAt }: Pick<IpRow, 'customState' | 'customSetAt'>,
  now: Date,
): boolean {
  return customState === 'pending' && customSetAt !== null && now.getTime() < customSetAt.getTime() + PENDING_MS;
}

/** The name of an address that has none of its own: `192-0-2-1.mx.example.com`. */
export function fallbackDomain(id: string, hostname: string): string {
  // All digits of an IPv6 address: no label may begin or end with a dash, as `::1` would make it.
  const label = isIPv6(id)
    ? Buffer.from(ipaddr.parse(id).toByteArray())
        .toString('hex')
        .replaceAll(/(?<=.)(?=(?:.{4})+$)/g, '-')
    : id.replaceAll('.', '-');
  return `${label}.${hostname}`;
}

/** The pool that every account has, that cannot be deleted, and that an address is in when it is in no other. */
export const DEFAULT_POOL = 'Main Pool';

/**
 * A named group of dedicated addresses. `id` is `poolId`. Which addresses are in it stands in the account's placement.
 */
export interface PoolRow extends OwnedRow {
  readonly name: string;
  /** Of this pool and no later one of the same name. */
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

/** A request for a dedicated address that waits for the provisioning task. `id` is the account: there can be one. */
export interface IpRequestRow extends OwnedRow {
  /** Of this request and no later one. */
  readonly token: string;
  /** Name of a pool. */
  readonly pool: string;
  readonly warmup: boolean;
  readonly requestedAt: Date;
  /** The address that was chosen for it, and the `claim` that stood in its row; null: none yet. */
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
 * Which of an account's addresses are in which pool, all in one row, because a store of single-row writes can keep a
 * promise about several rows only where one of them holds all that the promise is about. Two promises are made:
 * - the last address does not leave the default pool by set-pool, however many calls try at once;
 * - a pool that was deleted was empty, and nothing is in it afterwards.
 *
 * Every change is a rewrite of the row as it was read (`version`). The order is what makes it safe: the row is read
 * first, then whatever else the decision rests on (addresses, pools, the request), then the row is written if nobody
 * wrote it meanwhile. Whoever changes one of those other things in a way that could spoil a decision rewrites this row
 * too: a pool is put on `closing` before its row goes, and the return of an address to the inventory rewrites it as
 * well. Who loses decides again on what the winner left; each round has a winner, so all come through.
 */
export interface PlacementRow extends OwnedRow {
  readonly version: number;
  /**
   * The addresses that are not in the default pool. One of an address that the account does not have yet is on its way
   * to it.
   */
  readonly elsewhere: readonly Place[];
  /** Pools whose rows are to go, or have gone. Whoever reads this row finishes that before anything else. */
  readonly closing: readonly { readonly id: string; readonly token: string }[];
}

/** That an address is in a pool. */
interface Place {
  readonly ip: string;
  readonly pool: string;
}

export const placements = collection<PlacementRow>()({
  name: 'placements',
  access: 'own',
  indexes: [['account']],
  dates: [],
});

/** What `rewrite` is to write: all fields that change, or nothing at all. */
type Decision = Partial<Pick<PlacementRow, 'elsewhere' | 'closing'>> | undefined;

type Part = Pick<AccountStore, 'account' | 'placements' | 'pools'>;

/** The placement as it is; an account without one has everything in its default pool. */
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

/**
 * Decides on the placement as it is, and again on the next one when somebody was faster. `decide` may throw refusals.
 */
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

/** Tells of each address of the account which pool it is in. */
export function createPoolFinder({ elsewhere }: PlacementRow): (ip: string) => string {
  const found = new Map(elsewhere.map(({ ip, pool }) => [ip, pool]));
  return (ip) => found.get(ip) ?? DEFAULT_POOL;
}

/** All places but that of one address, which is put elsewhere, or into the default pool by naming none. */
export function placesWith({ elsewhere }: PlacementRow, ip: string, pool: string = DEFAULT_POOL): readonly Place[] {
  const others = elsewhere.filter((place) => place.ip !== ip);
  return pool === DEFAULT_POOL ? others : [...others, { ip, pool }];
}
