import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createCopying } from '../../../src/inbound/copies/copying.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import { createAdoption } from '../../../src/sending/adoption.ts';
import { createCopies } from '../../../src/sending/copies.ts';
import { type InsertOutcome, StoreAway } from '../../../src/store/driver/port.ts';
import type { CopyRow } from '../../../src/store/rows/copies.ts';
import type { Store } from '../../../src/store/store.ts';
import { freshSpool, type MailOptions, mail, type OpenedSpool, openOne, settled } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const ids = createIds(systemClock);
const away = () => new StoreAway('no answer');

describe('copies of accepted mail', () => {
  let store: Store;
  let queue: OpenedSpool;
  /** What the store does with a command that inserts rows; absent: it inserts them. */
  let inserting: ((rows: readonly CopyRow[]) => Promise<readonly InsertOutcome[]>) | undefined;
  let isAway = false;
  /** How many rows each command had. */
  let commands: number[];
  let epoch = 0;
  const running: { stop(): Promise<void> }[] = [];

  beforeEach(async () => {
    store = await openTestStore();
    queue = await freshSpool();
    inserting = undefined;
    isAway = false;
    commands = [];
    epoch = 0;
  });
  afterEach(async () => {
    for (const copying of running.splice(0)) await copying.stop();
    await store.close();
  });

  const rows = () => store.copies.many({}, { sort: 'id' });
  const idsOf = async () => (await rows()).map(({ id }) => id);

  function open(more: { withoutCopies?: 'accept' | 'defer'; holdMs?: number; host?: string; spool?: Spool } = {}) {
    const { withoutCopies = 'defer', holdMs = 0, host = 'a', spool = queue.spool } = more;
    const reach = async <T>(work: () => Promise<T>): Promise<T> => {
      if (isAway) throw away();
      return work();
    };
    const { copies } = store;
    const wired: Store = {
      ...store,
      copies: {
        ...copies,
        change: (filter, patch) => reach(() => copies.change(filter, patch)),
        one: (filter) => reach(() => copies.one(filter)),
        removeAll: (filter) => reach(() => copies.removeAll(filter)),
        async insertAll(all) {
          commands.push(all.length);
          return inserting ? inserting(all) : reach(() => copies.insertAll(all));
        },
      },
    };
    const { clock, log } = queue;
    const member = { id: () => host, epoch: () => epoch, isLive: () => !isAway };
    const settings = { mode: 'store' as const, withoutCopies, holdMs, alone: false };
    const copying = createCopying(settings, { store: wired, spool, member, clock, ids, log, metrics: NO_METRICS });
    running.push(copying);
    return copying;
  }

  type Opened = ReturnType<typeof open>;

  async function accept({ accepting }: Opened, options: MailOptions = {}) {
    const given = mail(queue.clock, options);
    const outcome = await over(accepting.accept(given.message, given.deliveries));
    return { outcome, id: given.message.id, deliveries: given.deliveries };
  }

  /** Seconds pass until it has an outcome: what may be on its way just now is waited for. */
  async function over<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const end = () => {
      isOver = true;
    };
    work.then(end, end);
    await later('an outcome', async () => isOver);
    return work;
  }

  /** Seconds pass until it is so. */
  const later = (what: string, probe: () => Promise<boolean>) =>
    until(what, async () => {
      if (await probe()) return true;
      await queue.clock.advance(1000);
      return false;
    });
  const untilInStep = () => later('nothing to be due', async () => (await queue.spool.copies.due(0, 100)).length === 0);

  it('are written together, each with a result of its own', async () => {
    const copying = open();
    const held = Promise.withResolvers<void>();
    inserting = async (all) => {
      await held.promise;
      return all.map((_, n) => (['inserted', 'duplicate', 'refused'] as const)[n % 3] ?? 'refused');
    };
    const first = [accept(copying), accept(copying)];
    await until('two commands', () => commands.length === 2);
    const others = Array.from({ length: 6 }, () => accept(copying));
    await until('all to be on the queue', async () => (await queue.spool.list({}, 100)).length === 8);
    held.resolve();
    expect((await Promise.all(first)).map(({ outcome }) => outcome)).to.deep.equal(['accepted', 'accepted']);
    const outcomes = (await Promise.all(others)).map(({ outcome }) => outcome);
    expect(commands).to.deep.equal([1, 1, 6]);
    expect(outcomes.filter((outcome) => outcome === 'uncopied')).to.have.length(2);
    expect(await queue.spool.count({})).to.include({ waiting: 6, dropped: 2 });
  });

  it('are at most 200 or four megabytes in a command', async () => {
    const copying = open();
    const held = Promise.withResolvers<void>();
    inserting = async (all) => {
      await held.promise;
      return all.map(() => 'inserted');
    };
    const first = [accept(copying), accept(copying)];
    await until('two commands', () => commands.length === 2);
    const large = { kind: 'memory' as const, bytes: new Uint8Array(200_000) };
    const others = [
      ...Array.from({ length: 210 }, () => accept(copying)),
      ...Array.from({ length: 20 }, () => accept(copying, { body: { ...large, bytes: new Uint8Array(large.bytes) } })),
    ];
    await until('all to be on the queue', async () => (await queue.spool.count({})).waiting === 232);
    held.resolve();
    for (const { outcome } of await Promise.all([...first, ...others])) expect(outcome).to.equal('accepted');
    expect(Math.max(...commands)).to.equal(200);
    expect(commands.reduce((sum, count) => sum + count)).to.equal(232);
    expect(commands.length).to.be.within(5, 7);
  });

  it('are requested again if the result is unknown', async () => {
    const copying = open();
    let isFirst = true;
    inserting = async (all) => {
      const outcomes = await store.copies.insertAll(all);
      if (!isFirst) return outcomes;
      isFirst = false;
      throw away();
    };
    const { outcome, id } = await accept(copying);
    expect(outcome).to.equal('accepted');
    expect(commands).to.deep.equal([1, 1]);
    expect(await idsOf()).to.deep.equal([id]);
  });

  it('are deleted if they may have been written: also after a restart, and until no late write can follow', async () => {
    const copying = open();
    inserting = async (all) => {
      await store.copies.insertAll(all);
      throw away();
    };
    const { outcome, id } = await accept(copying);
    expect(outcome).to.equal('uncopied');
    expect(await idsOf()).to.deep.equal([id]);
    const [written] = await rows();
    isAway = true;
    await copying.start();
    await copying.stop();
    await queue.reopen();
    inserting = undefined;
    isAway = false;
    const restarted = open();
    await restarted.start();
    await later('it to be gone', async () => (await idsOf()).length === 0);
    expect(await queue.spool.copies.due(0, 10)).to.have.length(1);
    // The server carries out the write only now.
    if (written) await store.copies.insert(written);
    await untilInStep();
    expect(await idsOf()).to.deep.equal([]);
    expect(await queue.spool.count({})).to.include({ waiting: 0, dropped: 1 });
  });

  it('are refused before the queue has the message once the store is known to be away, if mail is deferred without them', async () => {
    const copying = open();
    isAway = true;
    expect((await accept(copying)).outcome).to.equal('uncopied');
    expect(await queue.spool.count({})).to.include({ dropped: 1 });
    expect((await accept(copying)).outcome).to.equal('uncopied');
    expect(await queue.spool.count({}), 'the second never was on the queue').to.include({ dropped: 1 });
  });

  it('are made later if mail is accepted without, also after a restart', async () => {
    isAway = true;
    const copying = open({ withoutCopies: 'accept' });
    const accepted = [await accept(copying), await accept(copying), await accept(copying)];
    expect(accepted.map(({ outcome }) => outcome)).to.deep.equal(['accepted', 'accepted', 'accepted']);
    expect(queue.log.of('copy.missing')).to.have.length(1);
    expect(await queue.spool.copies.missing()).to.equal(3);
    await queue.reopen();
    isAway = false;
    await open().start();
    await untilInStep();
    expect(await idsOf()).to.deep.equal(accepted.map(({ id }) => id).toSorted());
    expect(await queue.spool.copies.missing()).to.equal(0);
  });

  it('follow their deliveries: one by one, by hand, from the command line, and when they are purged', async () => {
    const copying = open();
    await copying.start();
    const { spool } = copying;
    const recipients = ['jo@example.com', 'al@example.com'];
    const { id, deliveries } = await accept(copying, { recipients });
    const [first, second] = deliveries;
    if (!first || !second) throw new Error('two deliveries');
    const left = async () => (await store.copies.one({ id }))?.deliveries.map((one) => [one.id, one.state ?? null]);
    const see = (what: string, expected: readonly unknown[] | undefined) =>
      later(what, async () => JSON.stringify(await left()) === JSON.stringify(expected));
    await spool.settle(settled(queue.clock, first));
    await see('the other', [[second.id, null]]);
    await spool.settle(settled(queue.clock, second, { state: 'dead' }));
    await see('it to be dead', [[second.id, 'dead']]);
    const visitor = await openOne(queue.dir, { clock: queue.clock, log: queue.log, role: 'visitor' });
    await visitor.replay({ ids: [second.id] }, queue.clock.now());
    await see('it to wait again', [[second.id, null]]);
    await visitor.drop({ ids: [second.id] }, queue.clock.now());
    await see('none', undefined);
    const kept = await accept(copying, { fate: { state: 'held', note: 'held by route 1.1' } });
    expect((await store.copies.one({ id: kept.id }))?.deliveries[0]).to.include({
      state: 'held',
      note: 'held by route 1.1',
    });
    const end = queue.clock.now() + 1;
    await spool.purge({ deliveredBefore: end, deadBefore: end, deliveredBytes: 0 });
    await later('it to go with what was purged', async () => !(await store.copies.one({ id: kept.id })));
    await untilInStep();
  });

  it('follow their deliveries also if they are written again because the first result was lost', async () => {
    const copying = open({ withoutCopies: 'accept' });
    inserting = async (all) => {
      await store.copies.insertAll(all);
      throw away();
    };
    const { id, deliveries } = await accept(copying, { recipients: ['jo@example.com', 'al@example.com'] });
    const [first, second] = deliveries;
    if (!first || !second) throw new Error('two deliveries');
    await copying.spool.settle(settled(queue.clock, first));
    inserting = undefined;
    await copying.start();
    await untilInStep();
    expect((await store.copies.one({ id }))?.deliveries.map((one) => one.id)).to.deep.equal([second.id]);
  });

  it('are not made of mail that a route discards, or that is delivered in time', async () => {
    const copying = open({ holdMs: 100 });
    expect((await accept(copying, { fate: { state: 'dropped', note: 'discarded by route 1.1' } })).outcome).to.equal(
      'accepted',
    );
    const given = mail(queue.clock);
    const [delivery] = given.deliveries;
    if (!delivery) throw new Error('a delivery');
    const accepting = copying.accepting.accept(given.message, given.deliveries);
    await until('it to wait', async () => (await queue.spool.count({})).waiting === 1);
    await copying.spool.settle(settled(queue.clock, delivery));
    expect(await accepting).to.equal('accepted');
    expect(commands).to.deep.equal([]);
  });

  it('are made at once after a failed attempt, at the time limit, and for the next mail to such an endpoint', async () => {
    for (const isFailed of [true, false]) {
      const url = `https://hooks.example.com/${isFailed}`;
      const copying = open({ holdMs: 100 });
      const given = mail(queue.clock, { url });
      const [delivery] = given.deliveries;
      if (!delivery) throw new Error('a delivery');
      const before = commands.length;
      const accepting = copying.accepting.accept(given.message, given.deliveries);
      await until('it to wait', async () => (await queue.spool.delivery(delivery.id)) !== undefined);
      if (isFailed) await copying.spool.settle(settled(queue.clock, delivery, { state: 'waiting' }));
      else await later('the time to be over', async () => commands.length > before);
      expect(await accepting).to.equal('accepted');
      expect((await accept(copying, { url })).outcome, 'without a wait').to.equal('accepted');
      expect(commands.length).to.equal(before + 2);
    }
  });

  it('have large messages in parts, of which the last is written before the row', async () => {
    const copying = open();
    const bytes = new Uint8Array(Array.from({ length: 3_000_001 }, (_, n) => n % 251));
    const writer = queue.spool.body('large');
    for (let at = 0; at < bytes.length; at += 60_000) await writer.write(bytes.slice(at, at + 60_000));
    const { outcome } = await accept(copying, { id: 'large', body: await writer.finish() });
    expect(outcome).to.equal('accepted');
    const [row] = await rows();
    expect(row?.content).to.equal(null);
    expect(await store.copyParts.many({})).to.have.length(row?.parts ?? 0);
    const member = { id: () => 'a', epoch: () => 0, isLive: () => true };
    const { clock, log } = queue;
    const copies = createCopies({ mode: 'store' }, { store, member, clock, log });
    const read = row && (await copies.read(row));
    expect(Buffer.compare(read?.bytes ?? Buffer.alloc(0), bytes)).to.equal(0);
    await copying.start();
    await queue.spool.drop({ ids: row?.deliveries.map(({ id }) => id) ?? [] }, clock.now());
    await later('the parts to go with it', async () => (await store.copyParts.many({})).length === 0);
  });

  it('are not made of a message that was taken back, whatever a lane still has of it', async () => {
    const copying = open();
    inserting = async () => ['refused'];
    const { id, deliveries } = await accept(copying);
    expect(await copying.spool.message(id, deliveries[0]?.id)).to.equal(undefined);
    expect(queue.log.of('copy.refused')).to.have.length(1);
  });

  it('wait for a POST in progress before its message is refused, and are not needed if it is delivered', async () => {
    const copying = open({ holdMs: 100 });
    const given = mail(queue.clock);
    const [delivery] = given.deliveries;
    if (!delivery) throw new Error('a delivery');
    inserting = async () => ['refused'];
    const accepting = copying.accepting.accept(given.message, given.deliveries);
    await later('the copy to be refused', async () => commands.length > 0);
    await copying.spool.settle(settled(queue.clock, delivery));
    expect(await accepting).to.equal('accepted');
  });

  it('are also made of mail whose reply does not wait, within a second', async () => {
    const copying = open();
    await copying.start();
    const given = mail(queue.clock, { kind: 'return', task: 'report', url: 'report:there.example' });
    expect(await copying.spool.accept(given.message, given.deliveries)).to.equal('accepted');
    const sent = mail(queue.clock, { kind: 'outbound' });
    expect(await copying.spool.accept(sent.message, sent.deliveries)).to.equal('accepted');
    await untilInStep();
    expect(await idsOf()).to.deep.equal([given.message.id]);
  });

  it('are in the queue of the host that adopts them as they were here, and follow their deliveries there', async () => {
    const copying = open();
    await copying.start();
    const sequence = 'a sequence';
    const ordered = mail(queue.clock, { url: 'https://hooks.example.com/ordered' });
    const inOrder = ordered.deliveries.map((one) => ({ ...one, sequence }));
    expect(await over(copying.accepting.accept(ordered.message, inOrder))).to.equal('accepted');
    const held = await accept(copying, { fate: { state: 'held', note: 'held by route 1.1' } });
    const returned = await accept(copying, { kind: 'return', task: 'read', url: 'return:' });
    const dead = await accept(copying, { recipients: ['jo@example.com', 'al@example.com'] });
    for (const one of dead.deliveries) await copying.spool.settle(settled(queue.clock, one, { state: 'dead' }));
    await untilInStep();
    await copying.stop();
    const seen = async (spool: Spool) =>
      (await spool.list({}, 100)).map(({ id, kind, task, messageId, state, endedAt, budgetFrom, sequence, url }) => ({
        ...{ id, kind, task, messageId, state, endedAt, budgetFrom, sequence, url },
      }));
    const other = await freshSpool();
    await other.clock.advance(queue.clock.now() - other.clock.now() + 60_000);
    const now = new Date(other.clock.now());
    const row = { name: 'a', incarnation: null, beat: 1, version: '', features: [], startedAt: now, seenAt: now };
    await store.hosts.insert({ id: 'a', ...row, epoch: 1, adopter: 'b' });
    const member = { id: () => 'b', epoch: () => 0, isLive: () => true };
    const { clock, log, spool } = other;
    const copies = createCopies({ mode: 'store' }, { store, member, clock, log });
    const deps = { store, spool, copies, others: {}, member, clock, ids, log };
    const adoption = createAdoption({ alone: false }, deps);
    await adoption.start();
    await until('all to be taken', async () => (await store.copies.many({ host: 'a' })).length === 0);
    await adoption.stop();
    expect(await seen(spool)).to.have.deep.members(await seen(queue.spool));
    expect((await spool.delivery(held.deliveries[0]?.id ?? ''))?.lastError).to.equal('held by route 1.1');
    const there = open({ host: 'b', spool });
    await there.start();
    for (const { id } of returned.deliveries) await spool.drop({ ids: [id] }, clock.now());
    await until('its copy to go', async () => {
      await clock.advance(1000);
      await queue.clock.advance(1000);
      return !(await idsOf()).includes(returned.id);
    });
    expect(await idsOf()).to.have.members([ordered.message.id, held.id, dead.id]);
  });

  it('of another epoch stay if no host has taken them over; mail that another host has is dropped here', async () => {
    const copying = open();
    const [kept, taken, gone] = [await accept(copying), await accept(copying), await accept(copying)];
    await untilInStep();
    await store.copies.change({ id: taken.id }, { host: 'b', epoch: 7 });
    await store.copies.remove({ id: gone.id });
    epoch = 1;
    await queue.reopen();
    await open().start();
    await later('the others to be dropped', async () => (await queue.spool.count({})).dropped === 2);
    expect((await queue.spool.delivery(kept.deliveries[0]?.id ?? ''))?.state).to.equal('waiting');
    expect((await rows()).map(({ id, host, epoch: of }) => [id, host, of])).to.have.deep.members([
      [kept.id, 'a', 1],
      [taken.id, 'b', 7],
    ]);
  });
});
