import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { provisionIpsTask } from '../../../src/sending/dedicated-ips.ts';
import { ACCOUNT, type ApiWorld, startApi } from '../../support/api.ts';
import { drivers } from '../../support/database.ts';
import { putIp } from '../../support/ips.ts';

const AT_ONCE = 50;

for (const driver of drivers) {
  describe(`dedicated addresses with 50 concurrent calls, ${driver.name}`, () => {
    let world: ApiWorld;
    beforeEach(async () => {
      world = await startApi({ database: (log) => driver.open({ log, crowded: true }) });
    });
    afterEach(() => world.stop());

    const many = async (calls: readonly (readonly [string, object])[]) => {
      const answers = await Promise.all(calls.map(([path, params]) => world.call(path, params)));
      return answers.map(({ status, body }) => (status === 200 ? 'ok' : body.name));
    };
    const times = <T>(count: number, make: (n: number) => T) => Array.from({ length: count }, (_, n) => make(n));
    const tally = (names: readonly string[]) =>
      Object.fromEntries([...Map.groupBy(names, (name) => name)].map(([name, all]) => [name, all.length]));
    const collect = () =>
      provisionIpsTask(
        { hostname: 'mx.postern.test', quarantineDays: 30 },
        { ...world, ids: createIds(world.clock) },
      ).run();
    const membersOf = async (pool: string) => {
      const { status, body } = await world.call('/ips/pool-info', { pool });
      return status === 200 ? body.ips.map(({ ip }: { ip: string }) => ip) : body.name;
    };

    it('creates one request', async () => {
      expect(tally(await many(times(AT_ONCE, () => ['/ips/provision', {}])))).to.deep.equal({
        ok: 1,
        IP_ProvisionLimit: AT_ONCE - 1,
      });
      expect(await world.store.ipRequests.many({})).to.have.length(1);
    });

    it('creates one pool, with the same answer for all', async () => {
      const answers = await Promise.all(times(AT_ONCE, () => world.call('/ips/create-pool', { pool: 'News' })));
      expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).to.equal(1);
      expect(await world.store.pools.many({ account: ACCOUNT, name: 'News' })).to.have.length(1);
    });

    it('creates one default pool on first use', async () => {
      const answers = await Promise.all(
        times(AT_ONCE, (n) => world.call(n % 2 ? '/ips/list-pools' : '/ips/pool-info', { pool: 'Main Pool' })),
      );
      expect(answers.map(({ status }) => status)).to.deep.equal(times(AT_ONCE, () => 200));
      expect(await world.store.pools.many({ account: ACCOUNT, name: 'Main Pool' })).to.have.length(1);
    });

    it('starts one change of custom DNS', async () => {
      expect(
        tally(
          await many(times(AT_ONCE, () => ['/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'out.example.com' }])),
        ),
      ).to.deep.equal({ ok: 1, Invalid_CustomDNSPending: AT_ONCE - 1 });
    });

    it('deletes once', async () => {
      const answers = await Promise.all(times(AT_ONCE, () => world.call('/ips/delete', { ip: '192.0.2.1' })));
      expect(answers.filter(({ body }) => body.deleted)).to.have.length(1);
    });

    it('never empties the default pool: one address stays if all are removed at once', async () => {
      for (let n = 0; n < AT_ONCE - 2; n++) await putIp(world.store, ACCOUNT, `198.51.100.${n}`);
      const all = await membersOf('Main Pool');
      expect(all).to.have.length(AT_ONCE);
      const answers = await many(
        all.map((ip: string, n: number) => [
          '/ips/set-pool',
          { ip, pool: n % 2 ? 'Old Pool' : `New ${n % 5}`, create_pool: true },
        ]),
      );
      expect(tally(answers)).to.deep.equal({ ok: AT_ONCE - 1, Invalid_EmptyDefaultPool: 1 });
      expect(await membersOf('Main Pool')).to.deep.equal(all.filter((_: string, n: number) => answers[n] !== 'ok'));
    }).timeout(60_000);

    it('removes only one of the last two, every time', async () => {
      for (let round = 0; round < 10; round++) {
        expect(
          tally(
            await many([
              ['/ips/set-pool', { ip: '192.0.2.1', pool: 'Old Pool' }],
              ['/ips/set-pool', { ip: '192.0.2.2', pool: 'Old Pool' }],
            ]),
          ),
        ).to.deep.equal({ ok: 1, Invalid_EmptyDefaultPool: 1 });
        await many([
          ['/ips/set-pool', { ip: '192.0.2.1', pool: 'Main Pool' }],
          ['/ips/set-pool', { ip: '192.0.2.2', pool: 'Main Pool' }],
        ]);
      }
    });

    it('deletes a pool or moves an address into it, never both', async () => {
      for (let round = 0; round < 12; round++) {
        const pool = `Round ${round}`;
        await world.call('/ips/create-pool', { pool });
        const calls: [string, object][] = [
          ['/ips/set-pool', { ip: '192.0.2.3', pool }],
          ['/ips/delete-pool', { pool }],
        ];
        const [moved, deleted] = await many(round % 2 ? calls : calls.toReversed()).then((names) =>
          round % 2 ? names : names.toReversed(),
        );
        const { body } = await world.call('/ips/info', { ip: '192.0.2.3' });
        if (deleted === 'ok')
          expect([moved, await membersOf(pool), body.pool === pool], pool).to.deep.equal([
            'Unknown_Pool',
            'Unknown_Pool',
            false,
          ]);
        else
          expect([deleted, moved, await membersOf(pool)], pool).to.deep.equal([
            'Invalid_DeleteNonEmptyPool',
            'ok',
            ['192.0.2.3'],
          ]);
      }
    });

    it('leaves every address in an existing pool, after 50 calls of all kinds during the task', async () => {
      const calls = (round: number): [string, object][] =>
        times(AT_ONCE, (n) => {
          const pool = `Pool ${n % 3}`;
          const ip = `192.0.2.${(n % 3) + 1}`;
          const kinds: [string, object][] = [
            ['/ips/set-pool', { ip, pool, create_pool: true }],
            ['/ips/delete-pool', { pool }],
            ['/ips/create-pool', { pool }],
            ['/ips/set-pool', { ip, pool: 'Main Pool' }],
            ['/ips/set-pool', { ip, pool }],
          ];
          return n === 7 && round === 2
            ? ['/ips/delete', { ip }]
            : (kinds[(n * 7 + round) % kinds.length] ?? ['/ips/list', {}]);
        });
      for (let round = 0; round < 4; round++) {
        const [names] = await Promise.all([many(calls(round)), collect()]);
        expect(
          Object.keys(tally(names)).filter(
            (name) =>
              !['ok', 'Unknown_Pool', 'Unknown_IP', 'Invalid_EmptyDefaultPool', 'Invalid_DeleteNonEmptyPool'].includes(
                name,
              ),
          ),
        ).to.deep.equal([]);
        const { body: ips } = await world.call('/ips/list');
        const { body: pools } = await world.call('/ips/list-pools');
        const held = pools.flatMap((pool: { name: string; ips: { ip: string; pool: string }[] }) =>
          pool.ips.map(({ ip, pool: said }) => [ip, said === pool.name]),
        );
        expect(held, 'each address in one pool').to.have.deep.members(ips.map(({ ip }: { ip: string }) => [ip, true]));
      }
      await collect();
      const { elsewhere = [], closing } = (await world.store.placements.one({ id: ACCOUNT })) ?? {};
      const mine = (await world.store.ips.many({ account: ACCOUNT })).map(({ id }) => id);
      expect(closing).to.deep.equal([]);
      expect(
        elsewhere.filter(({ ip }) => !mine.includes(ip)),
        'pools of addresses that went',
      ).to.deep.equal([]);
    }).timeout(60_000);
  });
}
