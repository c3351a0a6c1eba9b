import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, HOUR_MS, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';

const NOW = Date.UTC(2026, 0, 5, 12);

describe('the account', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const info = async () => (await world.call('/users/info')).body;

  it('shows windows, and older activity in the total of all time', async () => {
    for (const [days, sent] of [
      [20, 1],
      [50, 2],
      [80, 4],
      [200, 8],
    ] as const)
      await putCounts(world.store, ACCOUNT, 'account', ACCOUNT, { sent }, new Date(NOW - days * 24 * HOUR_MS));
    const { stats } = await info();
    expect(Object.entries(stats).map(([name, block]: any) => [name, block.sent])).to.deep.equal([
      ['today', 40],
      ['last_7_days', 40],
      ['last_30_days', 41],
      ['last_60_days', 43],
      ['last_90_days', 47],
      ['all_time', 55],
    ]);
  });

  it('has a reputation of this month and the last, and a quota by it', async () => {
    expect(await info()).to.include({ reputation: 58, hourly_quota: 350 });
    await putCounts(
      world.store,
      ACCOUNT,
      'account',
      ACCOUNT,
      { sent: 10_000, complaints: 100 },
      new Date('2025-11-30T23:00:00Z'),
    );
    expect(await info(), 'before that').to.include({ reputation: 58, hourly_quota: 350 });
    await putCounts(
      world.store,
      ACCOUNT,
      'account',
      ACCOUNT,
      { sent: 10_000, complaints: 10 },
      new Date('2025-12-01T00:00:00Z'),
    );
    expect(await info()).to.include({ reputation: 89, hourly_quota: 8745 });
  });

  it('explains both in the reference', async () => {
    const page = await (await fetch(`${world.base}/docs`)).text();
    expect(page)
      .to.include('Reputation is computed from this month and the previous one')
      .and.include('hourly_quota = round(');
  });
});
