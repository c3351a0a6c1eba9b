import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import type { DeliveryState } from '../../../src/queue/states.ts';
import { createAdoption, tendCopiesTask } from '../../../src/sending/adoption.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { understands } from '../../../src/store/features.ts';
import type { Store } from '../../../src/store/store.ts';
import { createEventCopies } from '../../../src/webhooks/event-copies.ts';
import { createOutbox } from '../../../src/webhooks/outbox.ts';
import { events } from '../../support/batch-world.ts';
import { NO_COPIES } from '../../support/copies.ts';
import { createTestLog } from '../../support/log.ts';
import { freshSpool } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const ids = createIds(systemClock);
const LIMITS = { events: 1000, bytes: 1_000_000 };
const HOUR_MS = 3_600_000;

describe('the copies of webhook events', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
    for (const number of [1, 2]) await addHook(number);
  });
  afterEach(() => store.close());

  const addHook = (number: number) =>
    store.webhooks.insert({
      id: String(number),
      account: 'acme',
      number,
      url: `https://h${number}.example/`,
      description: null,
      events: [],
      createdAt: new Date(0),
    });

  interface HostOptions {
    readonly mode?: 'none' | 'store';
    readonly features?: ReadonlySet<string>;
    /** Asked before each write to a copy. */
    readonly isAway?: (what: 'change' | 'remove') => boolean;
  }

  async function startHost(id: string, { mode = 'store', features, isAway = () => false }: HostOptions = {}) {
    const opened = await freshSpool();
    const { clock } = opened;
    const log = createTestLog();
    const member = {
      id: () => id,
      epoch: () => epoch,
      isLive: () => true,
    };
    let epoch = 0;
    const now = new Date(clock.now());
    const row = { name: id, incarnation: id, beat: 1, version: '', features: [], startedAt: now, seenAt: now };
    await store.hosts.insert({ id, ...row });
    const mortal: Store = {
      ...store,
      understands: (row) => understands(features, row),
      copies: {
        ...store.copies,
        async change(...args) {
          if (isAway('change')) throw new StoreAway('away');
          return store.copies.change(...args);
        },
        async remove(...args) {
          if (isAway('remove')) throw new StoreAway('away');
          return store.copies.remove(...args);
        },
      },
    };
    function build(spool = opened.spool) {
      const parts = { store: mortal, spool, member, clock, log };
      const eventCopies = createEventCopies({ mode, retryHours: 2 }, parts);
      const deps = { ...parts, copies: NO_COPIES, others: { events: eventCopies } };
      const adoption = createAdoption({ alone: false }, { ...deps, ids });
      return { spool, eventCopies, deps, adoption, outbox: createOutbox({ ...parts, copies: eventCopies }) };
    }
    let parts = build();
    await parts.eventCopies.start();
    return {
      id,
      clock,
      log,
      get spool() {
        return parts.spool;
      },
      get adoption() {
        return parts.adoption;
      },
      get eventCopies() {
        return parts.eventCopies;
      },
      async restart() {
        await parts.eventCopies.stop();
        parts = build(await opened.reopen());
        await parts.eventCopies.start();
      },
      async learn() {
        epoch = (await store.hosts.one({ id }))?.epoch ?? 0;
      },
      publish: (count: number, from = 0) => parts.outbox.publish('acme', events(count, { from })),
      /** Makes a batch of what waits for a webhook. */
      async freeze(webhook: string): Promise<string> {
        const { delivery } = await parts.spool.events.freeze(webhook, ids.message(), LIMITS, clock.now());
        return delivery?.id ?? '';
      },
      settle: (deliveryId: string, state: DeliveryState) =>
        parts.spool.settle({ deliveryId, attempt: null, state, dueAt: 0, parked: false, at: clock.now() }),
      async tend(ms: number) {
        await clock.leap(ms);
        return tendCopiesTask({ ...parts.deps, adoption: parts.adoption }).run();
      },
      async pending() {
        const found = await parts.spool.events.pending(1000);
        return Object.fromEntries(found.map(({ webhook, pending }) => [webhook, pending.events]));
      },
    };
  }

  type Host = Awaited<ReturnType<typeof startHost>>;

  const ownedBy = async (host: string) => (await store.copies.many({ host }, { sort: 'id' })).map(({ id }) => id);
  const untilOwned = (host: string, count: number) =>
    until(`${host} to have ${count}`, async () => (await ownedBy(host)).length === count);

  async function adopt(lost: Host, adopter: Host): Promise<void> {
    const row = await store.hosts.one({ id: lost.id });
    await store.hosts.change({ id: lost.id }, { epoch: (row?.epoch ?? 0) + 1, adopter: adopter.id, incarnation: null });
    await adopter.adoption.start();
    await untilOwned(lost.id, 0);
    await adopter.adoption.stop();
  }

  it('are not written again for an event that was delivered, though it is published again', async () => {
    const host = await startHost('a');
    await host.publish(1);
    for (const webhook of ['1', '2']) await host.settle(await host.freeze(webhook), 'delivered');
    await untilOwned('a', 0);
    // As an event that was taken over, and is still unsent in its own row.
    await host.publish(1);
    expect(await ownedBy('a')).to.deep.equal([]);
    expect(await host.pending()).to.deep.equal({});
  });

  it('are there from before the event is on the queue to the end of its batch, for each webhook', async () => {
    const host = await startHost('a');
    await host.publish(2);
    expect(await ownedBy('a')).to.deep.equal(['1 m0', '1 m1', '2 m0', '2 m1']);
    const [first, second] = [await host.freeze('1'), await host.freeze('2')];
    await host.settle(first, 'waiting');
    await host.settle(second, 'delivered');
    await untilOwned('a', 2);
    expect(await ownedBy('a')).to.deep.equal(['1 m0', '1 m1']);
    await host.settle(first, 'dead');
    await untilOwned('a', 0);
  });

  it('are none if nothing is copied', async () => {
    const host = await startHost('a', { mode: 'none' });
    await host.publish(2);
    expect(await store.copies.many({})).to.deep.equal([]);
    expect(await host.pending()).to.deep.equal({ 1: 2, 2: 2 });
  });

  it('keep the events in their row if the store cannot take the copies, and put nothing on the queue', async () => {
    const host = await startHost('a');
    const insert = store.copies.insert;
    const away = { ...store, copies: { ...store.copies, insert: () => Promise.reject(new StoreAway('away')) } };
    const copies = createEventCopies(
      { mode: 'store', retryHours: 1 },
      { store: away, spool: host.spool, member: { id: () => 'a', epoch: () => 0 }, clock: host.clock, log: host.log },
    );
    const outbox = createOutbox({ store, spool: host.spool, copies, clock: host.clock });
    const failure = await outbox.publish('acme', events(1)).catch((error: Error) => error.name);
    expect([failure, await host.pending(), insert === store.copies.insert]).to.deep.equal(['StoreAway', {}, true]);
  });

  it('are left to the living host that has the events: another that sweeps their row has nothing to do', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    await a.publish(3);
    await b.publish(4);
    expect(await b.pending()).to.deep.equal({ 1: 1, 2: 1 });
    await a.publish(3);
    expect(await a.pending()).to.deep.equal({ 1: 3, 2: 3 });
    expect(await ownedBy('b')).to.deep.equal(['1 m3', '2 m3']);
  });

  it('are taken over, pending or in a batch, by the host that adopts theirs', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    await a.publish(700);
    await a.freeze('1');
    await a.publish(5, 700);
    await adopt(a, b);
    expect(await b.pending()).to.deep.equal({ 1: 705, 2: 705 });
    expect(await ownedBy('b')).to.have.length(1410);
    const batch = await b.freeze('1');
    const [message] = await b.spool.list({ ids: [batch] }, 1);
    expect(message?.batch?.events).to.equal(705);
    await b.settle(batch, 'delivered');
    await untilOwned('b', 705);
  });

  it('are taken over by the next host, wherever the first one died', async () => {
    for (let steps = 0; steps <= 6; steps += 2) {
      const name = `${steps}-`;
      let left = steps;
      const a = await startHost(`${name}a`);
      const b = await startHost(`${name}b`, { isAway: (what) => what === 'change' && left-- <= 0 });
      const c = await startHost(`${name}c`);
      await a.publish(3, steps * 10);
      await store.hosts.change({ id: a.id }, { epoch: 1, adopter: b.id });
      await b.adoption.start();
      await until('b to have died', () => left < 0 || steps === 6);
      if (steps === 6) await untilOwned(a.id, 0);
      await b.adoption.stop();
      await adopt(a, c);
      const [ofB, ofC] = [await ownedBy(b.id), await ownedBy(c.id)];
      expect([...ofB, ...ofC], 'each has one owner').to.have.length(6);
      expect(ofB).to.have.length(steps);
      for (const [host, owned] of [[b, ofB] as const, [c, ofC] as const])
        for (const id of owned) {
          const [webhook = '', event = ''] = id.split(' ');
          expect(await host.spool.events.stage(webhook, event), 'which has it on its queue').to.equal('left');
        }
    }
  });

  it('go to the present URL of their webhook, and nowhere if it was deleted', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    await a.publish(2);
    await store.webhooks.change({ id: '1' }, { url: 'https://moved.example/' });
    await store.webhooks.remove({ id: '2' });
    await adopt(a, b);
    expect(await b.spool.events.hooks()).to.deep.equal([{ id: '1', account: 'acme', url: 'https://moved.example/' }]);
    expect(await ownedBy('b')).to.deep.equal(['1 m0', '1 m1']);
  });

  it('are left alone by a version that does not know them', async () => {
    const a = await startHost('a');
    const b = await startHost('b', { features: new Set(['copies=outbound']) });
    await a.publish(1);
    await store.hosts.change({ id: 'a' }, { epoch: 1, adopter: 'b' });
    await b.adoption.start();
    await until('b to have looked', () => b.log.of('host.adopted').length > 0);
    await b.adoption.stop();
    expect(b.log.of('host.adopted')[0]?.fields).to.include({ messages: 0, left: 2 });
    expect(await ownedBy('a')).to.have.length(2);
    expect(await b.pending()).to.deep.equal({});
  });

  it('of events that were delivered here go, even if another host has taken them over; given up here, they stay', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    await a.publish(1);
    const [first, second] = [await a.freeze('1'), await a.freeze('2')];
    await adopt(a, b);
    await a.settle(first, 'delivered');
    await a.settle(second, 'dead');
    await untilOwned('b', 1);
    await until('all removals', () => a.eventCopies.idle());
    expect(await ownedBy('b')).to.deep.equal(['2 m0']);
  });

  it('are removed once the store is back', async () => {
    let away = true;
    const host = await startHost('a', { isAway: () => away });
    await host.publish(1);
    await host.settle(await host.freeze('1'), 'delivered');
    await host.settle(await host.freeze('2'), 'delivered');
    away = false;
    await host.clock.advance(5000);
    await untilOwned('a', 0);
    expect(host.log.of('copy.fault')).to.deep.equal([]);
  });

  it('are held against the queue: ended, they go; missing on the queue, they are put there', async () => {
    const host = await startHost('a', { isAway: (what) => what === 'remove' && away });
    let away = true;
    await host.publish(1);
    // Its end is forgotten in a restart.
    await host.settle(await host.freeze('1'), 'delivered');
    await host.restart();
    away = false;
    const other = await startHost('b');
    await other.publish(1, 5);
    await store.copies.change({ id: '1 m5' }, { host: 'a' });
    await host.tend(60_000);
    expect(await ownedBy('a'), 'younger ones are left').to.deep.equal(['1 m0', '1 m5', '2 m0']);
    await host.tend(HOUR_MS);
    expect(await ownedBy('a')).to.deep.equal(['1 m5', '2 m0']);
    expect(await host.pending()).to.deep.equal({ 1: 1, 2: 1 });
  });

  it('of an event that expired on the queue go, instead of putting it there again', async () => {
    const host = await startHost('a');
    await host.publish(1);
    await host.spool.events.expire(host.clock.now() + 1);
    await host.tend(3 * HOUR_MS);
    expect(await ownedBy('a')).to.deep.equal([]);
    expect(await host.pending()).to.deep.equal({});
  });

  it('of a host that comes back before they were taken over stay its own, and go with its batches', async () => {
    const host = await startHost('a');
    await host.publish(1);
    await store.hosts.change({ id: 'a' }, { epoch: 1, adopter: null });
    await host.learn();
    await host.settle(await host.freeze('1'), 'delivered');
    await untilOwned('a', 1);
    // Of an earlier epoch, and its end was not recorded.
    const row = await store.copies.one({ id: '2 m0' });
    if (row)
      await store.copies.insert({
        ...row,
        id: '2 m9',
        message: '2 m9',
        content: '{"webhook":"2","event":{"id":"m9","body":"{}"}}',
      });
    await host.tend(3 * HOUR_MS);
    expect(await ownedBy('a'), 'what the queue still has').to.deep.equal(['2 m0']);
  });
});
