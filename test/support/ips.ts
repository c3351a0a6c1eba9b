import { INVENTORY, type IpRow, PLAIN_IP, poolId } from '../../src/store/rows/ips.ts';

import type { Store } from '../../src/store/store.ts';

/** Gives an account an address. */
export async function putIp(store: Store, account: string, id: string, fields: Partial<IpRow> = {}): Promise<void> {
  await store.ips.insert({
    ...PLAIN_IP,
    id,
    account,
    domain: '',
    homeDomain: null,
    createdAt: new Date('2026-01-03T10:00:00Z'),
    freeAt: null,
    claim: `claim of ${id}`,
    ...fields,
  });
}

/** Puts an address into the operator's inventory. */
export async function stock(store: Store, id: string, fields: Partial<IpRow> = {}): Promise<void> {
  await putIp(store, INVENTORY, id, { freeAt: new Date('2026-01-01T00:00:00Z'), ...fields });
}

/** What the examples of the group start from: three addresses, one of them in a pool of its own, and an empty pool. */
export async function seedIps(store: Store, account: string): Promise<void> {
  for (const n of [1, 2, 3]) {
    const domain = `out${n}.mx.postern.test`;
    await putIp(store, account, `192.0.2.${n}`, { domain, homeDomain: domain });
  }
  for (const name of ['Transactional', 'Old Pool']) {
    await store.pools.insert({
      id: poolId(account, name),
      account,
      name,
      token: `token of ${name}`,
      createdAt: new Date('2026-01-02T09:00:00Z'),
    });
  }
  await store.placements.insert({
    id: account,
    account,
    version: 1,
    elsewhere: [{ ip: '192.0.2.3', pool: 'Transactional' }],
    closing: [],
  });
}
