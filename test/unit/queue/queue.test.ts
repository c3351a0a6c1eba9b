import { expect } from 'chai';
import { attempt, freshSpool, put, settled } from '../../support/spool.ts';

const A = 'https://a.example/in';
const B = 'https://b.example/in';

describe('the queue of the spool', () => {
  it('returns due deliveries of one endpoint, oldest first, without those in flight', async () => {
    const { spool, clock } = await freshSpool();
    const first = await put(spool, clock, { url: A });
    clock.jump(10);
    const second = await put(spool, clock, { url: A });
    await put(spool, clock, { url: B });
    await put(spool, clock, { url: A, account: 'other' });
    clock.jump(10);
    const third = await put(spool, clock, { url: A });
    const due = async (now: number, limit: number, except: string[]) =>
      (await spool.due('acme', A, now, limit, except)).map(({ id }) => id);
    expect(await due(clock.now(), 10, [])).to.deep.equal([first.delivery.id, second.delivery.id, third.delivery.id]);
    expect(await due(clock.now(), 1, [first.delivery.id])).to.deep.equal([second.delivery.id]);
    expect(await due(clock.now() - 10, 10, [first.delivery.id])).to.deep.equal([second.delivery.id]);
    expect(await due(clock.now() - 100, 10, [])).to.deep.equal([]);
  });

  it('reschedules a deferred delivery with its attempt, and counts attempts until a replay', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.settle(
      settled(clock, delivery, {
        attempt: attempt(clock, null),
        state: 'waiting',
        dueAt: clock.now() + 5000,
        parked: true,
      }),
    );
    const queued = await spool.delivery(delivery.id);
    expect(queued).to.include({
      state: 'waiting',
      attempts: 1,
      parked: true,
      dueAt: clock.now() + 5000,
      lastStatus: null,
      lastError: 'timeout',
      endedAt: null,
    });
    expect(await spool.due('acme', delivery.url, clock.now(), 10, [])).to.have.length(0);
    expect(await spool.due('acme', delivery.url, clock.now() + 5000, 10, [])).to.have.length(1);
    expect(spool.backlog('acme')).to.equal(1);
  });

  it('ends a delivery with its time and status', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.settle(settled(clock, delivery));
    expect(await spool.delivery(delivery.id)).to.include({
      state: 'delivered',
      attempts: 1,
      endedAt: clock.now(),
      lastStatus: 200,
      lastError: null,
    });
    expect(spool.backlog('acme')).to.equal(0);
    expect(await spool.endpoints()).to.deep.equal([]);
  });

  it('records the attempt of a delivery that was dropped meanwhile, and leaves it dropped', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    expect(await spool.drop({ ids: [delivery.id] }, clock.now())).to.equal(1);
    await spool.settle(settled(clock, delivery));
    expect(await spool.delivery(delivery.id)).to.include({ state: 'dropped', attempts: 0, lastStatus: 200 });
    expect(await spool.attempts(delivery.id)).to.have.length(1);
    expect(spool.backlog('acme')).to.equal(0);
    await spool.settle(settled(clock, { ...delivery, id: 'gone' }));
  });

  it('keeps the last 50 attempts of a delivery', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    for (let i = 1; i <= 55; i++) {
      await spool.settle(
        settled(clock, delivery, { attempt: { ...attempt(clock, 500), answer: `answer ${i}` }, state: 'waiting' }),
      );
    }
    const attempts = await spool.attempts(delivery.id);
    expect(attempts.map(({ answer }) => answer)).to.deep.equal(Array.from({ length: 50 }, (_, i) => `answer ${i + 6}`));
    expect((await spool.delivery(delivery.id))?.attempts).to.equal(55);
  });

  it('knows every endpoint with waiting mail or a saved state, also after a restart', async () => {
    const opened = await freshSpool();
    await put(opened.spool, opened.clock, { url: A });
    opened.clock.jump(1000);
    await put(opened.spool, opened.clock, { url: A });
    await opened.spool.keepEndpoint({ account: 'acme', url: B, kind: 'inbound' }, '{"breaker":"open"}');
    const { delivery } = await put(opened.spool, opened.clock, { url: 'https://c.example/' });
    await opened.spool.settle(settled(opened.clock, delivery));
    const expected = [
      { account: 'acme', url: A, kind: 'inbound', waiting: 2, nextDue: opened.clock.now() - 1000, memory: null },
      {
        account: 'acme',
        url: B,
        kind: 'inbound',
        waiting: 0,
        nextDue: Number.MAX_SAFE_INTEGER,
        memory: '{"breaker":"open"}',
      },
    ];
    expect(await opened.spool.endpoints()).to.deep.equal(expected);
    const spool = await opened.reopen();
    expect(await spool.endpoints()).to.deep.equal(expected);
    expect(spool.backlog('acme')).to.equal(2);
    await spool.keepEndpoint({ account: 'acme', url: B, kind: 'inbound' }, null);
    expect((await spool.endpoints()).map(({ url }) => url)).to.deep.equal([A]);
  });

  it('replays ended deliveries under the same id with a new retry period', async () => {
    const { spool, clock } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await spool.settle(settled(clock, delivery, { attempt: attempt(clock, 500), state: 'dead', parked: true }));
    clock.jump(60_000);
    let changes = 0;
    spool.onChange((fresh) => {
      if (fresh.length === 0) changes++;
    });
    expect(await spool.replay({ ids: [delivery.id] }, clock.now())).to.equal(1);
    expect(changes).to.be.greaterThan(0);
    expect(await spool.delivery(delivery.id)).to.include({
      id: delivery.id,
      state: 'waiting',
      attempts: 0,
      budgetFrom: clock.now(),
      dueAt: clock.now(),
      parked: false,
      endedAt: null,
    });
    expect(await spool.replay({}, clock.now())).to.equal(0);
    expect(spool.backlog('acme')).to.equal(1);
    expect(await spool.attempts(delivery.id)).to.have.length(1);
  });

  it('makes selected waiting ones due, and drops selected waiting and failed ones', async () => {
    const { spool, clock } = await freshSpool();
    const later = await put(spool, clock, { url: A });
    const dead = await put(spool, clock, { url: A });
    const other = await put(spool, clock, { url: B });
    await spool.settle(settled(clock, later.delivery, { state: 'waiting', dueAt: clock.now() + 1e6 }));
    await spool.settle(settled(clock, dead.delivery, { state: 'dead' }));
    expect(await spool.retry({ url: A }, clock.now())).to.equal(1);
    expect(await spool.due('acme', A, clock.now(), 10, [])).to.have.length(1);
    expect(await spool.drop({ url: A }, clock.now())).to.equal(2);
    expect(await spool.count({})).to.deep.equal({ waiting: 1, delivered: 0, dead: 0, dropped: 2, held: 0 });
    expect((await spool.delivery(other.delivery.id))?.state).to.equal('waiting');
  });

  it('redirects waiting and failed mail of a route to another URL', async () => {
    const { spool, clock } = await freshSpool();
    const waits = await put(spool, clock, { url: A, routeId: '1.1' });
    const dead = await put(spool, clock, { url: A, routeId: '1.1' });
    const done = await put(spool, clock, { url: A, routeId: '1.1' });
    const other = await put(spool, clock, { url: A, routeId: '1.2' });
    await spool.settle(settled(clock, dead.delivery, { state: 'dead' }));
    await spool.settle(settled(clock, done.delivery));
    expect(await spool.redirect('1.1', B)).to.equal(2);
    const urlOf = async ({ delivery }: { delivery: { id: string } }) => (await spool.delivery(delivery.id))?.url;
    expect([await urlOf(waits), await urlOf(dead), await urlOf(done), await urlOf(other)]).to.deep.equal([B, B, A, A]);
    expect((await spool.endpoints()).map(({ url, waiting }) => [url, waiting])).to.have.deep.members([
      [A, 1],
      [B, 1],
    ]);
    expect(spool.backlog('acme')).to.equal(2);
  });

  it('lists the newest first, by every filter of a selection', async () => {
    const { spool, clock } = await freshSpool();
    const start = clock.now();
    const a = await put(spool, clock, { url: A, routeId: '1.1', recipients: ['ann@example.com'] });
    clock.jump(1000);
    const b = await put(spool, clock, { url: B, routeId: '1.2', recipients: ['bob@example.com'] });
    clock.jump(1000);
    const c = await put(spool, clock, { account: 'other', url: A, routeId: '2.1', recipients: ['cat@example.com'] });
    await spool.settle(settled(clock, b.delivery));
    const names = new Map([
      [a.delivery.id, 'a'],
      [b.delivery.id, 'b'],
      [c.delivery.id, 'c'],
    ]);
    const list = async (selection: Parameters<typeof spool.list>[0], limit = 10) =>
      (await spool.list(selection, limit)).map(({ id }) => names.get(id)).join('');
    expect(await list({})).to.equal('cba');
    expect(await list({}, 2)).to.equal('cb');
    expect(await list({ account: 'acme' })).to.equal('ba');
    expect(await list({ url: A })).to.equal('ca');
    expect(await list({ account: 'acme', url: A })).to.equal('a');
    expect(await list({ routeIds: ['1.2', '2.1'] })).to.equal('cb');
    expect(await list({ routeIds: [] })).to.equal('');
    expect(await list({ states: ['delivered', 'dead'] })).to.equal('b');
    expect(await list({ recipient: 'ann@example.com' })).to.equal('a');
    expect(await list({ from: start + 1000 })).to.equal('cb');
    expect(await list({ from: start, to: start + 1000 })).to.equal('a');
    expect(await list({ ids: [a.delivery.id, c.delivery.id, 'none'] })).to.equal('ca');
    expect(await list({ account: 'nobody' })).to.equal('');
    expect(await spool.count({ account: 'acme' })).to.deep.equal({
      waiting: 1,
      delivered: 1,
      dead: 0,
      dropped: 0,
      held: 0,
    });
  });

  it('deletes old ended deliveries with their attempts, and keeps a message while any delivery is left', async () => {
    const { spool, clock } = await freshSpool();
    const both = await put(spool, clock, { recipients: ['a@example.com', 'b@example.com'] });
    const dead = await put(spool, clock);
    const [first, second] = both.deliveries;
    if (!first || !second) throw new Error('two deliveries');
    await spool.settle(settled(clock, first));
    await spool.settle(settled(clock, dead.delivery, { state: 'dead' }));
    clock.jump(1000);
    const none = { deliveredBefore: 0, deadBefore: 0, deliveredBytes: 1e9 };
    expect(await spool.purge(none)).to.equal(0);
    expect(await spool.purge({ ...none, deliveredBefore: clock.now() })).to.equal(1);
    expect(await spool.delivery(first.id)).to.equal(undefined);
    expect(await spool.attempts(first.id)).to.deep.equal([]);
    expect(await spool.message(both.message.id)).to.not.equal(undefined);
    expect((await spool.delivery(dead.delivery.id))?.state).to.equal('dead');
    await spool.settle(settled(clock, second));
    clock.jump(1000);
    expect(await spool.purge({ ...none, deliveredBefore: clock.now(), deadBefore: clock.now() })).to.equal(2);
    expect(await spool.message(both.message.id)).to.equal(undefined);
    expect(await spool.message(dead.message.id)).to.equal(undefined);
    expect(await spool.count({})).to.deep.equal({ waiting: 0, delivered: 0, dead: 0, dropped: 0, held: 0 });
  });

  it('deletes at once those settled for deletion, when the last delivery of the message has ended', async () => {
    const { spool, clock } = await freshSpool();
    const {
      message,
      deliveries: [first, second],
    } = await put(spool, clock, { recipients: ['a@example.com', 'b@example.com'] });
    const given = await put(spool, clock);
    if (!first || !second) throw new Error('two deliveries');
    const none = { deliveredBefore: 1, deadBefore: 1, deliveredBytes: 1e9 };
    await spool.settle({ ...settled(clock, first), forget: true });
    await spool.settle({ ...settled(clock, second, { state: 'waiting' }), forget: true });
    await spool.settle({ ...settled(clock, given.delivery, { state: 'dead' }), forget: true });
    expect(await spool.purge(none)).to.equal(2);
    expect(await spool.message(given.message.id)).to.equal(undefined);
    expect(await spool.message(message.id), 'one of its recipients does not have it yet').to.not.equal(undefined);
    await spool.settle({ ...settled(clock, second), forget: true });
    expect(await spool.purge(none)).to.equal(1);
    expect(await spool.message(message.id)).to.equal(undefined);
  });

  it('deletes the oldest delivered ones above a number of bytes, in many steps', async () => {
    const { spool, clock } = await freshSpool();
    const kept: string[] = [];
    const body = () => ({ kind: 'memory' as const, bytes: new Uint8Array(1000) });
    for (let i = 0; i < 600; i++) {
      const { delivery } = await put(spool, clock, { body: body() });
      clock.jump(1);
      await spool.settle(settled(clock, delivery));
      if (i >= 500) kept.push(delivery.id);
    }
    expect(await spool.purge({ deliveredBefore: 0, deadBefore: 0, deliveredBytes: 100_000 })).to.equal(500);
    expect((await spool.list({}, 1000)).map(({ id }) => id)).to.deep.equal(kept.toReversed());
  });
});
