import { expect } from 'chai';
import { rejectId } from '../../../src/store/rows/lists.ts';
import type { Carrier, UnsentEvent } from '../../../src/store/rows/webhooks.ts';
import type { Store } from '../../../src/store/store.ts';
import { createSweep, sweepOutboxTask } from '../../../src/webhooks/outbox.ts';

import { createTestClock } from '../../support/clock.ts';
import { openTestStore } from '../../support/store.ts';

describe('the sweep of the outbox', () => {
  const clock = createTestClock();
  let store: Store;
  let published: UnsentEvent[];
  let meanwhile: () => Promise<unknown>;
  let sweep: ReturnType<typeof createSweep>;
  beforeEach(async () => {
    store = await openTestStore();
    published = [];
    meanwhile = async () => {};
    sweep = createSweep({
      store,
      clock,
      outbox: {
        async publish(_account, events) {
          published.push(...events);
          await meanwhile();
        },
      },
    });
  });
  afterEach(() => store.close());

  const ago = (seconds: number) => new Date(clock.now() - seconds * 1000);
  const carrying = (id: string, since: Date | null): Carrier => ({
    unsent: [{ id, event: 'blacklist', at: 1, body: `{"_id":"${id}"}` }],
    unsentSince: since,
  });
  async function reject(name: string, carrier: Carrier, change: { removed?: boolean } = {}): Promise<string> {
    const id = rejectId('acme', `${name}@example.com`, '');
    await store.rejects.insert({
      id,
      account: 'acme',
      email: `${name}@example.com`,
      subaccount: '',
      reason: 'custom',
      detail: null,
      createdAt: ago(100),
      lastEventAt: ago(100),
      expiresAt: null,
      expired: false,
      sender: null,
      termMs: 0,
      removed: false,
      version: 3,
      ...carrier,
      ...change,
    });
    return id;
  }
  const whitelist = (name: string, carrier: Carrier, removed = false) =>
    store.whitelists.insert({
      id: `acme ${name}@example.com`,
      account: 'acme',
      email: `${name}@example.com`,
      detail: null,
      createdAt: ago(100),
      removed,
      version: 1,
      ...carrier,
    });
  const messageEvent = (id: string, carrier: Carrier) =>
    store.messageEvents.insert({
      id,
      account: 'acme',
      message: 'm',
      kind: 'send',
      at: ago(100),
      appliedAt: ago(100),
      detail: {},
      ...carrier,
    });

  it('publishes unsent events of rows, under the same ids, and removes them from the rows', async () => {
    await messageEvent('one', carrying('one', ago(31)));
    const id = await reject('two', carrying('two', ago(31)));
    await whitelist('three', carrying('three', ago(31)));
    expect(await sweep()).to.equal(3);
    expect(published.map((event) => event.id)).to.deep.equal(['one', 'two', 'three']);
    expect(published[0]).to.deep.equal({ id: 'one', event: 'blacklist', at: 1, body: '{"_id":"one"}' });
    expect(await store.rejects.one({ id })).to.deep.include({ unsent: null, unsentSince: null, version: 4 });
    expect(await store.messageEvents.one({ id: 'one' })).to.deep.include({ unsent: null, unsentSince: null });
    expect(await sweep()).to.equal(0);
    expect(published).to.have.length(3);
  });

  it('does not wait for rows with future times, and skips those of another host', async () => {
    await reject('ahead', carrying('ahead', ago(-3600)));
    await messageEvent('event', carrying('event', ago(-61)));
    await reject('neighbour', carrying('neighbour', ago(-59)));
    expect(await sweep()).to.equal(2);
    expect(published.map((event) => event.id)).to.have.members(['ahead', 'event']);
  });

  it('skips recently written rows', async () => {
    await reject('young', carrying('young', ago(29)));
    expect(await sweep()).to.equal(0);
    expect(published).to.deep.equal([]);
  });

  it('deletes a removed row once its event is on the spool', async () => {
    const id = await reject('gone', carrying('gone', ago(40)), { removed: true });
    await whitelist('gone', carrying('gone too', ago(40)), true);
    expect(await sweep()).to.equal(2);
    expect(await store.rejects.one({ id })).to.equal(undefined);
    expect(await store.whitelists.many({})).to.deep.equal([]);
  });

  it('leaves a row that changed meanwhile for the next run', async () => {
    const id = await reject('busy', carrying('busy', ago(40)));
    meanwhile = () =>
      store.rejects.change(
        { id },
        { version: 9, unsent: [...(carrying('busy', null).unsent ?? []), ...(carrying('newer', null).unsent ?? [])] },
      );
    expect(await sweep()).to.equal(0);
    expect((await store.rejects.one({ id }))?.unsent).to.have.length(2);
    meanwhile = async () => {};
    expect(await sweep()).to.equal(1);
    expect(published.map((event) => event.id)).to.deep.equal(['busy', 'busy', 'newer']);
  });

  it('finds all rows, a page at a time', async () => {
    for (let n = 0; n < 1100; n++) await messageEvent(`n${n}`, carrying(`n${n}`, ago(40)));
    expect(await sweep()).to.equal(1100);
    expect(new Set(published.map((event) => event.id)).size).to.equal(1100);
  }).timeout(30_000);

  it('keeps events that the spool rejects, and throws', async () => {
    const id = await reject('stuck', carrying('stuck', ago(40)));
    meanwhile = () => Promise.reject(new Error('the spool is full'));
    expect(
      await sweep().then(
        () => undefined,
        (error: Error) => error.message,
      ),
    ).to.equal('the spool is full');
    expect((await store.rejects.one({ id }))?.unsent).to.have.length(1);
  });

  it('logs how many rows it found, and nothing without any', async () => {
    const task = sweepOutboxTask({ sweep });
    expect(await task.run()).to.equal(undefined);
    await reject('late', carrying('late', ago(40)));
    expect(await task.run()).to.deep.equal({ rows: 1 });
  });
});
