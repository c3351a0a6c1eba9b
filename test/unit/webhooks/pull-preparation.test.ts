import { expect } from 'chai';
import type { QueuedDelivery } from '../../../src/queue/delivery.ts';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import type { Preparation } from '../../../src/webhooks/preparation.ts';
import { createPullPreparation, type PreparedDelivery } from '../../../src/webhooks/pull-preparation.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { aMail } from '../../support/mime.ts';

const delivery = (id: string, more: Partial<QueuedDelivery> = {}): QueuedDelivery => ({
  ...{
    id,
    kind: 'inbound',
    messageId: id,
    account: 'acc',
    url: 'pull:',
    routeId: '1.1',
    pattern: '*',
    recipient: 'a@in.test',
  },
  ...{ size: 10, state: 'waiting', createdAt: 0, dueAt: 0, attempts: 0, endedAt: null, budgetFrom: 0, parked: false },
  ...{ lastStatus: null, lastError: null },
  ...more,
});

/** A pull preparation whose preparation is done by hand. */
function world() {
  const clock = createTestClock();
  const log = createTestLog();
  /** What ends the preparation of a delivery, by its id. */
  const slow = new Map<string, () => void>();
  const begun: string[] = [];
  const discarded: string[] = [];
  const settled: string[] = [];
  const preparation: Preparation = {
    async find(waiting) {
      const { id } = waiting.delivery;
      begun.push(id);
      if (id.startsWith('late')) return { none: 'later', at: clock.now() + 700 };
      if (id.startsWith('gone')) return { none: 'missing' };
      if (id.startsWith('fault')) throw new Error('the disk failed');
      if (id.startsWith('slow')) await new Promise<void>((resolve) => slow.set(id, resolve));
      return aMail(new Uint8Array(), { delivery: waiting.delivery });
    },
    render: async ([[{ delivery: of }]]) => ({
      id: of.id,
      body: { kind: 'memory', bytes: new Uint8Array(of.size ?? 0) },
      headers: {},
      found: [],
      linked: 0,
    }),
    renderForTap: () => Promise.reject(new Error('unused')),
    async discard({ id }) {
      discarded.push(id);
    },
    newVerdicts: () => undefined,
    sendReport: () => Promise.reject(new Error('unused')),
  };
  const spool = {
    keepVerdicts: async () => {},
    settle: async ({ deliveryId }: { deliveryId: string }) => {
      settled.push(deliveryId);
      return false;
    },
  };
  const pulls = createPullPreparation({
    spool,
    preparation,
    destinations: { target: () => PLAIN_TARGET },
    stopping: () => false,
    clock,
    log,
  });
  return { clock, log, pulls, slow, begun, discarded, settled };
}

const LIMITS = { most: 10, bytes: 1000 };
const idsOf = (ready: readonly PreparedDelivery[]) => ready.map(({ delivery: { id } }) => id);

describe('the prepared posts of requested deliveries', () => {
  it('are returned in order, up to the limits, but at least one', async () => {
    const { pulls, begun, discarded } = world();
    const all = ['a', 'b', 'c'].map((id) => delivery(id));
    expect(idsOf((await pulls.ready(all, { ...LIMITS, most: 2 })).ready)).to.deep.equal(['a', 'b']);
    expect(begun, 'no more than are wanted').to.deep.equal(['a', 'b']);
    expect(pulls.taken({ account: 'acc', url: 'pull:' }), 'promised').to.deep.equal(['a', 'b']);
    expect(idsOf((await pulls.ready(all, LIMITS)).ready), 'what nobody else gets').to.deep.equal(['c']);
    pulls.release(all.map((one) => ({ delivery: one }) as any));
    expect(pulls.taken({ account: 'acc', url: 'pull:' })).to.deep.equal([]);
    const large = ['d', 'e'].map((id) => delivery(id, { size: 2000 }));
    expect(idsOf((await pulls.ready(large, LIMITS)).ready)).to.deep.equal(['d']);
    // Messages may be small and their posts large.
    const grown = [delivery('f', { size: 400 }), delivery('g', { size: 90 })];
    expect(idsOf((await pulls.ready(grown, { most: 10, bytes: 420 })).ready)).to.deep.equal(['f']);
    expect(discarded).to.deep.equal([]);
  });

  it('do not wait for a slow one, which is ready for the next request', async () => {
    const { clock, pulls, slow, begun, discarded } = world();
    const all = [delivery('slow'), delivery('a')];
    const first = pulls.ready(all, { ...LIMITS, most: 2 });
    await clock.advance(1000);
    const { ready, later } = await first;
    expect(idsOf(ready)).to.deep.equal(['a']);
    expect(later).to.equal(clock.now() + 1000);
    const second = pulls.ready([delivery('slow'), delivery('b')], { ...LIMITS, most: 1 });
    await clock.advance(10);
    slow.get('slow')?.();
    expect(idsOf((await second).ready), 'the oldest first').to.deep.equal(['slow']);
    expect(begun, 'it was prepared once').to.deep.equal(['slow', 'a', 'b']);
    expect(discarded, 'one more than was wanted').to.deep.equal(['b']);
  });

  it('are discarded if they are ready after all requests have ended', async () => {
    const { clock, pulls, slow, discarded } = world();
    const asked = pulls.ready([delivery('slow'), delivery('a')], LIMITS);
    await clock.advance(1000);
    await asked;
    slow.get('slow')?.();
    await clock.advance(1);
    expect(discarded).to.deep.equal(['slow']);
  });

  it('end the wait after twenty seconds without one', async () => {
    const { clock, pulls } = world();
    const asked = pulls.ready([delivery('slow')], LIMITS);
    await clock.advance(20_000);
    expect((await asked).ready).to.deep.equal([]);
  });

  it('reschedule unscanned ones, end those without a message, and retry after an error', async () => {
    const { clock, log, pulls, settled } = world();
    const { ready, later } = await pulls.ready(
      ['late', 'gone', 'fault'].map((id) => delivery(id)),
      LIMITS,
    );
    expect(ready).to.deep.equal([]);
    expect(later).to.equal(clock.now() + 700);
    expect(settled).to.deep.equal(['gone']);
    expect(log.of('delivery.fault')).to.have.length(1);
  });

  it('signed for another URL are not handed out', async () => {
    const { clock, pulls, begun } = world();
    const asked = pulls.ready([delivery('slow'), delivery('a')], LIMITS);
    await clock.advance(1000);
    await asked;
    const moved = await pulls.ready([delivery('slow', { url: 'pull:b' }), delivery('c')], LIMITS);
    expect(idsOf(moved.ready)).to.deep.equal(['c']);
    expect(begun).to.deep.equal(['slow', 'a', 'c']);
  });
});
