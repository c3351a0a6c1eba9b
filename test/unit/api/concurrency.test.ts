import { expect } from 'chai';
import { createRecorder } from '../../../src/events/record.ts';
import type { ApiWorld } from '../../support/api.ts';
import { createStage, type Stage, startStages } from '../../support/contract/stage.ts';
import { drivers } from '../../support/database.ts';

// Fifty calls in flight: whatever the order they come through in, the end is one that could have come of one after
// another.

const IN_FLIGHT = 50;
const times = <T>(work: (i: number) => Promise<T>) => Promise.all(Array.from({ length: IN_FLIGHT }, (_, i) => work(i)));

for (const driver of drivers) {
  describe(`fifty concurrent calls, ${driver.name}`, function () {
    this.timeout(60_000);
    let world: ApiWorld;
    let stage: Stage;
    before(async () => {
      world = await startStages(driver, { database: (log) => driver.open({ log, crowded: true }) });
    });
    after(() => world?.stop());
    beforeEach(async () => {
      stage = await createStage(world);
    });

    /** Calls that were answered by 200, by the name of an error. */
    async function tally(path: string, paramsOf: (i: number) => object): Promise<Record<string, number>> {
      const answers = await times((i) => stage.call(path, paramsOf(i)));
      const names = answers.map(({ status, body }) => (status === 200 ? 'ok' : String(body.name)));
      return Object.fromEntries(
        Object.entries(Object.groupBy(names, (name) => name)).map(([name, all]) => [name, all?.length ?? 0]),
      );
    }

    it('create one template of a name', async () => {
      expect(await tally('/templates/add', (i) => ({ name: 'Letter', code: String(i) }))).to.deep.equal({
        ok: 1,
        Invalid_Template: IN_FLIGHT - 1,
      });
      expect(await stage.ok('/templates/list')).to.have.length(1);
    });

    it('give names with the same slug a slug each, or reject them', async () => {
      const { ok = 0, ...rest } = await tally('/templates/add', (i) => ({ name: `Letter${'!'.repeat(i)}` }));
      expect(Object.keys(rest)).to.satisfy((names: string[]) => names.every((name) => name === 'Invalid_Template'));
      const slugs = (await stage.ok('/templates/list')).map(({ slug }: { slug: string }) => slug);
      expect(new Set(slugs).size).to.equal(ok);
    });

    it('publish and change a template without mixing versions', async () => {
      await stage.ok('/templates/add', { name: 'Letter', code: 'x', subject: 'x' });
      await times((i) =>
        stage.ok(i % 2 ? '/templates/publish' : '/templates/update', {
          name: 'Letter',
          code: `c${i}`,
          subject: `c${i}`,
          publish: false,
        }),
      );
      const {
        code,
        subject,
        publish_code: published,
        publish_subject: publishedSubject,
      } = await stage.ok('/templates/info', { name: 'Letter' });
      expect(subject).to.equal(code);
      expect(publishedSubject).to.equal(published);
    });

    it('create one subaccount of an id', async () => {
      const { ok = 0, ...rest } = await tally('/subaccounts/add', (i) => ({
        id: 'cust',
        name: `n${i}`,
        custom_quota: i + 1,
      }));
      expect({ ok, rest }).to.deep.equal({ ok: 1, rest: { ValidationError: IN_FLIGHT - 1 } });
      const [one, ...more] = await stage.ok('/subaccounts/list');
      expect(more).to.deep.equal([]);
      expect(one.name, 'all of one call').to.equal(`n${one.custom_quota - 1}`);
    });

    it('pause and resume a subaccount; the last call wins', async () => {
      await stage.ok('/subaccounts/add', { id: 'cust' });
      expect(await tally('/subaccounts/pause', () => ({ id: 'cust' }))).to.deep.equal({ ok: IN_FLIGHT });
      await times((i) => stage.ok(i % 2 ? '/subaccounts/pause' : '/subaccounts/resume', { id: 'cust' }));
      expect((await stage.ok('/subaccounts/info', { id: 'cust' })).status).to.be.oneOf(['active', 'paused']);
      expect(await stage.ok('/subaccounts/resume', { id: 'cust' })).to.include({ status: 'active' });
      expect(await stage.ok('/subaccounts/info', { id: 'cust' })).to.include({ status: 'active' });
    });

    it('delete a subaccount once, while others change it', async () => {
      await stage.ok('/subaccounts/add', { id: 'cust' });
      const answers = await times((i) =>
        i % 2
          ? stage.call('/subaccounts/delete', { id: 'cust' })
          : stage.call('/subaccounts/update', { id: 'cust', name: `n${i}` }),
      );
      expect(answers.filter(({ status }, i) => i % 2 === 1 && status === 200)).to.have.length(1);
      for (const { status, body } of answers) if (status !== 200) expect(body.name).to.equal('Unknown_Subaccount');
      expect(await stage.ok('/subaccounts/list')).to.deep.equal([]);
    });

    it('create one pool, which every call gets', async () => {
      const made = await times(() => stage.ok('/ips/create-pool', { pool: 'Bulk' }));
      expect(new Set(made.map(({ name, created_at: at }) => `${name} ${at}`)).size).to.equal(1);
      expect(
        (await stage.ok('/ips/list-pools')).filter(({ name }: { name: string }) => name === 'Bulk'),
      ).to.have.length(1);
    });

    it('never remove the last address from the default pool', async () => {
      const ips: string[] = [];
      for (let i = 0; i < 5; i++) ips.push(await stage.ip());
      const { ok = 0, ...rest } = await tally('/ips/set-pool', (i) => ({
        ip: ips[i % 5],
        pool: `Pool ${i % 5}`,
        create_pool: true,
      }));
      expect(Object.keys(rest)).to.deep.equal(['Invalid_EmptyDefaultPool']);
      const pools = (await stage.ok('/ips/list')).map(({ pool }: { pool: string }) => pool);
      expect(
        pools.filter((pool: string) => pool === 'Main Pool'),
        `${ok} calls came through`,
      ).to.have.length(1);
    });

    it('delete a pool only if it is empty', async () => {
      const [ip] = [await stage.ip(), await stage.ip()];
      await stage.ok('/ips/create-pool', { pool: 'Bulk' });
      const answers = await times((i) =>
        i % 2 ? stage.call('/ips/delete-pool', { pool: 'Bulk' }) : stage.call('/ips/set-pool', { ip, pool: 'Bulk' }),
      );
      for (const { status, body } of answers)
        if (status !== 200) expect(body.name).to.be.oneOf(['Unknown_Pool', 'Invalid_DeleteNonEmptyPool']);
      const { pool } = await stage.ok('/ips/info', { ip });
      const names = (await stage.ok('/ips/list-pools')).map(({ name }: { name: string }) => name);
      expect(names, 'the pool that the address is in').to.include(pool);
    });

    it('create one request for an address', async () => {
      await stage.sent();
      expect(await tally('/ips/provision', () => ({}))).to.deep.equal({ ok: 1, IP_ProvisionLimit: IN_FLIGHT - 1 });
      expect(await stage.store.ipRequests.many({ id: stage.account })).to.have.length(1);
    });

    it('start one warmup, which all see', async () => {
      const ip = await stage.ip();
      const seen = await times(() => stage.ok('/ips/start-warmup', { ip }));
      expect(new Set(seen.map(({ warmup }) => JSON.stringify(warmup))).size).to.equal(1);
    });

    it('never leave an address on the whitelist and the rejection list', async () => {
      const email = 'ann@example.com';
      const answers = await times((i) => stage.call(i % 2 ? '/whitelists/add' : '/rejects/add', { email }));
      expect(answers.every(({ status }) => status === 200)).to.equal(true);
      expect(await stage.ok('/whitelists/list')).to.have.length(1);
      expect(await stage.ok('/rejects/list', { include_expired: true })).to.deep.equal([]);
    });

    it('create one entry of an address on a list, and remove it once', async () => {
      const email = 'ann@example.com';
      await times(() => stage.ok('/rejects/add', { email }));
      expect(await stage.ok('/rejects/list')).to.have.length(1);
      expect(await tally('/rejects/delete', () => ({ email }))).to.deep.equal({ ok: 1, Invalid_Reject: IN_FLIGHT - 1 });
      await times(() => stage.ok('/whitelists/add', { email }));
      expect(await stage.ok('/whitelists/list')).to.have.length(1);
      expect(
        (await times(() => stage.ok('/whitelists/delete', { email }))).filter(({ deleted }) => deleted),
      ).to.have.length(1);
      expect(await stage.ok('/whitelists/list')).to.deep.equal([]);
    });

    it('never list an address that bounces while it is whitelisted', async () => {
      const email = 'ann@example.com';
      await times((i) =>
        i % 5 === 0 ? stage.ok('/whitelists/add', { email }) : stage.sent({ email }, ['hard_bounce']),
      );
      expect(await stage.ok('/rejects/list', { include_expired: true })).to.deep.equal([]);
    });

    it('count every event once in every total', async () => {
      const recorder = createRecorder({ ...world, outbox: { publish: () => Promise.resolve() } });
      const at = new Date(world.clock.now());
      const message = {
        id: `c0ffee${'0'.repeat(26 - stage.account.slice(-4).length)}${stage.account.slice(-4)}`,
        account: stage.account,
        createdAt: at,
      };
      await stage.ok('/subaccounts/add', { id: 'cust' });
      await recorder.begin({
        ...message,
        sender: 'news@example.com',
        email: 'bob@example.net',
        subject: 'Hi',
        tags: ['welcome'],
        template: null,
        subaccount: 'cust',
        metadata: {},
        apiKey: null,
      });
      // Each event twice, as a sender that lost an answer would say it.
      const record = (id: string, kind: 'send' | 'open' | 'click') =>
        recorder.record({ id: `${message.id} ${id}`, account: stage.account, message: message.id, kind, at });
      await Promise.all([
        record('send', 'send'),
        record('send', 'send'),
        ...Array.from({ length: IN_FLIGHT }, (_, i) => record(`open ${i % 25}`, 'open')),
        ...Array.from({ length: IN_FLIGHT }, (_, i) => record(`click ${i % 25}`, 'click')),
      ]);
      const numbers = { sent: 1, opens: 25, unique_opens: 1, clicks: 25, unique_clicks: 1 };
      expect((await stage.ok('/senders/list'))[0]).to.include(numbers);
      expect((await stage.ok('/tags/list'))[0]).to.include(numbers);
      expect((await stage.ok('/tags/time-series', { tag: 'welcome' }))[0]).to.include(numbers);
      expect(await stage.ok('/subaccounts/info', { id: 'cust' }))
        .to.include({ sent_total: 1, sent_hourly: 1 })
        .and.to.have.property('last_30_days')
        .that.includes(numbers);
    });

    it('give every webhook its own id', async () => {
      const made = await times((i) => stage.ok('/webhooks/add', { url: `https://app.example.com/${i}` }));
      expect(new Set(made.map(({ id }) => id)).size).to.equal(IN_FLIGHT);
      expect(await stage.ok('/webhooks/list')).to.have.length(IN_FLIGHT);
    });

    it('give every export its own id', async () => {
      const made = await times(() => stage.ok('/exports/rejects'));
      expect(new Set(made.map(({ id }) => id)).size).to.equal(IN_FLIGHT);
    });

    it('add one sender domain', async () => {
      await times(() => stage.ok('/senders/add-domain', { domain: 'example.com' }));
      expect(await stage.ok('/senders/domains')).to.have.length(1);
    });
  });
}
