import { expect } from 'chai';
import { isWarming, warmupEnd, warmupShare } from '../../../src/sending/transport/sources.ts';

const START = new Date('2026-01-05T12:00:00Z');
const DAY_MS = 86_400_000;
const onDay = (days: number, daily = 500_000) => warmupShare(START, new Date(START.getTime() + days * DAY_MS), daily);

describe('a warmup', () => {
  it('ends exactly 30 days after its start, across months', () => {
    expect(warmupEnd(new Date('2013-03-01T12:00:01Z'))).to.deep.equal(new Date('2013-03-31T12:00:01Z'));
    expect(warmupEnd(new Date('2024-02-15T00:00:00Z'))).to.deep.equal(new Date('2024-03-16T00:00:00Z'));
  });

  it('allows useful amounts from the first day on: all mail of a small account, otherwise some two hundred messages', () => {
    expect(onDay(0, 0)).to.equal(1);
    expect(onDay(0, 200)).to.equal(1);
    for (const daily of [1000, 5000, 500_000]) expect(daily * onDay(0, daily)).to.be.closeTo(200, 1e-6);
    expect(onDay(0.99) * 500_000, 'a day is a day').to.be.closeTo(200, 1e-6);
  });

  it('doubles every day, and allows half a million a day per address in less than two weeks', () => {
    for (let day = 0; day < 11; day++) expect(onDay(day + 1)).to.be.closeTo(2 * onDay(day), 1e-9);
    expect(onDay(11)).to.be.below(1);
    expect(onDay(12)).to.equal(1);
    expect(onDay(29, 10_000_000)).to.equal(1);
  });

  it('stays within its bounds when the clock is before its start or after its end', () => {
    expect(onDay(-400) * 500_000).to.be.closeTo(200, 1e-6);
    expect(onDay(31)).to.equal(1);
    expect(onDay(100_000)).to.equal(1);
  });

  it('does not limit an address that is not warming up', () => {
    expect(warmupShare(null, START, 500_000)).to.equal(1);
  });

  it('ends to the millisecond', () => {
    const end = warmupEnd(START);
    expect(isWarming(end, new Date(end.getTime() - 1))).to.equal(true);
    expect(isWarming(end, end)).to.equal(false);
    expect(isWarming(null, START)).to.equal(false);
    expect(isWarming(undefined, START)).to.equal(false);
  });
});
