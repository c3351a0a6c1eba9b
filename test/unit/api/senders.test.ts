import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, HOUR_MS, OTHER_ACCOUNT, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';

const NOW = Date.UTC(2026, 0, 5, 12);
const hoursAgo = (hours: number) => new Date(NOW - hours * HOUR_MS);

describe('senders', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const call = async (path: string, params: object = {}) => (await world.call(path, params)).body;
  const put = (key: string, counts: object, at: Date, account = ACCOUNT) =>
    putCounts(world.store, account, 'sender', key, counts, at);

  for (const path of ['/senders/list', '/users/senders']) {
    it(`are all listed by address, by ${path}`, async () => {
      const addresses = Array.from({ length: 1005 }, (_, n) => `s${String(n).padStart(4, '0')}@example.com`);
      await Promise.all(
        addresses.flatMap((address) => [
          put(address, { sent: 1, uniqueOpens: 2 }, hoursAgo(2)),
          put(address, { sent: 1 }, hoursAgo(2), OTHER_ACCOUNT),
        ]),
      );
      const first = await call(path);
      expect(first.map((one: any) => one.address)).to.deep.equal(['news@example.com', ...addresses]);
      expect(first[1]).to.deep.equal({
        address: 's0000@example.com',
        created_at: '2026-01-05 10:00:00',
        sent: 1,
        hard_bounces: 0,
        soft_bounces: 0,
        rejects: 0,
        complaints: 0,
        unsubs: 0,
        opens: 0,
        unique_opens: 2,
        clicks: 0,
        unique_clicks: 0,
      });
      expect((await call(path, { after: 'S0998@EXAMPLE.com' })).map((one: any) => one.address)).to.deep.equal(
        addresses.slice(999),
      );
    });
  }

  it('show totals and five windows, the address in any case', async () => {
    for (const [hours, sent] of [
      [12, 1],
      [13, 2],
      [24 * 30 + 1, 4],
      [24 * 90, 8],
      [24 * 400, 16],
    ] as const)
      await put('a@example.com', { sent, clicks: 1 }, hoursAgo(hours));
    const { stats, ...totals } = await call('/senders/info', { address: ' A@Example.com ' });
    expect(totals).to.deep.equal({
      address: 'a@example.com',
      created_at: '2026-01-05 00:00:00',
      sent: 31,
      hard_bounces: 0,
      soft_bounces: 0,
      rejects: 0,
      complaints: 0,
      unsubs: 0,
      opens: 0,
      clicks: 5,
    });
    expect(Object.entries(stats).map(([name, block]: any) => [name, block.sent])).to.deep.equal([
      ['today', 1],
      ['last_7_days', 3],
      ['last_30_days', 3],
      ['last_60_days', 7],
      ['last_90_days', 15],
    ]);
    expect(stats.today).to.have.all.keys(
      'sent',
      'hard_bounces',
      'soft_bounces',
      'rejects',
      'complaints',
      'unsubs',
      'opens',
      'unique_opens',
      'clicks',
      'unique_clicks',
    );
  });

  it('have a time series without unsubs, and without hours of no activity', async () => {
    await put('a@example.com', { sent: 1, unsubs: 9 }, hoursAgo(24 * 30 + 1));
    await put('a@example.com', { sent: 2, unsubs: 9 }, hoursAgo(2));
    expect(await call('/senders/time-series', { address: 'a@example.com' })).to.deep.equal([
      {
        time: '2026-01-05 10:00:00',
        sent: 2,
        hard_bounces: 0,
        soft_bounces: 0,
        rejects: 0,
        complaints: 0,
        opens: 0,
        unique_opens: 0,
        clicks: 0,
        unique_clicks: 0,
      },
    ]);
    await put('old@example.com', { sent: 1 }, hoursAgo(24 * 60));
    expect(await call('/senders/time-series', { address: 'old@example.com' })).to.deep.equal([]);
  });

  it('must be addresses that mail was sent from', async () => {
    for (const path of ['/senders/info', '/senders/time-series']) {
      expect(await call(path, { address: 'Nobody@example.com' })).to.deep.equal({
        status: 'error',
        code: 2,
        name: 'Unknown_Sender',
        message: 'No such sender "Nobody@example.com"',
      });
      for (const address of ['nobody', '@', 'a@', 'a b@example.com', 'x'.repeat(1001)]) {
        expect(await call(path, { address }), address).to.include({ name: 'ValidationError', code: -2 });
      }
      expect((await call(path, { address: 'nobody' })).message).to.equal(
        'Validation error: {"address":"Not a valid email address"}',
      );
    }
  });
});
