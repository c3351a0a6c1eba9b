import { expect } from 'chai';
import { counterId, startOf } from '../../../src/store/rows/counters.ts';

describe('spans of time', () => {
  const starts = (time: string) =>
    (['hour', 'week', 'month', 'total'] as const).map((span) => startOf(span, new Date(time)).toISOString());

  it('begin on the hour, on Monday, and on the first, all in UTC', () => {
    expect(starts('2026-01-07T12:34:56.789Z')).to.deep.equal([
      '2026-01-07T12:00:00.000Z',
      '2026-01-05T00:00:00.000Z',
      '2026-01-01T00:00:00.000Z',
      '1970-01-01T00:00:00.000Z',
    ]);
  });

  it('end where the next begins', () => {
    expect(startOf('week', new Date('2026-01-04T23:59:59.999Z')).toISOString()).to.equal('2025-12-29T00:00:00.000Z');
    expect(startOf('week', new Date('2026-01-05T00:00:00.000Z')).toISOString()).to.equal('2026-01-05T00:00:00.000Z');
    expect(startOf('month', new Date('2024-02-29T23:59:59.999Z')).toISOString()).to.equal('2024-02-01T00:00:00.000Z');
    expect(startOf('week', new Date('1969-12-31T00:00:00Z')).toISOString(), 'before 1970 too').to.equal(
      '1969-12-29T00:00:00.000Z',
    );
  });

  it('give rows ids that sort by key', () => {
    const id = (key: string) => counterId('account', 'tag', 'total', new Date(0), key);
    expect(['b', 'a b', 'a', 'é', 'B'].toSorted((x, y) => (id(x) < id(y) ? -1 : 1))).to.deep.equal([
      'B',
      'a',
      'a b',
      'b',
      'é',
    ]);
    expect(
      new Set(
        (['hour', 'week', 'month', 'total'] as const).map((span) =>
          counterId('a', 'tag', span, startOf(span, new Date('2026-06-01T00:00:00Z')), 'x'),
        ),
      ).size,
      'a Monday the first',
    ).to.equal(4);
  });
});
