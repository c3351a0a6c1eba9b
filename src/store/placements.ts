import type { CollectionSpec, Row } from './collection.ts';
import { DEFAULT_POOL } from './pools.ts';
import type { AccountStore } from './store.ts';

/**
 * Which of an account's addresses are in which pool, all in one row, because a store of single-row writes can keep a promise
 * about several rows only where one of them holds all that the promise is about. Two promises are made:
 * - the last address does not leave the default pool by set-pool, however many calls try at once;
 * - a pool that was deleted was empty, and nothing is in it afterwards.
 *
 * Every change is a rewrite of the row as it was read (`version`). The order is what makes it safe: the row is read first,
 * then whatever else the decision rests on (addresses, pools, the request), then the row is written if nobody wrote it
 * meanwhile. Whoever changes one of those other things in a way that could spoil a decision rewrites this row too:
 * a pool is put on `closing` before its row goes, and the return of an address to the inventory rewrites it as well.
 * Who loses decides again on what the winner left; each round has a winner, so all come through.
 */
export interface PlacementRow extends Row {
  readonly account: string;
  readonly version: number;
  /** The addresses that are not in the default pool. One of an address that the account does not have yet is on its way to it. */
  readonly elsewhere: readonly Place[];
  /** Pools whose rows are to go, or have gone. Whoever reads this row finishes that before anything else. */
  readonly closing: readonly { readonly id: string; readonly token: string }[];
}

/** That an address is in a pool. */
export interface Place {
  readonly ip: string;
  readonly pool: string;
}

export const placements: CollectionSpec<PlacementRow> = { name: 'placements', indexes: [['account']], dates: [] };

/** What `rewrite` is to write: all fields that change, or nothing at all. */
export type Decision = Partial<Pick<PlacementRow, 'elsewhere' | 'closing'>> | undefined;

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

/** Decides on the placement as it is, and again on the next one when somebody was faster. `decide` may throw refusals. */
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
