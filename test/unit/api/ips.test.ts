import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { provisionIpsTask, retestReverseDnsTask } from '../../../src/sending/dedicated-ips.ts';

import { ACCOUNT, type ApiWorld, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { drivers } from '../../support/database.ts';
import { putIp, stock } from '../../support/ips.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const DAY_MS = 86_400_000;
const ZONE: ZoneRecords = {
  'out.example.com': { A: ['192.0.2.1', '192.0.2.2'] },
  'six.example.com': { AAAA: ['2001:db8::1'] },
  'other.example.com': { A: ['198.51.100.1'] },
  'text.example.com': { TXT: ['x'] },
  'mute.example.com': { fails: 'timeout' },
  'xn--mnchen-3ya.example.com': { A: ['192.0.2.1'] },
  '1.2.0.192.in-addr.arpa': { PTR: ['out.example.com'] },
};

for (const driver of drivers) {
  describe(`dedicated addresses, ${driver.name}`, () => {
    let world: ApiWorld;
    beforeEach(async () => {
      world = await startApi({ zone: ZONE, database: (log) => driver.open({ log }) });
    });
    afterEach(() => world.stop());

    const ok = async (path: string, params: object = {}) => {
      const { status, body } = await world.call(path, params);
      expect({ status, body }).to.include({ status: 200 });
      return body;
    };
    const failure = async (path: string, params: object = {}) => {
      const { status, body } = await world.call(path, params);
      return [status, body.name, body.code, body.message];
    };
    const provision = () =>
      provisionIpsTask(
        { hostname: 'mx.postern.test', quarantineDays: 30 },
        { ...world, ids: createIds(world.clock) },
      ).run();
    const pools = async (key = {}) =>
      (await ok('/ips/list-pools', key)).map((pool: { name: string; ips: { ip: string }[] }) => [
        pool.name,
        pool.ips.map(({ ip }) => ip),
      ]);

    describe('provisioning', () => {
      it('turns a request into a new address that warms up in its pool; then another may be requested', async () => {
        await stock(world.store, '203.0.113.7');
        expect(await ok('/ips/provision', { warmup: true, pool: 'Old Pool' })).to.deep.equal({
          requested_at: '2026-01-05 12:00:00',
        });
        expect(await failure('/ips/provision')).to.deep.equal([
          400,
          'IP_ProvisionLimit',
          14,
          'A dedicated IP provisioning request is already pending.',
        ]);
        await world.clock.advance(60_000);
        await provision();
        expect(await ok('/ips/info', { ip: '203.0.113.7' })).to.deep.equal({
          ip: '203.0.113.7',
          created_at: '2026-01-05 12:01:00',
          pool: 'Old Pool',
          domain: '203-0-113-7.mx.postern.test',
          custom_dns: { enabled: false, valid: false, error: null },
          warmup: { warming_up: true, start_at: '2026-01-05 12:01:00', end_at: '2026-02-04 12:01:00' },
        });
        expect(await ok('/ips/provision')).to.deep.equal({ requested_at: '2026-01-05 12:01:00' });
      });

      it('accepts null or the name for the default pool', async () => {
        for (const pool of [null, undefined, 'Main Pool']) {
          await stock(world.store, '203.0.113.7');
          await ok('/ips/provision', { pool });
          await provision();
          expect(await ok('/ips/info', { ip: '203.0.113.7' }))
            .to.include({ pool: 'Main Pool' })
            .and.to.deep.include({ warmup: { warming_up: false, start_at: null, end_at: null } });
          await world.store.ips.remove({ id: '203.0.113.7' });
        }
      });

      it('can be withdrawn while it waits, but not once an address was chosen', async () => {
        await ok('/ips/provision', { pool: 'Old Pool' });
        expect(await ok('/ips/cancel-provision', { key: OTHER_KEY })).to.deep.equal({
          withdrawn: false,
          requested_at: null,
        });
        expect(await ok('/ips/cancel-provision')).to.deep.equal({
          withdrawn: true,
          requested_at: '2026-01-05 12:00:00',
        });
        await stock(world.store, '203.0.113.7');
        await provision();
        expect(await failure('/ips/info', { ip: '203.0.113.7' })).to.include('Unknown_IP');
        await ok('/ips/provision');
        await world.store.ipRequests.change(
          { id: ACCOUNT },
          { ip: '203.0.113.7', claim: (await world.store.ips.one({ id: '203.0.113.7' }))?.claim ?? null },
        );
        expect(await ok('/ips/cancel-provision')).to.deep.equal({ withdrawn: false, requested_at: null });
        await provision();
        expect(await ok('/ips/info', { ip: '203.0.113.7' })).to.include({ ip: '203.0.113.7' });
      });

      it('rejects accounts that never sent, have a poor reputation, name an unknown pool, or would have to pay', async () => {
        expect(await failure('/ips/provision', { key: OTHER_KEY })).to.deep.equal([
          400,
          'NoSendingHistory',
          26,
          'This feature is not available for accounts without a sending history.',
        ]);
        expect(await failure('/ips/provision', { pool: 'None' })).to.deep.equal([
          404,
          'Unknown_Pool',
          15,
          'No pool named None',
        ]);
        world.ips.minReputation = 100;
        expect(await failure('/ips/provision')).to.deep.equal([
          400,
          'PoorReputation',
          25,
          'This feature is not available for accounts with a poor reputation.',
        ]);
        world.ips.provisioning = 'off';
        expect((await failure('/ips/provision')).slice(0, 3)).to.deep.equal([402, 'PaymentRequired', 10]);
        expect(await world.store.ipRequests.many({})).to.deep.equal([]);
      });
    });

    describe('warmup', () => {
      it('lasts 30 days, continues when it is started again, and can be cancelled and restarted', async () => {
        const warming = { warming_up: true, start_at: '2026-01-05 12:00:00', end_at: '2026-02-04 12:00:00' };
        expect((await ok('/ips/start-warmup', { ip: '192.0.2.1' })).warmup).to.deep.equal(warming);
        await world.clock.advance(DAY_MS);
        expect((await ok('/ips/start-warmup', { ip: '192.0.2.1' })).warmup).to.deep.equal(warming);
        for (let i = 0; i < 2; i++)
          expect((await ok('/ips/cancel-warmup', { ip: '192.0.2.1' })).warmup).to.deep.equal({
            warming_up: false,
            start_at: null,
            end_at: null,
          });
        expect((await ok('/ips/start-warmup', { ip: '192.0.2.1' })).warmup).to.deep.equal({
          warming_up: true,
          start_at: '2026-01-06 12:00:00',
          end_at: '2026-02-05 12:00:00',
        });
      });

      it('is over at its end even before the task has run, and can be started again then', async () => {
        await ok('/ips/start-warmup', { ip: '192.0.2.1' });
        await world.clock.advance(30 * DAY_MS - 1);
        expect((await ok('/ips/info', { ip: '192.0.2.1' })).warmup.warming_up).to.equal(true);
        await world.clock.advance(1);
        expect((await ok('/ips/info', { ip: '192.0.2.1' })).warmup).to.deep.equal({
          warming_up: false,
          start_at: null,
          end_at: null,
        });
        expect((await ok('/ips/start-warmup', { ip: '192.0.2.1' })).warmup).to.deep.equal({
          warming_up: true,
          start_at: '2026-02-04 12:00:00',
          end_at: '2026-03-06 12:00:00',
        });
      });
    });

    describe('pools', () => {
      it('begin with the default pool, which is always as old as the account', async () => {
        const main = { name: 'Main Pool', created_at: '2026-01-02 00:00:00', ips: [] };
        expect(await ok('/ips/list-pools', { key: OTHER_KEY })).to.deep.equal([main]);
        await world.clock.advance(DAY_MS);
        expect(await ok('/ips/pool-info', { key: OTHER_KEY, pool: 'Main Pool' })).to.deep.equal(main);
        expect(await ok('/ips/create-pool', { key: OTHER_KEY, pool: 'Main Pool' })).to.deep.equal(main);
        expect(await failure('/ips/delete-pool', { key: OTHER_KEY, pool: 'Main Pool' })).to.deep.equal([
          400,
          'Invalid_DeleteDefaultPool',
          17,
          'You cannot delete your default pool',
        ]);
      });

      it('are created once, and returned unchanged afterwards', async () => {
        const made = await ok('/ips/create-pool', { pool: 'News' });
        await world.clock.advance(DAY_MS);
        expect(await ok('/ips/create-pool', { pool: 'News' })).to.deep.equal(made);
        expect(
          (await ok('/ips/create-pool', { pool: 'Transactional' })).ips.map(({ ip }: { ip: string }) => ip),
        ).to.deep.equal(['192.0.2.3']);
      });

      it('hold the addresses moved into them; the last address of the default pool stays', async () => {
        expect((await ok('/ips/set-pool', { ip: '192.0.2.1', pool: 'Old Pool' })).pool).to.equal('Old Pool');
        expect((await ok('/ips/set-pool', { ip: '192.0.2.1', pool: 'Old Pool' })).pool, 'again').to.equal('Old Pool');
        expect(await failure('/ips/set-pool', { ip: '192.0.2.2', pool: 'Old Pool' })).to.deep.equal([
          400,
          'Invalid_EmptyDefaultPool',
          16,
          'You cannot remove the last IP from your default pool',
        ]);
        expect(await failure('/ips/set-pool', { ip: '192.0.2.2', pool: 'Never Made', create_pool: true })).to.include(
          'Invalid_EmptyDefaultPool',
        );
        expect((await ok('/ips/set-pool', { ip: '192.0.2.2', pool: 'Main Pool' })).pool, 'where it is').to.equal(
          'Main Pool',
        );
        expect((await ok('/ips/set-pool', { ip: '192.0.2.3', pool: 'Old Pool' })).pool, 'between others').to.equal(
          'Old Pool',
        );
        expect(await pools()).to.deep.equal([
          ['Main Pool', ['192.0.2.2']],
          ['Old Pool', ['192.0.2.1', '192.0.2.3']],
          ['Transactional', []],
        ]);
        await ok('/ips/set-pool', { ip: '192.0.2.1', pool: 'Main Pool' });
        expect((await ok('/ips/set-pool', { ip: '192.0.2.2', pool: 'Old Pool' })).pool).to.equal('Old Pool');
      });

      it('are created by set-pool only on request', async () => {
        for (const createPool of [false, null, undefined])
          expect(
            await failure('/ips/set-pool', { ip: '192.0.2.1', pool: 'New', create_pool: createPool }),
          ).to.deep.equal([404, 'Unknown_Pool', 15, 'No pool named New']);
        expect((await ok('/ips/set-pool', { ip: '192.0.2.1', pool: 'New', create_pool: true })).pool).to.equal('New');
        expect(await ok('/ips/pool-info', { pool: 'New' })).to.include({ created_at: '2026-01-05 12:00:00' });
      });

      it('are deleted when empty; a later one of the same name is new and empty', async () => {
        expect(await failure('/ips/delete-pool', { pool: 'Transactional' })).to.deep.equal([
          400,
          'Invalid_DeleteNonEmptyPool',
          18,
          'Non-empty pools cannot be deleted',
        ]);
        await ok('/ips/set-pool', { ip: '192.0.2.3', pool: 'Main Pool' });
        expect(await ok('/ips/delete-pool', { pool: 'Transactional' })).to.deep.equal({
          pool: 'Transactional',
          deleted: true,
        });
        for (const path of ['/ips/delete-pool', '/ips/pool-info'])
          expect(await failure(path, { pool: 'Transactional' })).to.include('Unknown_Pool');
        expect(await ok('/ips/create-pool', { pool: 'Transactional' })).to.deep.equal({
          name: 'Transactional',
          created_at: '2026-01-05 12:00:00',
          ips: [],
        });
      });

      it('can be deleted after their last address was returned, before the task has run', async () => {
        await ok('/ips/delete', { ip: '192.0.2.3' });
        expect((await ok('/ips/pool-info', { pool: 'Transactional' })).ips).to.deep.equal([]);
        expect(await ok('/ips/delete-pool', { pool: 'Transactional' })).to.deep.equal({
          pool: 'Transactional',
          deleted: true,
        });
        await provision();
        expect((await world.store.placements.one({ id: ACCOUNT }))?.elsewhere).to.deep.equal([]);
      });

      it('are gone when a deletion was interrupted after it was decided', async () => {
        const row = await world.store.pools.one({ account: ACCOUNT, name: 'Old Pool' });
        await world.store.placements.change(
          { id: ACCOUNT },
          { closing: [{ id: row?.id ?? '', token: row?.token ?? '' }] },
        );
        expect(await failure('/ips/pool-info', { pool: 'Old Pool' })).to.include('Unknown_Pool');
        expect(await ok('/ips/create-pool', { pool: 'Old Pool' })).to.include({ created_at: '2026-01-05 12:00:00' });
        expect((await world.store.placements.one({ id: ACCOUNT }))?.closing).to.deep.equal([]);
      });

      it('are listed 1,000 at a time', async () => {
        for (let n = 0; n < 1003; n++)
          await world.store.pools.insert({
            id: `${OTHER_ACCOUNT} P${n}`,
            account: OTHER_ACCOUNT,
            name: `P${String(n).padStart(4, '0')}`,
            token: 't',
            createdAt: new Date(0),
          });
        const first = await ok('/ips/list-pools', { key: OTHER_KEY });
        expect([first.length, first[0].name, first[999].name]).to.deep.equal([1000, 'Main Pool', 'P0998']);
        expect(
          (await ok('/ips/list-pools', { key: OTHER_KEY, after: 'P0998' })).map(({ name }: { name: string }) => name),
        ).to.deep.equal(['P0999', 'P1000', 'P1001', 'P1002']);
      }).timeout(60_000);

      it('have distinguishable names of up to 255 characters', async () => {
        for (const pool of ['x'.repeat(256), 'a\nb', 'a\0b', '\u202eabc', 'a\u2028b', ' ', '\t']) {
          expect((await failure('/ips/create-pool', { pool })).slice(0, 3), JSON.stringify(pool)).to.deep.equal([
            422,
            'ValidationError',
            -2,
          ]);
        }
        for (const pool of [
          'x'.repeat(255),
          "'; DROP TABLE pools; --",
          '$gt',
          'a.b',
          '__proto__',
          '<b>',
          'Почта',
          '😀',
          '100%',
          '../..',
          'main pool',
        ]) {
          expect((await ok('/ips/create-pool', { pool })).name).to.equal(pool);
          expect((await ok('/ips/set-pool', { ip: '192.0.2.1', pool })).pool).to.equal(pool);
          expect((await ok('/ips/pool-info', { pool })).ips).to.have.length(1);
          await ok('/ips/set-pool', { ip: '192.0.2.1', pool: 'Main Pool' });
          expect(await ok('/ips/delete-pool', { pool })).to.deep.equal({ pool, deleted: true });
        }
        expect((await ok('/ips/create-pool', { pool: '  Spaced  ' })).name).to.equal('Spaced');
      });
    });

    describe('returning an address', () => {
      it('removes the address from the account at once and for good', async () => {
        expect(await ok('/ips/delete', { ip: '192.0.2.2' })).to.deep.equal({ ip: '192.0.2.2', deleted: true });
        for (const path of ['/ips/info', '/ips/start-warmup', '/ips/cancel-warmup']) {
          expect(await failure(path, { ip: '192.0.2.2' })).to.deep.equal([
            404,
            'Unknown_IP',
            13,
            'No dedicated IP with address 192.0.2.2',
          ]);
        }
        expect(await failure('/ips/set-pool', { ip: '192.0.2.2', pool: 'Old Pool' })).to.include('Unknown_IP');
        for (const path of ['/ips/check-custom-dns', '/ips/set-custom-dns'])
          expect(await failure(path, { ip: '192.0.2.2', domain: 'out.example.com' })).to.include('Unknown_IP');
        expect((await ok('/ips/list')).map(({ ip }: { ip: string }) => ip)).to.deep.equal(['192.0.2.1', '192.0.2.3']);
        expect(await ok('/ips/delete', { ip: '192.0.2.2' })).to.deep.equal({ ip: '192.0.2.2', deleted: false });
        await provision();
        expect(await ok('/ips/delete', { ip: '192.0.2.2' })).to.deep.equal({ ip: '192.0.2.2', deleted: false });
      });

      it('may empty the default pool', async () => {
        for (const ip of ['192.0.2.1', '192.0.2.2', '192.0.2.3']) await ok('/ips/delete', { ip });
        expect(await ok('/ips/list')).to.deep.equal([]);
        expect(await pools()).to.deep.equal([
          ['Main Pool', []],
          ['Old Pool', []],
          ['Transactional', []],
        ]);
      });

      it('puts the address into the requested pool when the account gets it again', async () => {
        await ok('/ips/delete', { ip: '192.0.2.3' });
        await provision();
        await world.clock.advance(30 * DAY_MS);
        await ok('/ips/provision');
        await provision();
        expect(await ok('/ips/info', { ip: '192.0.2.3' })).to.include({
          pool: 'Main Pool',
          domain: 'out3.mx.postern.test',
        });
      });
    });

    describe('an address', () => {
      it('is the same in every notation', async () => {
        await putIp(world.store, ACCOUNT, '2001:db8::1');
        for (const ip of ['2001:DB8::1', '2001:0db8:0:0:0:0:0:1', ' 2001:db8::1 '])
          expect((await ok('/ips/info', { ip })).ip).to.equal('2001:db8::1');
        for (const ip of ['::ffff:192.0.2.1', '::FFFF:C000:201'])
          expect((await ok('/ips/info', { ip })).ip).to.equal('192.0.2.1');
        expect(await ok('/ips/delete', { ip: '2001:0DB8::1' })).to.deep.equal({ ip: '2001:db8::1', deleted: true });
      });

      it('is unknown if invalid, or only in the inventory', async () => {
        await stock(world.store, '203.0.113.7');
        for (const ip of [
          '203.0.113.7',
          'x',
          '$gt',
          '192.0.2',
          '192.0.2.1/32',
          '192.0.2.01',
          '[::1]',
          'fe80::1%eth0',
          "' OR 1=1 --",
          '__proto__',
          '192.0.2.1\n.',
          '%',
        ]) {
          expect(await failure('/ips/info', { ip }), ip).to.deep.equal([
            404,
            'Unknown_IP',
            13,
            `No dedicated IP with address ${ip}`,
          ]);
          expect(await ok('/ips/delete', { ip })).to.deep.equal({ ip, deleted: false });
        }
        expect(await world.store.ips.one({ id: '203.0.113.7' })).to.include({ account: '' });
        expect((await failure('/ips/info', { ip: 'x'.repeat(65) })).slice(0, 3)).to.deep.equal([
          422,
          'ValidationError',
          -2,
        ]);
      });

      it('is listed with all others, however many there are', async () => {
        for (let n = 0; n < 1002; n++)
          await putIp(world.store, OTHER_ACCOUNT, `10.${Math.floor(n / 250)}.${n % 250}.1`);
        const first = await ok('/ips/list', { key: OTHER_KEY });
        expect(new Set(first.map(({ ip }: { ip: string }) => ip)).size).to.equal(1002);
        expect(await ok('/ips/list', { key: OTHER_KEY, after: first[999].ip })).to.deep.equal(first.slice(1000));
      }).timeout(60_000);
    });

    describe('custom reverse DNS', () => {
      const check = (ip: string, domain: string) => ok('/ips/check-custom-dns', { ip, domain });

      it('can be a domain that points to the address', async () => {
        await putIp(world.store, ACCOUNT, '2001:db8::1');
        expect(await check('192.0.2.1', 'out.example.com')).to.deep.equal({ valid: true, error: null });
        expect(await check('2001:0DB8::1', 'six.example.com')).to.deep.equal({ valid: true, error: null });
        expect(await check('192.0.2.1', 'none.example.com')).to.deep.equal({
          valid: false,
          error: 'none.example.com does not exist',
        });
        expect(await check('192.0.2.1', 'text.example.com')).to.deep.equal({
          valid: false,
          error: 'No A record found',
        });
        expect(await check('192.0.2.1', 'six.example.com')).to.deep.equal({ valid: false, error: 'No A record found' });
        expect(await check('192.0.2.1', 'other.example.com')).to.deep.equal({
          valid: false,
          error: 'other.example.com points to 198.51.100.1, not to 192.0.2.1',
        });
        expect(await check('192.0.2.1', 'mute.example.com')).to.deep.equal({
          valid: false,
          error: 'The DNS of mute.example.com does not respond; please try again later',
        });
      });

      it('cannot be a name of the operator, wherever it points', async () => {
        for (const domain of [
          'mx.postern.test',
          'OUT1.mx.postern.test.',
          'bounces.mx.postern.test',
          'app.postern.test',
        ]) {
          expect(await check('192.0.2.1', domain)).to.deep.equal({
            valid: false,
            error: 'This name belongs to the operator of this service',
          });
          expect(await failure('/ips/set-custom-dns', { ip: '192.0.2.1', domain })).to.deep.equal([
            422,
            'ValidationError',
            -2,
            'Validation error: {"domain":"This name belongs to the operator of this service"}',
          ]);
        }
      });

      it('is pending until the PTR record names it, and then the domain of the address', async () => {
        const custom = async () => {
          const { domain, custom_dns: dns } = await ok('/ips/info', { ip: '192.0.2.1' });
          return { domain, ...dns };
        };
        expect(
          (await ok('/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'Out.Example.com.' })).custom_dns,
        ).to.deep.equal({
          enabled: true,
          valid: false,
          error: 'Pending: the reverse DNS of the IP does not name the domain yet',
        });
        expect(await failure('/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'out.example.com' })).to.deep.equal([
          400,
          'Invalid_CustomDNSPending',
          20,
          'A custom DNS change for this dedicated IP is currently pending.',
        ]);
        expect(await custom()).to.include({ domain: 'out1.mx.postern.test', valid: false });
        await retestReverseDnsTask({ hostname: 'mx.postern.test' }, { ...world, resolver: zoneResolver(ZONE) }).run();
        expect(await custom()).to.deep.equal({ domain: 'out.example.com', enabled: true, valid: true, error: null });
        expect(
          (await ok('/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'out.example.com' })).custom_dns.valid,
          'the same again',
        ).to.equal(true);
        expect(await ok('/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'münchen.example.com' })).to.deep.include({
          domain: 'out.example.com',
          custom_dns: {
            enabled: true,
            valid: false,
            error: 'Pending: the reverse DNS of the IP does not name the domain yet',
          },
        });
      });

      it('is rejected if the domain does not point to the address, and undecided while the DNS does not answer', async () => {
        for (const domain of ['none.example.com', 'text.example.com', 'other.example.com', 'six.example.com']) {
          expect(await failure('/ips/set-custom-dns', { ip: '192.0.2.1', domain })).to.deep.equal([
            400,
            'Invalid_CustomDNS',
            19,
            "The domain name is not configured for use as the dedicated IP's custom reverse DNS.",
          ]);
        }
        expect(
          (await failure('/ips/set-custom-dns', { ip: '192.0.2.1', domain: 'mute.example.com' })).slice(0, 2),
        ).to.deep.equal([503, 'ServiceUnavailable']);
        expect((await ok('/ips/info', { ip: '192.0.2.1' })).custom_dns).to.deep.equal({
          enabled: false,
          valid: false,
          error: null,
        });
      });

      it('may be requested again after seven days of pending', async () => {
        await ok('/ips/set-custom-dns', { ip: '192.0.2.2', domain: 'out.example.com' });
        await world.clock.advance(7 * DAY_MS - 1);
        expect(await failure('/ips/set-custom-dns', { ip: '192.0.2.2', domain: 'out.example.com' })).to.include(
          'Invalid_CustomDNSPending',
        );
        await world.clock.advance(1);
        await ok('/ips/set-custom-dns', { ip: '192.0.2.2', domain: 'out.example.com' });
        expect(await failure('/ips/set-custom-dns', { ip: '192.0.2.2', domain: 'out.example.com' })).to.include(
          'Invalid_CustomDNSPending',
        );
      });

      it('rejects an invalid domain', async () => {
        for (const domain of [
          '',
          ' ',
          'localhost',
          'a b.example',
          'a..b',
          '-a.example',
          '192.0.2.1',
          'a.example\r\nX: y',
          '<b>a.example</b>',
          'a.example/x',
          'a@b.example',
          `${'a'.repeat(64)}.example`,
          'a.'.repeat(130),
          '$gt',
          'a\0.example',
          '..',
          '*.example.com',
        ]) {
          for (const path of ['/ips/check-custom-dns', '/ips/set-custom-dns']) {
            const [status, name, code, message] = await failure(path, { ip: '192.0.2.1', domain });
            expect([status, name, code], domain).to.deep.equal([422, 'ValidationError', -2]);
            expect(message).to.match(/^Validation error: \{"domain":"(Not a valid domain name|Please enter [^"]+)"\}$/);
          }
        }
      });
    });
  });
}
