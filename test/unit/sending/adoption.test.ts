import { expect } from 'chai';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { createAdoption, tendCopiesTask } from '../../../src/sending/adoption.ts';
import { createCopies } from '../../../src/sending/copies.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { understands } from '../../../src/store/features.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestLog } from '../../support/log.ts';
import { PLAIN_OUTGOING } from '../../support/messages.ts';
import { freshSpool } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const ids = createIds(systemClock);
const ENVELOPE = { mailFrom: '', client: { address: null, helo: null, tls: null }, outgoing: PLAIN_OUTGOING };

describe('the takeover of copies', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  /** A host; `dies` is asked before each change of a row's owner. */
  async function startHost(id: string, dies: () => boolean = () => false, features?: ReadonlySet<string>) {
    const { spool, clock } = await freshSpool();
    const log = createTestLog();
    let isLive = true;
    const member = { id: () => id, epoch: () => epochs.get(id) ?? 0, isLive: () => isLive };
    const epochs = new Map<string, number>();
    const learn = async () => epochs.set(id, (await store.hosts.one({ id }))?.epoch ?? 0);
    const now = new Date(clock.now());
    const row = { name: id, incarnation: id, beat: 1, version: '', features: [], startedAt: now, seenAt: now };
    await store.hosts.insert({ id, ...row });
    const mortal: Store = {
      ...store,
      understands: (row) => understands(features, row),
      copies: {
        ...store.copies,
        async change(filter, patch) {
          if ('host' in patch && dies()) throw new StoreAway('the host has died');
          return store.copies.change(filter, patch);
        },
      },
    };
    const copies = createCopies({ mode: 'store' }, { store: mortal, member, clock, log });
    let rounds = 0;
    const counted: Clock = {
      ...clock,
      after(ms, next) {
        rounds++;
        return clock.after(ms, next);
      },
    };
    const adoption = createAdoption(
      { alone: false },
      { store: mortal, spool, copies, others: {}, member, clock: counted, ids, log },
    );
    return {
      id,
      deps: { store: mortal, spool, copies, others: {}, member, clock, adoption },
      spool,
      copies,
      adoption,
      /** How often it has looked for copies to take. */
      rounds: () => rounds,
      log,
      learn,
      cut() {
        isLive = false;
      },
      async waiting() {
        const ids: string[] = [];
        for await (const page of spool.names({ states: ['waiting'] })) ids.push(...page.map((one) => one.id));
        return ids.toSorted();
      },
      /** `wrongMs`: by how much its clock is ahead. */
      async accept(message: string, recipients: number, text = 'hello', wrongMs = 0) {
        const deliveries = Array.from({ length: recipients }, (_, n) => ({
          id: `${message}-${String(n).padStart(12, '0')}`,
          messageId: message,
          account: 'acme',
          kind: 'outbound' as const,
          url: 'smtp://to.test',
          routeId: '',
          pattern: '',
          recipient: `jo-${n}@to.test`,
        }));
        const envelope = { ...ENVELOPE, copiedIn: copies.epochForNew() };
        const bytes = new TextEncoder().encode(text);
        const given = { id: message, receivedAt: clock.now() + wrongMs, envelope, trace: '' };
        await copies.write({ ...given, bytes }, deliveries);
        await spool.accept({ ...given, body: { kind: 'memory', bytes } }, deliveries);
        return deliveries.map((one) => one.id);
      },
    };
  }

  type Host = Awaited<ReturnType<typeof startHost>>;

  async function handOver(lost: Host, adopter: Host): Promise<void> {
    const row = await store.hosts.one({ id: lost.id });
    const epoch = row?.epoch ?? 0;
    await store.hosts.change({ id: lost.id }, { epoch: epoch + 1, adopter: adopter.id, incarnation: null });
  }

  const ownedBy = async (host: string) => (await store.copies.many({ host }, { sort: 'id' })).map(({ id }) => id);
  const untilGone = (host: string) => until('all to be taken', async () => (await ownedBy(host)).length === 0);

  it('queues the mail that it then owns: small, large, and to many', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const large = `${'é😀'.repeat(700_000)}`;
    const ids = [await a.accept('m1', 1), await a.accept('m2', 1, large), await a.accept('m3', 700)].flat();
    await handOver(a, b);
    await b.adoption.start();
    await untilGone('a');
    await b.adoption.stop();
    expect(await b.waiting()).to.deep.equal(ids);
    expect(await ownedBy('b')).to.deep.equal(ids);
    const found = await b.spool.message('m2', ids[1]);
    expect(found?.body.kind === 'file' && found.body.size).to.equal(Buffer.byteLength(large));
  });

  it('makes waiting mail due, even if the clock of the lost host was ahead', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const [id = ''] = await a.accept('m1', 1, 'hello', 86_400_000);
    await handOver(a, b);
    await b.adoption.start();
    await untilGone('a');
    await b.adoption.stop();
    expect((await b.spool.delivery(id))?.dueAt).to.be.at.most(b.deps.clock.now());
  });

  it('is completed by the next host, wherever the first one died', async () => {
    for (let steps = 0; steps <= 12; steps += 3) {
      const name = `${steps}-`;
      const a = await startHost(`${name}a`);
      let left = steps;
      const b = await startHost(`${name}b`, () => left-- <= 0);
      const c = await startHost(`${name}c`);
      const ids: string[] = [];
      for (let n = 0; n < 4; n++) ids.push(...(await a.accept(`${name}m${n}`, 3)));
      await handOver(a, b);
      await b.adoption.start();
      await until('b to have died', () => left < 0 || steps >= 12);
      if (steps >= 12) await untilGone(a.id);
      await b.adoption.stop();
      await handOver(a, c);
      await c.adoption.start();
      await untilGone(a.id);
      await c.adoption.stop();
      const [ofB, ofC] = [await ownedBy(b.id), await ownedBy(c.id)];
      expect([...ofB, ...ofC].toSorted(), 'each has one owner').to.deep.equal(ids.toSorted());
      expect(await b.waiting(), 'which has it on its queue').to.include.members(ofB);
      expect(await c.waiting()).to.include.members(ofC);
      // What another has taken since is not sent here.
      const envelope = { ...ENVELOPE, copiedIn: 0 };
      for (const id of ofC) expect((await b.copies.claim({ id }, envelope)).kind).to.equal('elsewhere');
    }
  });

  it('is sent by the next host alone, if the first one died after it had put it on its queue, and comes back', async () => {
    const a = await startHost('a');
    let left = 1;
    const b = await startHost('b', () => left-- <= 1);
    const c = await startHost('c');
    const [id = ''] = await a.accept('m1', 1);
    await handOver(a, b);
    await b.adoption.start();
    await until('b to have died', () => left < 1);
    await b.adoption.stop();
    expect(await b.waiting()).to.deep.equal([id]);
    await handOver(a, c);
    await c.adoption.start();
    await untilGone('a');
    await c.adoption.stop();
    const ended = { deliveryId: id, attempt: null, state: 'delivered', dueAt: 0, parked: false, at: 0 } as const;
    await c.copies.record(ended, { ...ENVELOPE, copiedIn: 0 });
    await c.copies.ended(id);
    const envelope = (await b.spool.message('m1', id))?.message.envelope;
    if (!envelope) throw new Error('it is not on the queue of b');
    // Its epoch is what it was: nobody has adopted it.
    expect((await b.copies.claim({ id }, envelope)).kind).to.equal('elsewhere');
  });

  it('is completed by the same host after its restart, even of a message that it has in part', async () => {
    const a = await startHost('a');
    let left = 1;
    const b = await startHost('b', () => left-- === 0);
    const all = await a.accept('m1', 3);
    const [kept = '', ...others] = all;
    // Of this one a came back and kept it.
    await store.copies.change({ id: kept }, { epoch: 1 });
    await handOver(a, b);
    await b.adoption.start();
    await until('b to have died', () => left < 0);
    await b.adoption.stop();
    await b.adoption.start();
    await until('the others to be taken', async () => (await ownedBy('b')).length === 2);
    await b.adoption.stop();
    expect(await b.waiting()).to.deep.equal(others);
    await handOver(a, b);
    await b.adoption.start();
    await untilGone('a');
    await b.adoption.stop();
    expect(await b.waiting()).to.deep.equal(all);
  });

  it('continues within seconds if the store did not answer once', async () => {
    const a = await startHost('a');
    let refused = 0;
    const b = await startHost('b', () => ++refused <= 2);
    for (let n = 0; n < 4; n++) await a.accept(`m${n}`, 1);
    await handOver(a, b);
    await b.adoption.start();
    await until('its first round', () => b.rounds() === 1);
    expect(await ownedBy('a'), 'the others were taken').to.have.length(2);
    await b.deps.clock.advance(5000);
    await untilGone('a');
    await b.adoption.stop();
    expect(b.log.of('copy.fault')).to.deep.equal([]);
  });

  it('leaves mail that was not taken yet to a host that comes back', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const [first = ''] = await a.accept('m1', 1);
    await handOver(a, b);
    await store.hosts.change({ id: 'a' }, { adopter: null });
    await a.learn();
    const envelope = { ...ENVELOPE, copiedIn: 0 };
    expect((await a.copies.claim({ id: first }, envelope)).kind).to.equal('unsure');
    expect(await a.copies.claim({ id: first }, envelope)).to.deep.equal({ kind: 'ours', epoch: 1 });
    await b.adoption.start();
    await b.adoption.stop();
    expect(await ownedBy('a')).to.deep.equal([first]);
  });

  it('gives mail back to a host that had it before', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const ids = await a.accept('m1', 3);
    await handOver(a, b);
    await b.adoption.start();
    await untilGone('a');
    await b.adoption.stop();
    // As its road does with mail that another host has.
    await a.spool.drop({ ids }, Date.now());
    await handOver(b, a);
    await a.learn();
    await a.adoption.start();
    await untilGone('b');
    await a.adoption.stop();
    expect(await a.waiting()).to.deep.equal(ids);
    expect(await a.copies.claim({ id: ids[0] ?? '' }, { ...ENVELOPE, copiedIn: 0 })).to.deep.equal({
      kind: 'ours',
      epoch: 1,
    });
  });

  it('holds copies against the queue: ended by hand, they go; missing on the queue, they are put there', async () => {
    const a = await startHost('a');
    const [dropped = ''] = await a.accept('m1', 1);
    const [kept = ''] = await a.accept('m2', 1);
    await a.spool.drop({ ids: [dropped] }, Date.now());
    const b = await startHost('b');
    const [missing = ''] = await b.accept('m3', 1);
    await store.copies.change({ id: missing }, { host: 'a' });
    await store.hosts.remove({ id: 'b' });
    const later = { now: () => Date.now() + 3_600_000 };
    await tendCopiesTask({ ...a.deps, clock: { ...a.deps.clock, ...later } }).run();
    expect(await ownedBy('a')).to.deep.equal([kept, missing]);
    expect(await a.waiting()).to.deep.equal([kept, missing]);
  });

  it('does not let mail be sent that has ended, or that another host has', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const [ended = '', gone = '', own = ''] = [
      ...(await a.accept('m1', 1)),
      ...(await a.accept('m2', 1)),
      ...(await a.accept('m3', 1)),
    ];
    const envelope = { ...ENVELOPE, copiedIn: 0 };
    await a.copies.record(
      { deliveryId: ended, attempt: null, state: 'delivered', dueAt: 0, parked: false, at: 0 },
      envelope,
    );
    await handOver(a, b);
    await b.adoption.start();
    await untilGone('a');
    await b.adoption.stop();
    await a.learn();
    await b.copies.cancelled(gone);
    expect(await b.copies.claim({ id: ended }, envelope)).to.deep.equal({
      kind: 'settled',
      result: { state: 'delivered', report: null },
    });
    expect((await a.copies.claim({ id: gone }, envelope)).kind, 'its row has gone in another epoch').to.equal(
      'elsewhere',
    );
    expect((await a.copies.claim({ id: own }, envelope)).kind).to.equal('elsewhere');
    expect(await b.copies.claim({ id: own }, envelope)).to.deep.equal({ kind: 'ours', epoch: 0 });
    expect(b.copies.holds(0)).to.equal(true);
    b.cut();
    expect(b.copies.holds(0), 'without a live lease').to.equal(false);
    expect((await b.copies.claim({ id: own }, envelope)).kind).to.equal('unsure');
  });

  it('writes a copy again of mail that was attempted, ended, and then replayed by hand, even after another adopted it', async () => {
    const [a, b] = [await startHost('a'), await startHost('b')];
    const [id = ''] = await a.accept('m1', 1);
    const [never = ''] = await a.accept('m2', 1);
    const attempt = { at: 0, durationMs: 0, status: 250, error: null, answer: '' };
    const ended = { deliveryId: id, attempt, state: 'delivered', dueAt: 0, parked: false, at: 0 } as const;
    const envelope = { ...ENVELOPE, copiedIn: 0 };
    await a.copies.record(ended, envelope);
    await a.spool.settle(ended);
    await a.copies.ended(id);
    await a.copies.cancelled(never);
    await handOver(a, b);
    await a.learn();
    expect((await a.spool.delivery(id))?.replayed).to.equal(undefined);
    await a.spool.replay({ ids: [id] }, Date.now());
    const queued = await a.spool.delivery(id);
    if (!queued) throw new Error('no delivery');
    expect(queued).to.include({ replayed: true, state: 'waiting' });
    expect(await a.copies.claim(queued, envelope)).to.deep.equal({ kind: 'uncopied', epoch: 1 });
    expect((await a.copies.claim({ id: never }, envelope)).kind, 'what was not replayed').to.equal('elsewhere');
    const bytes = new TextEncoder().encode('hello');
    const given = { id: 'm1', receivedAt: 0, trace: '', envelope: { ...envelope, copiedIn: 1 }, bytes };
    await a.copies.write(given, [queued]);
    expect(await a.copies.claim(queued, envelope)).to.deep.equal({ kind: 'ours', epoch: 1 });
    await a.spool.settle({ ...ended, state: 'waiting' });
    expect((await a.spool.delivery(id))?.replayed, 'once').to.equal(undefined);
  });

  it('leaves rows of a newer version, and messages with a missing part', async () => {
    const a = await startHost('a');
    const b = await startHost('b', undefined, new Set(['copies=outbound']));
    const [strange = ''] = await a.accept('m1', 1);
    const [broken = ''] = await a.accept('m2', 1, 'x'.repeat(100_000));
    const [whole = ''] = await a.accept('m3', 1);
    await store.copies.change({ id: strange }, { needs: 'copies=later' });
    await store.copyParts.remove({ id: 'm2 0000' });
    await handOver(a, b);
    await b.adoption.start();
    await until('the whole one', async () => (await ownedBy('b')).includes(whole));
    await b.adoption.stop();
    expect(await ownedBy('a')).to.have.members([strange, broken]);
    expect(b.log.of('copy.fault')).to.have.length(1);
  });

  it('sweeps parts without a row, and keeps the others', async () => {
    const a = await startHost('a');
    await a.accept('m1', 1, 'x'.repeat(100_000));
    await store.copyParts.insert({ id: 'm0 0000', message: 'm0', text: 'x', createdAt: new Date(1) });
    expect(await a.copies.sweep(new Date(Date.now() + 86_400_000))).to.equal(1);
    expect((await store.copyParts.many({})).map(({ message }) => message)).to.deep.equal(['m1']);
    await a.copies.cancelled('m1-000000000000');
    expect(await store.copyParts.many({}), 'they go with their last row').to.deep.equal([]);
  });
});
