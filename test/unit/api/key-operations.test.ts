import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { keyHash, revokeKey } from '../../../src/store/rows/accounts.ts';
import type { Store } from '../../../src/store/store.ts';
import { ACCOUNT, type ApiWorld, KEY, SPARE_KEY, startApi } from '../../support/api.ts';
import { drivers } from '../../support/database.ts';
import { until } from '../../support/until.ts';

interface KeyRecord {
  readonly id: string;
  readonly starts_with: string;
  readonly label: string;
  readonly last_used_at: string | null;
}

const MINUTE = 60_000;

for (const driver of drivers) {
  describe(`the keys of an account, ${driver.name}`, () => {
    let world: ApiWorld;
    const start = async (store?: (real: Store) => Store) => {
      world = await startApi({ journal: true, database: (log) => driver.open({ log }), ...(store && { store }) });
    };
    afterEach(() => world.stop());

    const list = async (key = KEY): Promise<KeyRecord[]> => (await world.call('/keys/list', { key })).body;
    const named = async (label: string) => (await list()).find((one) => one.label === label);
    const add = async (label: string) => (await world.call('/keys/add', { label })).body;
    const ping = async (key: string) => (await world.call('/users/ping', { key })).status;
    const written = async (key: string) => (await world.store.keys.one({ id: keyHash(key) }))?.lastUsedAt ?? null;

    it('show a new one in full once, and it works at once', async () => {
      await start();
      const { key, ...record } = await add('robot');
      expect(await ping(key)).to.equal(200);
      expect(await named('robot')).to.deep.equal({ ...record, last_used_at: '2026-01-05 12:00:00' });
      expect(JSON.stringify(await list()) + JSON.stringify(world.log.lines)).not.to.contain(key);
    });

    it('are recorded with the actor of creation and revocation', async () => {
      await start();
      const { id, starts_with: hint } = await add('robot');
      await world.call('/keys/revoke', { id });
      await world.journal.flush();
      const { actions } = (await world.call('/actions/list')).body;
      expect(actions.map(({ by, what, detail }: any) => [by, what, detail])).to.deep.equal([
        [KEY.slice(0, 4), 'key revoked', `${hint}\u2026 (robot)`],
        [KEY.slice(0, 4), 'key created', `${hint}\u2026 (robot)`],
      ]);
    });

    it('have ids that reveal nothing of the key, not even its hash', async () => {
      await start();
      for (const { id } of await list())
        for (const key of [KEY, SPARE_KEY]) expect(keyHash(key)).not.to.contain(id.slice(0, 8));
      expect((await world.call('/keys/revoke', { id: keyHash(SPARE_KEY) })).body).to.include({ name: 'Unknown_Key' });
    });

    it('are rejected within two seconds of their revocation, and removed from the list', async () => {
      await start();
      const { id } = (await named('example')) ?? { id: '' };
      expect((await world.call('/keys/revoke', { key: SPARE_KEY, id })).body).to.include({ id, label: 'example' });
      await world.clock.advance(2000);
      expect(await ping(KEY)).to.equal(401);
      expect((await list(SPARE_KEY)).map(({ label }) => label)).to.deep.equal(['spare']);
      expect((await world.call('/keys/revoke', { key: SPARE_KEY, id })).body).to.include({ name: 'Unknown_Key' });
    });

    it('cannot revoke themselves; the error has the remedy', async () => {
      await start();
      const { id } = (await named('example')) ?? { id: '' };
      expect((await world.call('/keys/revoke', { id })).body).to.deep.equal({
        status: 'error',
        code: 400,
        name: 'Invalid_OwnKey',
        message: 'A key cannot revoke itself: make the call with another key of the account',
      });
      expect(await ping(KEY)).to.equal(200);
    });

    it('are limited to a hundred, even with concurrent calls', async () => {
      await start();
      const answers = await Promise.all(Array.from({ length: 110 }, () => world.call('/keys/add')));
      expect(answers.filter(({ status }) => status === 200)).to.have.length(98);
      expect(answers.find(({ status }) => status !== 200)?.body.message).to.equal(
        'Validation error: {"account":"The account has 100 API keys, which is its limit; revoke one first"}',
      );
      expect(await list()).to.have.length(100);
    });

    it('leave at most a hundred rows after many creations and revocations', async () => {
      await start();
      for (let n = 0; n < 105; n++) {
        const { id } = await add(`short-lived ${n}`);
        await world.call('/keys/revoke', { id });
        await world.clock.advance(1);
      }
      const rows = await world.store.keys.many({ account: ACCOUNT }, { sort: 'createdAt' });
      expect(rows).to.have.length(102);
      expect(rows.at(-1)).to.include({ label: 'short-lived 104' });
    });

    it('have readable labels of one line', async () => {
      await start();
      for (const label of ['x'.repeat(101), 'two\nlines', '\u001b[31mred', 'exe.\u202etxt']) {
        const { status, body } = await world.call('/keys/add', { label });
        expect({ status, name: body.name }, label).to.deep.equal({ status: 422, name: 'ValidationError' });
      }
      expect(await add('<b>"Zoë" & 会社</b>')).to.include({ label: '<b>"Zoë" & 会社</b>' });
    });

    it('show their last use from the first call on, written once a minute', async () => {
      let writes = 0;
      await start((real) => ({
        ...real,
        keys: {
          ...real.keys,
          change: (filter, patch) => {
            writes++;
            return real.keys.change(filter, patch);
          },
        },
      }));
      expect(await named('spare')).to.include({ last_used_at: null });
      for (let second = 0; second < 50; second++) {
        await ping(SPARE_KEY);
        await world.clock.advance(1000);
      }
      expect(await named('spare')).to.include({ last_used_at: '2026-01-05 12:00:49' });
      expect({ writes, row: await written(SPARE_KEY) }).to.deep.equal({ writes: 0, row: null });
      await world.clock.advance(MINUTE);
      await until('the use is written', async () => (await written(SPARE_KEY)) !== null);
      expect((await written(SPARE_KEY))?.toISOString()).to.equal('2026-01-05T12:00:49.000Z');
      await until('the use is written', async () => (await written(KEY)) !== null);
      const first = writes;
      await ping(SPARE_KEY);
      await ping(SPARE_KEY);
      await world.clock.advance(MINUTE);
      await until(
        'the use is written',
        async () => (await written(SPARE_KEY))?.getTime() !== Date.UTC(2026, 0, 5, 12, 0, 49),
      );
      expect(writes - first, 'one key, one write').to.equal(1);
    });

    it('do not count as used if wrong or revoked', async () => {
      await start();
      await ping('SpareKey00000000000004');
      await revokeKey(world.store, keyHash(SPARE_KEY), world);
      await ping(SPARE_KEY);
      await world.clock.advance(2 * MINUTE);
      const rows = await world.store.keys.many({ account: ACCOUNT });
      expect(rows.find(({ label }) => label === 'spare')?.lastUsedAt).to.equal(null);
    });

    it('delay no call until their use is written, and lose no use while the store is unavailable', async () => {
      let way: 'hangs' | 'away' | 'there' = 'hangs';
      await start((real) => ({
        ...real,
        keys: {
          ...real.keys,
          change: (filter, patch) => {
            if (way === 'hangs') return new Promise((_, reject) => setTimeout(reject, 50, new StoreAway('late')));
            return way === 'away' ? Promise.reject(new StoreAway('away')) : real.keys.change(filter, patch);
          },
        },
      }));
      await ping(SPARE_KEY);
      await world.clock.advance(MINUTE);
      expect(await ping(SPARE_KEY)).to.equal(200);
      way = 'away';
      await until('some minutes', async () => {
        await world.clock.advance(MINUTE);
        return world.clock.now() > Date.UTC(2026, 0, 5, 12, 3);
      });
      expect(await named('spare'), 'still known here').to.include({ last_used_at: '2026-01-05 12:01:00' });
      way = 'there';
      await until('the use is written', async () => {
        await world.clock.advance(MINUTE);
        return (await written(SPARE_KEY)) !== null;
      });
      expect((await written(SPARE_KEY))?.toISOString()).to.equal('2026-01-05T12:01:00.000Z');
      expect(world.log.of('store.fault'), 'not a fault of ours').to.have.length(0);
    });

    it('keep a later use written by another host', async () => {
      await start();
      await ping(SPARE_KEY);
      const later = new Date(Date.UTC(2026, 0, 5, 12, 0, 30));
      await world.store.keys.change({ id: keyHash(SPARE_KEY) }, { lastUsedAt: later });
      expect(await named('spare')).to.include({ last_used_at: '2026-01-05 12:00:30' });
      await world.clock.advance(2 * MINUTE);
      await until('the use is written', async () => (await written(KEY)) !== null);
      expect(await written(SPARE_KEY)).to.deep.equal(later);
    });
  });
}
