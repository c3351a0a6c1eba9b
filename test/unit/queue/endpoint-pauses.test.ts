import { expect } from 'chai';
import type { Endpoint } from '../../../src/queue/delivery.ts';
import { createEndpointPauses, type EndpointPauses } from '../../../src/queue/endpoint-pauses.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { aDelivery } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';
import { createTestLog } from '../../support/log.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const A: Endpoint = { account: 'acc', url: 'https://a.example/hook', kind: 'inbound' };

describe('the pauses of endpoints, in the store', () => {
  let store: Store;
  let near: Bench;
  let far: Bench;
  let here: EndpointPauses;
  let there: EndpointPauses;

  const open = (bench: Bench, rows: Pick<Store, 'pauses' | 'revisions'> = store) =>
    createEndpointPauses(
      { alone: false },
      { store: rows, dispatcher: bench.dispatcher, clock: bench.clock, log: createTestLog() },
    );
  const holdOn = (bench: Bench) => bench.dispatcher.lanes(({ url }) => url === A.url)[0]?.hold;
  /** Lets a host look at the store until it has seen a change. */
  const sees = (bench: Bench, isSeen: () => boolean) =>
    until('the host sees it', async () => {
      await bench.clock.advance(SECOND);
      return isSeen();
    });
  const start = async (bench: Bench, pauses: EndpointPauses) => {
    await bench.dispatcher.start(await pauses.known());
    await pauses.start();
  };
  const stopped = async (bench: Bench, pauses: EndpointPauses) => {
    await pauses.stop();
    const stopping = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopping;
  };

  beforeEach(async () => {
    store = await openTestStore();
    [near, far] = [await createBench(), await createBench()];
    [here, there] = [open(near), open(far)];
    await start(near, here);
    await start(far, there);
  });
  afterEach(async () => {
    await stopped(near, here);
    await stopped(far, there);
    await store.close();
  });

  it('hold on every host, and end so', async () => {
    const end = near.clock.now() + HOUR;
    expect(await here.pause(A, end, 'account')).to.equal(undefined);
    expect(holdOn(near)).to.include({ by: 'account', until: end });
    await sees(far, () => Boolean(holdOn(far)));
    expect(holdOn(far)).to.include({ by: 'account', until: end });
    await far.put([aDelivery(A.url)]);
    await settleDown(far);
    expect(far.postsTo(A.url)).to.deep.equal([]);
    expect(await there.resume(A, 'account')).to.equal(undefined);
    await sees(near, () => holdOn(near) === null);
    await settleDown(far);
    expect(far.postsTo(A.url)).to.have.length(1);
  });

  it('are changed and counted on any host', async () => {
    const end = near.clock.now() + HOUR;
    await here.pause(A, end, 'account');
    await there.pause(A, end + HOUR, 'account');
    await there.pause({ ...A, url: 'https://b.example' }, end, 'account');
    await sees(near, () => holdOn(near)?.until === end + HOUR);
    expect(await here.count('acc', 10)).to.equal(2);
    expect(await here.count('other', 10)).to.equal(0);
  });

  it('of the operator are not ended or changed by the account on a host that has not seen them yet', async () => {
    const end = near.clock.now() + HOUR;
    await here.pause(A, end, 'operator');
    expect(await there.pause(A, end + HOUR, 'account')).to.deep.equal(new Date(end));
    expect(await there.resume(A, 'account')).to.deep.equal(new Date(end));
    await sees(far, () => Boolean(holdOn(far)));
    expect(holdOn(far)).to.include({ by: 'operator', until: end });
    expect(await there.resume(A, 'operator')).to.equal(undefined);
    expect(await here.count('acc', 10)).to.equal(0);
  });

  it('that ended leave the store, and do not count', async () => {
    await here.pause(A, near.clock.now() + HOUR, 'operator');
    await near.clock.advance(HOUR + SECOND);
    await far.clock.advance(HOUR + SECOND);
    expect(await here.count('acc', 10)).to.equal(0);
    expect(await here.pause(A, near.clock.now() + HOUR, 'account'), 'the operator has ended').to.equal(undefined);
    expect(holdOn(near)).to.include({ by: 'account' });
  });

  it('become rows if a version without them has made them, and hold on the other hosts', async () => {
    const [since, end] = [near.clock.now(), near.clock.now() + HOUR];
    const memory = { phase: 'closed', since, probeAt: since, hold: { by: 'account', since, until: end } };
    const old = await createBench();
    await old.spool.keepEndpoint(A, JSON.stringify(memory));
    const upgraded = open(old);
    await start(old, upgraded);
    expect((await store.pauses.many({})).map(({ url, by }) => ({ url, by }))).to.deep.equal([
      { url: A.url, by: 'account' },
    ]);
    await sees(far, () => Boolean(holdOn(far)));
    expect(holdOn(far)).to.include({ by: 'account', until: end });
    expect(await there.resume(A, 'account')).to.equal(undefined);
    await sees(old, () => holdOn(old) === null);
    await stopped(old, upgraded);
  });

  it('that were made or ended while a host was down are known to it when it starts', async () => {
    const down = await createBench();
    const end = near.clock.now() + HOUR;
    const shared = { by: 'account', since: near.clock.now(), until: end, shared: true };
    const memory = { phase: 'closed', since: 0, probeAt: 0, hold: shared };
    const ended: Endpoint = { ...A, url: 'https://ended.example' };
    await down.spool.keepEndpoint(ended, JSON.stringify(memory));
    await down.put([aDelivery(A.url)]);
    await here.pause(A, end, 'account');
    const back = open(down);
    await start(down, back);
    await settleDown(down);
    expect(down.postsTo(A.url)).to.deep.equal([]);
    expect(down.dispatcher.isHeld(ended)).to.equal(false);
    await back.resume(A, 'account');
    await settleDown(down);
    expect(down.postsTo(A.url)).to.have.length(1);
    await stopped(down, back);
  });

  it('stay as they are while the store is away, and cannot be changed', async () => {
    const end = far.clock.now() + HOUR;
    await there.pause(A, end, 'account');
    let isAway = false;
    const mayFail = <T extends object>(rows: T): T =>
      new Proxy(rows, {
        get: (target, name) => (isAway ? () => Promise.reject(new StoreAway('away')) : Reflect.get(target, name)),
      });
    const third = await createBench();
    const cut = open(third, { pauses: mayFail(store.pauses), revisions: mayFail(store.revisions) });
    await start(third, cut);
    isAway = true;
    const error = await cut.resume(A, 'account').catch((thrown: unknown) => thrown);
    expect(error).to.be.instanceOf(StoreAway);
    await third.clock.advance(90 * SECOND);
    expect(holdOn(third)).to.include({ by: 'account', until: end });
    expect(await cut.known()).to.deep.equal([]);
    await stopped(third, cut);
  });
});
