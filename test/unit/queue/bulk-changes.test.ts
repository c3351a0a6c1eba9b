import { expect } from 'chai';
import { type BulkSelection, createBulkChanges } from '../../../src/queue/bulk-changes.ts';
import type { EndpointName } from '../../../src/queue/delivery.ts';
import { BULK_ACTIONS, type BulkAction } from '../../../src/queue/states.ts';
import { freshSpool, given, type MailOptions, mail, type OpenedSpool, put, settled } from '../../support/spool.ts';

const ALL: BulkSelection = { selections: [{}] };
const ACTIONS: readonly BulkAction[] = ['retry', 'drop', 'replay'];
const HELD = { fate: { state: 'held', note: 'held by route 1.1' } } as const;
const DISCARDED = { fate: { state: 'dropped', note: 'discarded by route 1.2' } } as const;
const A = 'https://app.example.com/a';
const B = 'https://app.example.com/b';

describe('a bulk change of deliveries', () => {
  let opened: OpenedSpool;
  let probed: EndpointName[];
  const bulk = () =>
    createBulkChanges({ spool: opened.spool, clock: opened.clock, probe: (endpoint) => probed.push(endpoint) });
  beforeEach(async () => {
    opened = await freshSpool();
    probed = [];
  });

  /** Mail that waits for an hour. */
  async function putLater(options: MailOptions = {}): Promise<string> {
    const { spool, clock } = opened;
    const { delivery } = await put(spool, clock, options);
    await spool.settle(settled(clock, delivery, { state: 'waiting', dueAt: clock.now() + 3_600_000 }));
    return delivery.id;
  }

  /** Mail of one author in order: the first is due, the others wait behind it. */
  async function putInOrder(count: number): Promise<void> {
    const { spool, clock } = opened;
    for (let n = 0; n < count; n++) {
      const { message, deliveries } = mail(clock);
      const sequence = 'from:ada@example.org';
      await spool.accept(
        given(message),
        deliveries.map((one) => ({ ...one, sequence })),
      );
    }
  }

  async function putSome(): Promise<void> {
    const { spool, clock } = opened;
    await putLater();
    await putInOrder(3);
    await put(spool, clock, { url: 'pull:mine' });
    await put(spool, clock, HELD);
    await put(spool, clock, DISCARDED);
    await put(spool, clock, { ...DISCARDED, url: '' });
    for (const state of ['delivered', 'dead', 'dropped'] as const) {
      const { delivery } = await put(spool, clock);
      await spool.settle(settled(clock, delivery, { state }));
    }
  }

  for (const action of ACTIONS)
    it(`counts before a ${action} exactly the deliveries that it will change`, async () => {
      await putSome();
      const { matched, byState } = await bulk().count(action, ALL);
      expect(Object.entries(byState).flatMap(([state, count]) => (count > 0 ? [state] : []))).to.have.members([
        ...BULK_ACTIONS[action].states,
      ]);
      expect(await bulk().change(action, ALL)).to.equal(matched);
    });

  it('excludes from a retry deliveries behind others, and pulled ones: no lease ends early', async () => {
    await putInOrder(3);
    await putLater();
    const { delivery } = await put(opened.spool, opened.clock, { url: 'pull:mine' });
    const until = opened.clock.now() + 60_000;
    await opened.spool.lease(delivery, [delivery.id], { now: opened.clock.now(), until, patience: 0 });
    expect((await bulk().count('retry', ALL)).matched).to.equal(2);
    expect(await bulk().change('retry', ALL)).to.equal(2);
    expect((await opened.spool.delivery(delivery.id))?.dueAt).to.equal(until);
    expect(await bulk().change('retry', { selections: [{ ids: [delivery.id] }] })).to.equal(0);
  });

  it('excludes from a replay mail that a route discarded without a URL', async () => {
    const { spool, clock } = opened;
    const nowhere = await put(spool, clock, { ...DISCARDED, url: '' });
    const known = await put(spool, clock, DISCARDED);
    const which = { selections: [{ ids: [nowhere.delivery.id, known.delivery.id] }] };
    expect(await bulk().count('replay', which)).to.deep.include({ matched: 1, forgotten: 0 });
    expect(await bulk().change('replay', which)).to.equal(1);
  });

  it('returns how many of each account it changed, and probes each endpoint once', async () => {
    for (const [account, url, count] of [
      ['acme', A, 2],
      ['acme', B, 1],
      ['other', A, 3],
    ] as const)
      for (let n = 0; n < count; n++) await putLater({ account, url });
    let counts: unknown;
    const done = await bulk().change('retry', ALL, { ended: (byAccount) => (counts = [...byAccount]) });
    expect(done).to.equal(6);
    expect(counts).to.have.deep.members([
      ['acme', 3],
      ['other', 3],
    ]);
    expect(probed).to.have.deep.members([
      { account: 'acme', url: A },
      { account: 'acme', url: B },
      { account: 'other', url: A },
    ]);
    probed = [];
    await bulk().change('drop', ALL);
    expect(probed).to.deep.equal([]);
  });

  describe('in several steps', () => {
    const MANY = 1205;
    beforeEach(async () => {
      const { spool, clock } = opened;
      for (let n = 0; n < MANY; n += 241)
        await put(spool, clock, { recipients: Array.from({ length: 241 }, (_, i) => `box-${n + i}@in.test`) });
    });
    const waiting = async () => (await opened.spool.count({})).waiting;

    it('reports its progress after each', async () => {
      const seen: number[] = [];
      await bulk().change('drop', ALL, { progress: (done) => seen.push(done) });
      expect(seen).to.deep.equal([500, 1000, 1205]);
      expect(await waiting()).to.equal(0);
    });

    it('changes no more than its limit', async () => {
      expect(await bulk().change('drop', ALL, { most: 600 })).to.equal(600);
      expect(await waiting()).to.equal(MANY - 600);
      expect(await bulk().change('drop', ALL, { most: 0 })).to.equal(0);
    });

    it('stops between two on request, and continues with the rest when it is run again', async () => {
      let steps = 0;
      expect(await bulk().change('drop', ALL, { stopping: () => steps++ > 0 })).to.equal(500);
      expect(await bulk().count('drop', ALL)).to.include({ matched: MANY - 500 });
      expect(await bulk().change('drop', ALL)).to.equal(MANY - 500);
    });

    it('reports its steps if one fails', async () => {
      const { spool, clock } = opened;
      let calls = 0;
      const drop: typeof spool.drop = (...args) =>
        ++calls > 1 ? Promise.reject(new Error('the disk is on fire')) : spool.drop(...args);
      const failing = createBulkChanges({ spool: { ...spool, drop }, clock });
      const counts: unknown[] = [];
      const failure = await failing
        .change('drop', ALL, { ended: (byAccount) => counts.push(...byAccount) })
        .catch((error: unknown) => error);
      expect(String(failure)).to.contain('on fire');
      expect(counts).to.deep.equal([['acme', 500]]);
      expect(await waiting()).to.equal(MANY - 500);
    });

    it('processes search results in pages, and counts deleted ones', async () => {
      const ids = (await opened.spool.list({}, MANY)).map(({ id }) => id);
      const found = async function* () {
        yield [...ids.slice(0, 700), 'forgotten-1'];
        yield ['forgotten-2'];
        yield ids.slice(700, 800);
      };
      const which = { selections: [{ account: 'acme' }], found };
      expect(await bulk().count('drop', which)).to.include({ matched: 800, forgotten: 2 });
      expect(await bulk().change('drop', { selections: [{ account: 'other' }], found })).to.equal(0);
      expect(await bulk().change('drop', which)).to.equal(800);
      expect(await bulk().count('drop', which)).to.include({ matched: 0, forgotten: 2 });
    });
  });
});
