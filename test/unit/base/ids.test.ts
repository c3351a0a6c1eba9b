import { expect } from 'chai';
import { createIds, deliveryId, sharedPostId } from '../../../src/base/ids.ts';
import { createTestClock } from '../../support/clock.ts';

describe('ids', () => {
  it('sort message ids by time', async () => {
    const clock = createTestClock();
    const ids = createIds(clock);
    const made: string[] = [];
    for (let i = 0; i < 50; i++) {
      made.push(ids.message());
      await clock.advance(1);
    }
    expect(made.toSorted()).to.deep.equal(made);
    expect(new Set(made.map((id) => id.length))).to.deep.equal(new Set([26]));
  });

  it('derive the delivery id from message, route and recipient', () => {
    const id = deliveryId('m1', '1.2', 'a@example.com');
    expect(deliveryId('m1', '1.2', 'a@example.com')).to.equal(id);
    expect(id).to.match(/^m1-[\w-]{12}$/);
    const others = [
      deliveryId('m2', '1.2', 'a@example.com'),
      deliveryId('m1', '1.3', 'a@example.com'),
      deliveryId('m1', '1.2', 'b@example.com'),
    ];
    expect(new Set([id, ...others]).size).to.equal(4);
  });

  it('derive the id of a POST from its deliveries and their order and number', () => {
    const id = sharedPostId(['m1-a', 'm2-b']);
    expect(sharedPostId(['m1-a', 'm2-b'])).to.equal(id);
    expect(id).to.match(/^batch-2-[\w-]{20}$/);
    const others = [['m2-b', 'm1-a'], ['m1-a'], ['m1-a', 'm2-b', 'm3-c']].map(sharedPostId);
    expect(new Set([id, ...others]).size).to.equal(4);
  });

  it('are 22 URL-safe characters for keys and 32 for signing keys', () => {
    const ids = createIds(createTestClock());
    expect(ids.key()).to.match(/^[\w-]{22}$/);
    expect(ids.signingKey()).to.match(/^[\w-]{32}$/);
  });

  it('never begin a key with a dash, which a command line would take for an option', () => {
    const ids = createIds(createTestClock());
    const keys = Array.from({ length: 5000 }, () => ids.key());
    expect(keys.filter((key) => key.startsWith('-'))).to.deep.equal([]);
    expect(new Set(keys).size).to.equal(keys.length);
  });

  it('spread jitter from zero to below one', () => {
    const ids = createIds(createTestClock());
    const values = Array.from({ length: 200 }, () => ids.jitter());
    expect(values.every((value) => value >= 0 && value < 1)).to.equal(true);
    expect(Math.max(...values) - Math.min(...values)).to.be.greaterThan(0.5);
  });
});
