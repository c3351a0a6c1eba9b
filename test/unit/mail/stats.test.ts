import { expect } from 'chai';
import { addUp, addUpMonths, hourlyQuota, reputationOf, sinceHours, windowsOf } from '../../../src/mail/stats.ts';

import { reputationMonths } from '../../../src/store/rows/counters.ts';

const NOTHING = {
  sent: 0,
  hardBounces: 0,
  softBounces: 0,
  rejects: 0,
  complaints: 0,
  unsubs: 0,
  opens: 0,
  uniqueOpens: 0,
  clicks: 0,
  uniqueClicks: 0,
};
const hour = (time: string, sent: number) => ({ ...NOTHING, sent, start: new Date(time) });

describe('statistics windows', () => {
  const now = new Date('2026-03-31T12:30:00Z');

  it('sum up hours: today since midnight UTC, the others by days of 24 hours', () => {
    const windows = windowsOf(
      [
        hour('2026-03-31T12:00:00Z', 1),
        hour('2026-03-31T00:00:00Z', 2),
        hour('2026-03-30T23:00:00Z', 4),
        hour('2026-03-24T12:00:00Z', 8),
        hour('2026-03-24T11:00:00Z', 16),
        hour('2026-03-02T00:00:00Z', 32),
        hour('2026-02-01T00:00:00Z', 64),
        hour('2026-01-01T00:00:00Z', 128),
        hour('2020-01-01T00:00:00Z', 256),
      ],
      now,
    );
    expect(Object.fromEntries(Object.entries(windows).map(([name, counts]) => [name, counts.sent]))).to.deep.equal({
      today: 3,
      last_7_days: 15,
      last_30_days: 63,
      last_60_days: 127,
      last_90_days: 255,
    });
  });

  it('begin with their first hour', () => {
    expect(sinceHours(now, 7).toISOString()).to.equal('2026-03-24T11:30:00.000Z');
    expect(
      sinceHours(new Date('2026-03-31T12:00:00Z'), 7).toISOString(),
      'on the hour there is nothing of the hour before',
    ).to.equal('2026-03-24T11:00:00.000Z');
  });

  it('are zeros without counts', () => {
    expect(windowsOf([], now).last_90_days).to.deep.equal(NOTHING);
  });

  it('add up every counter', () => {
    const one = {
      sent: 1,
      hardBounces: 2,
      softBounces: 3,
      rejects: 4,
      complaints: 5,
      unsubs: 6,
      opens: 7,
      uniqueOpens: 8,
      clicks: 9,
      uniqueClicks: 10,
    };
    expect(addUp([one, one])).to.deep.equal({
      sent: 2,
      hardBounces: 4,
      softBounces: 6,
      rejects: 8,
      complaints: 10,
      unsubs: 12,
      opens: 14,
      uniqueOpens: 16,
      clicks: 18,
      uniqueClicks: 20,
    });
  });
});

describe('reputation', () => {
  it('begins at 50 with 250 messages an hour', () => {
    expect(reputationOf(NOTHING)).to.equal(50);
    expect(hourlyQuota(50, NOTHING)).to.equal(250);
  });

  for (const [what, counts, expected] of [
    ['grows with good mail', { sent: 10_000 }, 99],
    ['falls with unknown users', { sent: 10_000, hardBounces: 500 }, 50],
    ['falls with complaints, sooner', { sent: 10_000, complaints: 50 }, 50],
    ['never falls below 0', { sent: 10_000, complaints: 10_000 }, 1],
    ['falls a little with entries that were taken off the rejection list', { sent: 10_000, resets: 100 }, 94],
    ['falls with such an entry where nothing good is left too', { sent: 1, hardBounces: 1, resets: 1 }, 47],
    ['ends at 0 with very many of them', { sent: 1, resets: 100 }, 0],
  ] as const) {
    it(what, () => expect(reputationOf({ ...NOTHING, ...counts })).to.equal(expected));
  }

  it('is that of the current month and the last', () => {
    expect(reputationMonths(new Date('2026-03-01T00:00:00Z')).map((month) => month.toISOString())).to.deep.equal([
      '2026-03-01T00:00:00.000Z',
      '2026-02-01T00:00:00.000Z',
    ]);
    expect(reputationMonths(new Date('2026-01-31T23:59:59.999Z')).map((month) => month.toISOString())).to.deep.equal([
      '2026-01-01T00:00:00.000Z',
      '2025-12-01T00:00:00.000Z',
    ]);
    expect(
      addUpMonths([
        { ...NOTHING, sent: 1 },
        { ...NOTHING, sent: 2, resets: 3 },
      ]),
    ).to.deep.equal({ ...NOTHING, sent: 3, resets: 3 });
    expect(addUpMonths([])).to.deep.equal({ ...NOTHING, resets: 0 });
  });

  it('gives a quota between 25 and a million', () => {
    expect(hourlyQuota(0, NOTHING)).to.equal(25);
    expect(hourlyQuota(100, { ...NOTHING, sent: 1e9 })).to.equal(1_000_000);
    expect(hourlyQuota(100, { ...NOTHING, sent: 10_000 })).to.equal(11_000);
  });
});
