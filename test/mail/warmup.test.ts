import { expect } from 'chai';
import { isWarming, warmupEnd, warmupShare } from '../../src/mail/warmup.ts';

const START = new Date('2026-01-05T12:00:00Z');
const DAY_MS = 86_400_000;
const onDay = (days: number) => warmupShare(START, new Date(START.getTime() + days * DAY_MS));

describe('a warmup', () => {
  it('ends exactly 30 days after its start, whatever months lie between', () => {
    expect(warmupEnd(new Date('2013-03-01T12:00:01Z'))).to.deep.equal(new Date('2013-03-31T12:00:01Z'));
    expect(warmupEnd(new Date('2024-02-15T00:00:00Z'))).to.deep.equal(new Date('2024-03-16T00:00:00Z'));
  });

  it('begins with a thousandth of the mail and ends with all of it', () => {
    expect(onDay(0)).to.be.closeTo(0.001, 1e-12);
    expect(onDay(15)).to.be.closeTo(Math.sqrt(0.001), 1e-12);
    expect(onDay(30)).to.equal(1);
  });

  it('grows by the same factor every day, and never doubles within one', () => {
    const factors = Array.from({ length: 30 }, (_, day) => onDay(day + 1) / onDay(day));
    for (const factor of factors) expect(factor).to.be.closeTo(1000 ** (1 / 30), 1e-9).and.to.be.below(2);
  });

  it('stays within its bounds when the clock is before its start or after its end', () => {
    expect(onDay(-400)).to.be.closeTo(0.001, 1e-12);
    expect(onDay(31)).to.equal(1);
    expect(onDay(100_000)).to.equal(1);
  });

  it('leaves all mail to an address that is not warming up', () => {
    expect(warmupShare(null, START)).to.equal(1);
  });

  it('is over at its end, to the millisecond', () => {
    const end = warmupEnd(START);
    expect(isWarming(end, new Date(end.getTime() - 1))).to.equal(true);
    expect(isWarming(end, end)).to.equal(false);
    expect(isWarming(null, START)).to.equal(false);
    expect(isWarming(undefined, START)).to.equal(false);
  });
});
