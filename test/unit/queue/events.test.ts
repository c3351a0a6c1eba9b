import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import type { Delivery, Spool } from '../../../src/queue/delivery.ts';
import type { EventNews, FreezeOutcome } from '../../../src/queue/events.ts';
import { hook, idsIn, LIMITS, someEvents, wanted } from '../../support/hooks.ts';
import { attempt, freshSpool, type OpenedSpool, openOne, put, settled } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';

const ids = createIds(systemClock);
const HOUR = 3_600_000;

describe('events on the spool', function () {
  this.timeout(30_000);
  let world: OpenedSpool;
  let news: EventNews[];
  beforeEach(async () => {
    world = await freshSpool();
    news = [];
    world.spool.events.onNews((one) => news.push(one));
  });

  const publish = (count: number, from = 0, to = hook()) =>
    world.spool.events.publish([wanted(someEvents(count, from), to)], world.clock.now());
  const freeze = (limits = LIMITS, webhook = '4') =>
    world.spool.events.freeze(webhook, ids.message(), limits, world.clock.now());
  const settle = (delivery: Delivery, change: Parameters<typeof settled>[2] = {}) =>
    world.spool.settle(settled(world.clock, delivery, change));
  const fail = (delivery: Delivery, change: Parameters<typeof settled>[2] = {}) =>
    settle(delivery, { attempt: { ...attempt(world.clock, 500), answer: 'Oh no' }, state: 'waiting', ...change });
  const pending = async (spool: Spool = world.spool) =>
    (await spool.events.pending(10_000)).map(({ webhook, pending: { events } }) => [webhook, events]);
  const made = ({ delivery }: FreezeOutcome): Delivery => {
    if (!delivery) throw new Error('no batch was made');
    return delivery;
  };
  const tally = async () => {
    const [
      { batches, events, sentAt, error, errorAt } = { batches: 0, events: 0, sentAt: null, error: null, errorAt: null },
    ] = await world.spool.events.tallies();
    return { batches, events, sentAt, error, errorAt };
  };

  it('wait for each subscribed webhook, over a restart, and are stored once', async () => {
    await world.spool.events.publish([wanted(someEvents(3)), wanted(someEvents(2, 1), hook('8'))], world.clock.now());
    await publish(4, 2);
    const bytes = (count: number, from: number) =>
      someEvents(count, from).reduce((sum, { body }) => sum + body.length, 0);
    expect(news).to.deep.equal([
      { kind: 'pending', webhook: '4', events: 3, bytes: bytes(3, 0) },
      { kind: 'pending', webhook: '8', events: 2, bytes: bytes(2, 1) },
      { kind: 'pending', webhook: '4', events: 3, bytes: bytes(3, 3) },
    ]);
    expect(await pending(await world.reopen())).to.deep.equal([
      ['4', 6],
      ['8', 2],
    ]);
  });

  it('become one batch with one delivery, in order of arrival', async () => {
    await publish(3);
    const heard: Delivery[] = [];
    world.spool.onChange((fresh) => heard.push(...fresh));
    const { delivery, blocked, left } = await freeze();
    expect({ blocked, left }).to.deep.equal({ blocked: false, left: { events: 0, bytes: 0, since: 0 } });
    expect(heard).to.deep.equal([delivery]);
    expect(delivery).to.deep.include({
      account: 'acme',
      url: hook().url,
      routeId: '',
      pattern: '',
      recipient: '',
      batch: { webhook: '4', events: 3 },
    });
    expect(await idsIn(world.spool, delivery)).to.deep.equal(['e0', 'e1', 'e2']);
    expect(await world.spool.delivery(delivery?.id ?? '')).to.deep.include({
      ...delivery,
      state: 'waiting',
      attempts: 0,
      dueAt: world.clock.now(),
    });
    expect(world.spool.backlog('acme')).to.equal(1);
    expect(await pending()).to.deep.equal([]);
    expect(await freeze()).to.deep.include({ delivery: null, blocked: false });
  });

  it('are deduplicated against a batch too, for as long as it is kept', async () => {
    await publish(3);
    const delivery = made(await freeze());
    await publish(4);
    expect(await pending()).to.deep.equal([['4', 1]]);
    await settle(delivery);
    await publish(2);
    expect(await pending()).to.deep.equal([['4', 1]]);
    world.clock.jump(1000);
    await world.spool.purge({ deliveredBefore: world.clock.now(), deadBefore: 0, deliveredBytes: 1e9 });
    expect(await world.spool.message(delivery.messageId)).to.equal(undefined);
    await publish(2);
    expect(await pending()).to.deep.equal([['4', 3]]);
  });

  it('are split at the number and the bytes of a batch, and a larger one goes alone', async () => {
    await publish(25);
    const limits = { events: 10, bytes: 1_000_000 };
    const sizes = [];
    for (let i = 0; i < 3; i++) sizes.push((await idsIn(world.spool, (await freeze(limits)).delivery)).length);
    expect(sizes).to.deep.equal([10, 10, 5]);

    const to = hook('8');
    await world.spool.events.publish(
      [wanted([...someEvents(10, 100, 300), ...someEvents(1, 200, 5000), ...someEvents(1, 300, 300)], to)],
      world.clock.now(),
    );
    const bodies = [];
    for (let i = 0; i < 4; i++) {
      const found = await world.spool.message(made(await freeze({ events: 1000, bytes: 2000 }, '8')).messageId);
      bodies.push(found?.body.kind === 'memory' ? found.body.bytes.byteLength : 0);
    }
    expect(bodies[0]).to.be.within(1700, 2000); // six; a seventh would be too many
    expect(bodies[1]).to.be.within(1100, 1300);
    expect(bodies[2]).to.be.greaterThan(4000);
    expect(bodies[3]).to.be.lessThan(400);
  });

  it('return the remaining number, up to one batch', async () => {
    await publish(30);
    world.clock.jump(500);
    await publish(5, 30);
    const { left } = await freeze({ events: 10, bytes: 1_000_000 });
    expect(left).to.deep.include({ events: 10, since: world.clock.now() - 500 });
  });

  it('make at most four open batches, and the next when one of them has ended or is parked', async () => {
    await publish(10);
    const one = { events: 1, bytes: 1000 };
    const [first, second, third] = [
      made(await freeze(one)),
      made(await freeze(one)),
      made(await freeze(one)),
      made(await freeze(one)),
    ];
    const blocked = async () => (await freeze(one)).blocked;
    expect(await freeze(one)).to.deep.include({ delivery: null, blocked: true });
    await fail(first, { dueAt: world.clock.now() + 5000 });
    expect(await blocked(), 'deferred is open').to.equal(true);
    await settle(second);
    expect(await blocked()).to.equal(false);
    expect(await blocked()).to.equal(true);
    await fail(third, { parked: true });
    expect(await blocked(), 'parked is not').to.equal(false);
    expect(await blocked()).to.equal(true);
    await world.spool.drop({ webhook: '4', states: ['waiting'] }, world.clock.now());
    expect(await blocked()).to.equal(false);
  });

  it('are frozen once if the answer was lost', async () => {
    await publish(3);
    const id = ids.message();
    const first = await world.spool.events.freeze('4', id, LIMITS, world.clock.now());
    await publish(1, 10);
    const again = await world.spool.events.freeze('4', id, LIMITS, world.clock.now());
    expect(again.delivery).to.deep.equal(first.delivery);
    expect(again.left.events).to.equal(1);
  });

  describe('are counted for their webhook', () => {
    it('once for each batch, on success, with the settlement, over replays and a restart', async () => {
      await publish(3);
      const delivery = made(await freeze());
      expect(await tally()).to.deep.equal({ batches: 0, events: 0, sentAt: null, error: null, errorAt: null });
      await settle(delivery);
      const counted = { batches: 1, events: 3, sentAt: world.clock.now(), error: null, errorAt: null };
      expect(await tally()).to.deep.equal(counted);
      expect(news.at(-1)).to.deep.include({ kind: 'settled', webhook: '4' });
      await world.spool.replay({ ids: [delivery.id] }, world.clock.now());
      await settle(delivery);
      await world.reopen();
      expect(await tally()).to.deep.equal(counted);
    });

    it('even if the batch was dropped in flight', async () => {
      await publish(2);
      const delivery = made(await freeze());
      await world.spool.drop({ ids: [delivery.id] }, world.clock.now());
      await settle(delivery);
      expect(await tally()).to.include({ batches: 1, events: 2 });
      expect((await world.spool.delivery(delivery.id))?.state).to.equal('dropped');
    });

    it('with a failure described in words', async () => {
      await publish(2);
      const delivery = made(await freeze());
      await fail(delivery);
      expect(await tally()).to.deep.equal({
        batches: 0,
        events: 0,
        sentAt: null,
        error: `POST to ${hook().url} failed with 500: Oh no`,
        errorAt: world.clock.now(),
      });
      await settle(delivery, { attempt: attempt(world.clock, null), state: 'waiting' });
      expect((await tally()).error).to.equal(`POST to ${hook().url} failed: timeout`);
    });

    it('under a name unique to this queue', async () => {
      const other = await freshSpool();
      for (const { spool, clock } of [world, other]) {
        await spool.events.publish([wanted(someEvents(1))], clock.now());
        const { delivery } = await spool.events.freeze('4', ids.message(), LIMITS, clock.now());
        if (delivery) await spool.settle(settled(clock, delivery));
      }
      const [mine] = await world.spool.events.tallies();
      const [theirs] = await other.spool.events.tallies();
      expect(mine?.spool)
        .to.match(/^[0-9a-z]+$/)
        .and.not.equal(theirs?.spool);
      const [after] = await (await world.reopen()).events.tallies();
      expect(after?.spool).to.equal(mine?.spool);
    });
  });

  it('are dropped with their waiting batches when the webhook is deleted, and rejected afterwards', async () => {
    await publish(5);
    const delivery = made(await freeze({ events: 2, bytes: 10_000 }));
    await publish(1, 50, hook('8'));
    await world.spool.events.forget('4', world.clock.now());
    expect((await world.spool.delivery(delivery.id))?.state).to.equal('dropped');
    await publish(3, 100);
    expect(await pending()).to.deep.equal([['8', 1]]);
    expect(await world.spool.events.hooks()).to.deep.equal([hook('8')]);
    await settle(delivery);
    expect(await world.spool.events.tallies()).to.deep.equal([]);
    expect(world.spool.backlog('acme')).to.equal(0);
  });

  it('follow the new URL of their webhook, if pending, waiting or failed', async () => {
    await publish(5);
    const one = { events: 1, bytes: 10_000 };
    const [waiting, dead, delivered] = [made(await freeze(one)), made(await freeze(one)), made(await freeze(one))];
    await fail(dead, { state: 'dead' });
    await settle(delivered);
    await put(world.spool, world.clock, { url: hook().url });
    await world.spool.events.redirect('4', 'https://new.example/hook');
    const urls = async (...all: Delivery[]) =>
      (await world.spool.list({ ids: all.map(({ id }) => id) }, 10)).map(({ url }) => url);
    expect(await urls(waiting, dead)).to.deep.equal(['https://new.example/hook', 'https://new.example/hook']);
    expect(await urls(delivered)).to.deep.equal([hook().url]);
    expect(made(await freeze()).url).to.equal('https://new.example/hook');
    expect(await world.spool.count({ url: hook().url, states: ['waiting'] }), 'mail to the old URL stays').to.include({
      waiting: 1,
    });
  });

  it('are dropped when they have waited too long for a batch', async () => {
    await publish(3);
    world.clock.jump(HOUR);
    await publish(2, 10);
    await publish(1, 20, hook('8'));
    expect(await world.spool.events.expire(world.clock.now())).to.deep.equal([{ webhook: '4', events: 3 }]);
    expect(await world.spool.events.expire(world.clock.now())).to.deep.equal([]);
    expect(await pending()).to.deep.equal([
      ['4', 2],
      ['8', 1],
    ]);
  });

  it('make a batch at once when they are sent alone, whatever else is pending or open', async () => {
    await publish(5);
    for (let i = 0; i < 4; i++) await freeze({ events: 1, bytes: 1000 });
    const delivery = await world.spool.events.send(wanted(someEvents(2, 90)), ids.message(), world.clock.now());
    expect(await idsIn(world.spool, delivery)).to.deep.equal(['e90', 'e91']);
    expect(await pending()).to.deep.equal([['4', 1]]);
  });

  it('are separate from mail in selections of deliveries', async () => {
    const { delivery: mail } = await put(world.spool, world.clock);
    await publish(1);
    await publish(1, 1, hook('8'));
    const batches = [made(await freeze()).id, made(await freeze(LIMITS, '8')).id];
    const list = async (selection: Parameters<Spool['list']>[0]) =>
      (await world.spool.list(selection, 10)).map(({ id }) => id);
    expect(await list({ kinds: ['inbound'] })).to.deep.equal([mail.id]);
    expect(await list({ kinds: ['events'] })).to.have.members(batches);
    expect(await list({ webhook: '8' })).to.deep.equal([batches[1]]);
    expect(await list({})).to.have.members([mail.id, ...batches]);
    expect(await world.spool.count({ kinds: ['inbound'] })).to.include({ waiting: 1 });
    expect(await world.spool.drop({ kinds: ['inbound'] }, world.clock.now())).to.equal(1);
  });

  it('are rejected when the disk is nearly full, and stay with their rows', async () => {
    const dir = await tempDir();
    const spool = await openOne(
      dir,
      { clock: world.clock, log: world.log },
      { dir, minFreePercent: 100, minFreeBytes: 0, maxMessageBytes: 1 },
    );
    const failure = await spool.events.publish([wanted(someEvents(1))], world.clock.now()).then(
      () => undefined,
      (error: Error) => error.name,
    );
    expect(failure).to.equal('SpoolFull');
    expect(await spool.events.pending(10)).to.deep.equal([]);
  });
});
