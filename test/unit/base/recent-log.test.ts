import { expect } from 'chai';
import { createRecentLog } from '../../../src/base/recent-log.ts';
import { createTestClock } from '../../support/clock.ts';

const NOON = Date.UTC(2026, 0, 5, 12);

describe('the last lines of the log', () => {
  it('are 500, newest first, and never more than 100 of one event', async () => {
    const clock = createTestClock();
    const memory = createRecentLog(clock);
    memory.keep('error', 'spool.fault', { reason: 'first' });
    for (let n = 0; n < 10_000; n++) memory.keep('warn', 'delivery.deferred', { n });
    expect(memory.lines()).to.have.length(101);
    expect(memory.lines().at(-1)?.fields).to.deep.equal({ reason: 'first' });
    expect(memory.lines()[0]?.fields).to.deep.equal({ n: 9999 });
    for (const event of ['store.fault', 'dns.fault', 'api.fault', 'task.fault', 'smtp.fault'] as const)
      for (let n = 0; n < 100; n++) memory.keep('error', event, { n });
    expect(memory.lines()).to.have.length(500);
    expect(memory.lines().some(({ event }) => event === 'spool.fault')).to.equal(false);
  });

  it('are counted since the start, the latest event first', async () => {
    const clock = createTestClock();
    const memory = createRecentLog(clock);
    for (let n = 0; n < 1000; n++) memory.keep('warn', 'delivery.deferred', {});
    await clock.advance(1000);
    memory.keep('error', 'spool.fault', {});
    expect(memory.counts()).to.deep.equal([
      { event: 'spool.fault', level: 'error', count: 1, lastAt: NOON + 1000 },
      { event: 'delivery.deferred', level: 'warn', count: 1000, lastAt: NOON },
    ]);
  });

  it('escape fields as the log does: no API key, no control character, truncated, errors with their stack', () => {
    const memory = createRecentLog(createTestClock());
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    const error = new Error('torn\nopen');
    memory.keep('error', 'api.fault', {
      key: 'secret',
      text: 'a\u001b[31m',
      long: ['x'.repeat(9000)],
      circle,
      error,
      none: undefined,
    });
    const fields: any = memory.lines()[0]?.fields;
    expect(Object.keys(fields)).to.have.members(['text', 'long', 'circle', 'error']);
    expect([fields.text, fields.circle]).to.deep.equal(['a\\u001b[31m', '[not serializable]']);
    expect(fields.long.length).to.be.below(2100);
    expect(fields.error.message).to.equal('torn\\u000aopen');
    expect(fields.error.stack).to.be.an('array');
  });
});
