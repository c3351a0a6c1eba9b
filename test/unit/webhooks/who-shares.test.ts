import { expect } from 'chai';
import type { Waiting } from '../../../src/queue/schedule/waiting.ts';
import { createSharedPosts } from '../../../src/webhooks/shared-posts.ts';
import { createTestClock } from '../../support/clock.ts';
import { aDelivery, answered, refused, timedOut } from '../../support/delivery.ts';

const KIB = 1024;

const waiting = (more: Partial<Waiting> = {}, delivery: Partial<Waiting['delivery']> = {}): Waiting => ({
  delivery: aDelivery('https://hooks.example/a', { size: KIB, ...delivery }),
  attempts: 0,
  budgetFrom: 0,
  parked: false,
  alone: false,
  scheduled: false,
  timed: false,
  due: 0,
  failedAt: Number.POSITIVE_INFINITY,
  ...more,
});

describe('the companions of a shared POST', () => {
  const open = (events: number, batchBytes = 1024 * KIB) => {
    const clock = createTestClock();
    return { clock, shared: createSharedPosts({ batchBytes }, { batchEvents: () => events, clock }) };
  };
  const takes = (first: Waiting, next: Waiting) => open(10).shared.shareRuleOf(first)?.accepts(next);

  /** What goes alone, and why. */
  const alone: Readonly<Record<string, Waiting>> = {
    'has failed before': waiting({ attempts: 1 }),
    'is parked': waiting({ parked: true }),
    'could not be made ready with others': waiting({ alone: true }),
    'is a batch of events': waiting({}, { kind: 'events', batch: { webhook: 'w', events: 3 } }),
    'is of a size that is not known': waiting({}, { size: undefined }),
    'is large': waiting({}, { size: 300 * KIB }),
  };
  for (const [why, one] of Object.entries(alone)) {
    it(`exclude a delivery that ${why}`, () => {
      expect(open(10).shared.shareRuleOf(one)).to.equal(undefined);
      expect(takes(waiting(), one)).to.equal(false);
    });
  }

  it('are new mail of one route', () => {
    expect(takes(waiting(), waiting())).to.equal(true);
    expect(takes(waiting(), waiting({}, { routeId: '1.2' }))).to.equal(false);
  });

  it('are as many as the route allows, the first one included', () => {
    expect(open(10).shared.shareRuleOf(waiting())?.most).to.equal(9);
    expect(open(1).shared.shareRuleOf(waiting())).to.equal(undefined);
  });

  it('are limited by size: a byte of a message counts as four of JSON', () => {
    const company = open(10, 16 * KIB).shared.shareRuleOf(waiting());
    expect(company?.accepts(waiting({}, { size: 2 * KIB }))).to.equal(true);
    expect(company?.accepts(waiting({}, { size: 2 * KIB }))).to.equal(false);
    expect(company?.accepts(waiting({}, { size: KIB }))).to.equal(true);
    expect(company?.accepts(waiting({}, { size: 1 }))).to.equal(false);
  });

  it('are none for a minute after a rejected shared POST', async () => {
    for (const result of [answered(500), answered(413), timedOut]) {
      const { clock, shared } = open(10);
      shared.ended('1.1', result, false);
      expect(shared.shareRuleOf(waiting())).to.equal(undefined);
      expect(shared.shareRuleOf(waiting({}, { routeId: '1.2' }))).to.not.equal(undefined);
      await clock.advance(60_000);
      expect(shared.shareRuleOf(waiting())).to.not.equal(undefined);
    }
  });

  it('are allowed again after a successful one, and after one without companions', () => {
    for (const [result, delivered] of [
      [answered(200), true],
      [refused, false],
    ] as const) {
      const { shared } = open(10);
      shared.ended('1.1', result, delivered);
      expect(shared.shareRuleOf(waiting())).to.not.equal(undefined);
    }
  });
});
