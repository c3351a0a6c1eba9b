import { expect } from 'chai';
import { METRICS } from '../../../src/base/metric-list.ts';
import { DELIVERY_STATES, STATES } from '../../../src/queue/states.ts';

// Everything else derives from the table, or the compiler names it. These cannot: they are below it, or on disk.

describe('the states of deliveries', () => {
  it('are named by the metric that counts them', () => {
    expect(METRICS.postern_spool_deliveries.labels.state).to.equal(DELIVERY_STATES.join(', '));
  });

  it('keep their codes in the queue file', () => {
    expect(DELIVERY_STATES.slice(0, 5)).to.deep.equal(['waiting', 'delivered', 'dead', 'dropped', 'held']);
  });

  it('each have a result in the history once they have ended, and a retention time', () => {
    for (const state of DELIVERY_STATES) {
      const { ended, story, kept } = STATES[state];
      expect([story !== null, kept !== null], state).to.deep.equal([ended, ended]);
    }
  });
});
