import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import {
  createPoolFinder,
  DEFAULT_POOL,
  type IpRow,
  moveIp,
  type PlacementRow,
  type PoolRow,
  readPlacement,
  rewrite,
} from '../../store/rows/ips.ts';
import type { AccountParts } from '../account/account.ts';
import { operation } from '../operation.ts';
import { bool, listOf, record, str, time, toTime } from './fields.ts';
import { createIpRecorder, findPool, ipParam, ipRecord, knownPool, makePool, ownIps } from './ips.ts';
import { MAX_LIST } from './stats.ts';

/** The name of a pool that may not exist yet. */
const newPool = knownPool
  .refine((name) => name !== '', 'Please enter a value')
  .refine((name) => !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(name), 'Please enter a name without control characters')
  .describe('name of the pool, case-sensitive');

const poolRecord = record('IP pool record', {
  name: str('name of the pool'),
  created_at: time('when it was created'),
  ips: listOf(ipRecord, 'the dedicated IPs in it'),
});

/** Creates the conversion from pools to records, for all addresses of the account. */
function createPoolRecorder(
  placement: PlacementRow,
  ips: readonly IpRow[],
  now: Date,
): (row: PoolRow) => z.output<typeof poolRecord> {
  const byPool = Map.groupBy(ips.map(createIpRecorder(placement, now)), ({ pool }) => pool);
  return ({ name, createdAt }) => ({ name, created_at: toTime(createdAt), ips: byPool.get(name) ?? [] });
}

async function showPool(row: PoolRow, parts: AccountParts) {
  const placement = await readPlacement(parts.store);
  return createPoolRecorder(placement, await ownIps(parts), parts.now())(row);
}

const setPool = operation({
  path: '/ips/set-pool',
  access: 'settings',
  summary: 'Moves a dedicated IP into a pool.',
  notes: `The last IP of \`${DEFAULT_POOL}\` stays in it.`,
  params: {
    ip: ipParam,
    pool: newPool,
    create_pool: optional(bool('whether to create the pool if it does not exist; false if omitted')),
  },
  returns: ipRecord,
  errors: ['Unknown_IP', 'Unknown_Pool', 'Invalid_EmptyDefaultPool'],
  example: { ip: '192.0.2.1', pool: 'Newsletters', create_pool: true },
  async handle({ ip, pool, create_pool: createPool = false }, call) {
    const { store, orRefuse, refuse } = call;
    // The order of reading matters: see store/rows/ips.ts.
    await call.inTurn('placement', () =>
      rewrite(store, async (placement) => {
        const poolOf = createPoolFinder(placement);
        const mine = (await ownIps(call)).map(({ id }) => id);
        if (!mine.includes(ip)) throw refuse('Unknown_IP', ip);
        const known = await findPool(pool, call);
        if (!known && !createPool) throw refuse('Unknown_Pool', pool);
        if (poolOf(ip) === pool) return undefined;
        const left = mine.filter((other) => other !== ip && poolOf(other) === DEFAULT_POOL);
        if (poolOf(ip) === DEFAULT_POOL && left.length === 0) throw refuse('Invalid_EmptyDefaultPool');
        if (!known) await makePool(pool, call.now(), call);
        return { elsewhere: moveIp(placement, ip, pool) };
      }),
    );
    const row = orRefuse(await store.ips.one({ id: ip, releasedAt: null }), 'Unknown_IP', ip);
    return createIpRecorder(await readPlacement(store), call.now())(row);
  },
});

const listPools = operation({
  path: '/ips/list-pools',
  access: 'settings',
  summary: 'Lists the IP pools of the account with their dedicated IPs.',
  notes:
    `Sorted by name, at most ${MAX_LIST} at a time; for more, set \`after\` to the last name of the previous ` +
    `page. Every account has the pool \`${DEFAULT_POOL}\`.`,
  params: {
    after: optional(knownPool.describe('the last name of the previous page (not part of the Mandrill API)')),
  },
  returns: z.array(poolRecord),
  async handle({ after = '' }, call) {
    const { store } = call;
    const placement = await readPlacement(store);
    await findPool(DEFAULT_POOL, call);
    const rows = await store.pools.many({ name: { range: { gt: after } } }, { sort: 'name', limit: MAX_LIST });
    return rows.map(createPoolRecorder(placement, await ownIps(call), call.now()));
  },
});

const poolInfo = operation({
  path: '/ips/pool-info',
  access: 'settings',
  summary: 'Shows an IP pool with its dedicated IPs.',
  params: { pool: knownPool },
  returns: poolRecord,
  errors: ['Unknown_Pool'],
  example: { pool: 'Old Pool' },
  async handle({ pool }, call) {
    await readPlacement(call.store); // which completes interrupted deletions
    return showPool(call.orRefuse(await findPool(pool, call), 'Unknown_Pool', pool), call);
  },
});

const createPool = operation({
  path: '/ips/create-pool',
  access: 'settings',
  summary: 'Creates an IP pool; if it already exists, it is returned as it is.',
  params: { pool: newPool },
  returns: poolRecord,
  example: { pool: 'Newsletters' },
  async handle({ pool }, call) {
    await readPlacement(call.store); // as above
    return showPool((await findPool(pool, call)) ?? (await makePool(pool, call.now(), call)), call);
  },
});

const deletePool = operation({
  path: '/ips/delete-pool',
  access: 'settings',
  summary: 'Deletes an empty IP pool.',
  params: { pool: knownPool },
  returns: z.object({
    pool: str('name of the pool'),
    deleted: bool('true'),
  }),
  errors: ['Unknown_Pool', 'Invalid_DeleteDefaultPool', 'Invalid_DeleteNonEmptyPool'],
  example: { pool: 'Old Pool' },
  async handle({ pool }, call) {
    const { store, orRefuse, refuse } = call;
    if (pool === DEFAULT_POOL) throw refuse('Invalid_DeleteDefaultPool');
    await call.inTurn('placement', () =>
      rewrite(store, async (placement) => {
        const row = orRefuse(await findPool(pool, call), 'Unknown_Pool', pool);
        // A returned address is in no pool, though the placement has it until it leaves the account.
        const released = new Set((await store.ips.many({ releasedAt: { exists: true } })).map(({ id }) => id));
        const elsewhere = placement.elsewhere.filter((one) => one.pool !== pool || !released.has(one.ip));
        if (elsewhere.some((one) => one.pool === pool)) throw refuse('Invalid_DeleteNonEmptyPool');
        return { elsewhere, closing: [...placement.closing, { id: row.id, token: row.token }] };
      }),
    );
    await readPlacement(store); // removes the row
    return { pool, deleted: true };
  },
});

export const poolOperations = [setPool, listPools, poolInfo, createPool, deletePool];
