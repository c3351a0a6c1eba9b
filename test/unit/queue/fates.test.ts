import { expect } from 'chai';
import { freshSpool, put, settled } from '../../support/spool.ts';

const held = { fate: { state: 'held', note: 'held by route 1.1' } } as const;
const dropped = { fate: { state: 'dropped', note: 'discarded by route 1.2' } } as const;
const FOREVER = { deliveredBytes: Number.MAX_SAFE_INTEGER };

describe('mail that its route holds or discards', () => {
  it('is on the queue with the reason, over a restart, and is not dispatched', async () => {
    const opened = await freshSpool();
    const { clock } = opened;
    const heard: string[] = [];
    opened.spool.onChange((fresh) => heard.push(...fresh.map(({ id }) => id)));
    const [one, two, three] = [
      await put(opened.spool, clock, held),
      await put(opened.spool, clock, dropped),
      await put(opened.spool, clock),
    ];
    expect(heard).to.deep.equal([three.delivery.id]);
    expect(opened.spool.backlog('acme')).to.equal(1);
    const spool = await opened.reopen();
    expect(await spool.delivery(one.delivery.id)).to.include({
      state: 'held',
      lastError: 'held by route 1.1',
      attempts: 0,
    });
    expect(await spool.delivery(two.delivery.id)).to.include({ state: 'dropped', lastError: 'discarded by route 1.2' });
    expect(await spool.count({})).to.deep.equal({ waiting: 1, delivered: 0, dead: 0, dropped: 1, held: 1 });
    expect(spool.backlog('acme')).to.equal(1);
    expect((await spool.due('acme', three.delivery.url, clock.now(), 10, [])).map(({ id }) => id)).to.deep.equal([
      three.delivery.id,
    ]);
    expect((await spool.message(one.delivery.messageId))?.body).to.have.property('kind', 'memory');
  });

  it('is delivered after a replay, with a new retry period, and is held no longer than dead letters', async () => {
    const { spool, clock } = await freshSpool();
    const [one, two, three] = [
      await put(spool, clock, held),
      await put(spool, clock, held),
      await put(spool, clock, dropped),
    ];
    await clock.advance(1000);
    expect(await spool.replay({ states: ['held'], ids: [one.delivery.id] }, clock.now())).to.equal(1);
    expect(await spool.delivery(one.delivery.id)).to.include({
      state: 'waiting',
      lastError: null,
      budgetFrom: clock.now(),
    });
    expect(await spool.purge({ ...FOREVER, deliveredBefore: clock.now(), deadBefore: 0 })).to.equal(1);
    expect(await spool.delivery(three.delivery.id)).to.equal(undefined);
    expect(await spool.purge({ ...FOREVER, deliveredBefore: 0, deadBefore: clock.now() })).to.equal(1);
    expect(await spool.delivery(two.delivery.id)).to.equal(undefined);
    await spool.settle(settled(clock, one.delivery));
    expect(await spool.delivery(one.delivery.id)).to.include({ state: 'delivered' });
  });

  it('can be dropped, and follows the URL of its route; mail discarded without a URL stays', async () => {
    const { spool, clock } = await freshSpool();
    const [one, two, three] = [
      await put(spool, clock, { ...held, routeId: '1.1' }),
      await put(spool, clock, { ...held, routeId: '1.1+2' }),
      await put(spool, clock, { ...dropped, url: '', routeId: '1.2' }),
    ];
    expect(await spool.redirect('1.1', 'https://moved.test/')).to.equal(1);
    expect((await spool.delivery(one.delivery.id))?.url).to.equal('https://moved.test/');
    expect((await spool.list({ routeIds: ['1.1'] }, 10)).map(({ id }) => id)).to.have.members([
      one.delivery.id,
      two.delivery.id,
    ]);
    expect(await spool.drop({ states: ['held'] }, clock.now())).to.equal(2);
    expect(await spool.replay({ ids: [three.delivery.id] }, clock.now())).to.equal(0);
  });
});
