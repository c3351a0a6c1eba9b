import { expect } from 'chai';
import type { Endpoint } from '../../../src/queue/delivery.ts';
import { createBacklog } from '../../../src/queue/schedule/backlog.ts';
import { aDelivery, answered, refused } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const A: Endpoint = { account: 'acc', url: 'https://a.example/hook', kind: 'inbound' };
const B: Endpoint = { ...A, url: 'https://b.example/hook' };

describe('an endpoint paused by its account', () => {
  let bench: Bench;
  const open = async (...args: Parameters<typeof createBench>): Promise<Bench> => {
    bench = await createBench(...args);
    await bench.dispatcher.start();
    return bench;
  };
  const put = async (count: number, { url } = A) => {
    const all = Array.from({ length: count }, () => aDelivery(url));
    await bench.put(all);
    await settleDown(bench);
    return all;
  };
  const hold = (ms: number, endpoint = A) => bench.dispatcher.hold(endpoint, bench.clock.now() + ms, 'account');
  const counts = () => bench.spool.count({});
  const view = ({ url } = A) => bench.dispatcher.lanes((lane) => lane.url === url)[0];
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopped;
  });

  it('gets nothing until the pause expires, and then everything', async () => {
    const backlog = createBacklog(1000);
    await open({}, { backlog });
    await hold(HOUR);
    await put(300);
    expect(backlog.total(), 'nobody is slowed down for it').to.equal(0);
    await put(3, B);
    await bench.clock.advance(HOUR - SECOND);
    expect(bench.postsTo(A.url)).to.deep.equal([]);
    expect(bench.postsTo(B.url)).to.have.length(3);
    expect(view()?.hold).to.deep.equal({
      by: 'account',
      since: bench.clock.now() - HOUR + SECOND,
      until: bench.clock.now() + SECOND,
    });
    await bench.clock.advance(2 * SECOND);
    expect(await counts()).to.include({ waiting: 0, delivered: 303 });
    expect(view()?.hold).to.equal(null);
    expect(await bench.spool.endpoints()).to.deep.equal([]);
  });

  it('gets waiting mail as soon as it is resumed, and earlier failures when they are due', async () => {
    await open();
    bench.endpoint(() => answered(500));
    await put(1);
    await hold(DAY);
    bench.endpoint(() => answered(200));
    await put(2);
    await bench.clock.advance(2 * SECOND);
    await bench.dispatcher.release(A);
    await settleDown(bench);
    expect(bench.posts).to.have.length(3);
    await bench.clock.advance(3 * SECOND);
    expect(await counts()).to.include({ waiting: 0, delivered: 3 });
  });

  it('gets the attempts in flight, and nothing in preparation', async () => {
    await open();
    let answer = () => {};
    bench.endpoint(
      () =>
        new Promise((resolve) => {
          answer = () => resolve(answered(200));
        }),
    );
    const [first] = await put(1);
    bench.slow(() => true);
    await put(1);
    await hold(DAY);
    answer();
    await bench.clock.advance(MINUTE);
    expect(bench.posts.map(({ id }) => id)).to.deep.equal([first?.id]);
    expect(await counts()).to.include({ waiting: 1, delivered: 1 });
    bench.slow(() => false);
    bench.endpoint(() => answered(200));
    await bench.dispatcher.release(A);
    await settleDown(bench);
    expect(await counts()).to.include({ waiting: 0, delivered: 2 });
  });

  it('is not probed while it is down, and at once when it is resumed', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(20);
    expect(view()).to.include({ breaker: 'down', since: bench.clock.now() });
    await hold(DAY);
    expect(view()).to.include({ breaker: 'down', nextProbeAt: null });
    const before = bench.posts.length;
    await bench.clock.advance(HOUR);
    expect(bench.posts).to.have.length(before);
    bench.endpoint(() => answered(200));
    await bench.dispatcher.release(A);
    await settleDown(bench);
    expect(await counts()).to.include({ waiting: 0, delivered: 20 });
  });

  it('uses up the retry time of waiting mail', async () => {
    await open({ retryHours: 2 });
    await hold(DAY);
    await put(3);
    await bench.clock.advance(HOUR);
    expect(await counts()).to.include({ waiting: 3 });
    await bench.clock.advance(2 * HOUR);
    expect(await counts()).to.include({ waiting: 0, dead: 3 });
    expect(bench.posts).to.deep.equal([]);
    expect(bench.log.of('delivery.failed')[0]?.fields).to.include({ error: 'held by its account' });
  });

  it('is paused over a restart, until the set time', async () => {
    await open();
    await hold(HOUR);
    await hold(2 * HOUR, B);
    await put(1);
    await put(1, B);
    await bench.dispatcher.stop();
    await bench.clock.advance(HOUR + SECOND);
    const next = await bench.restart();
    await settleDown(bench);
    expect(bench.posts.map(({ url }) => url)).to.deep.equal([A.url]);
    expect(next.lanes(({ url }) => url === B.url)[0]?.hold).to.deep.equal({
      by: 'account',
      since: bench.clock.now() - HOUR - SECOND,
      until: bench.clock.now() + HOUR - SECOND,
    });
    await bench.clock.advance(HOUR);
    expect(bench.postsTo(B.url)).to.have.length(1);
    await next.stop();
  });

  it('is paused for seven days at most, for any caller and any earlier clock', async () => {
    await open();
    await hold(400 * DAY);
    expect(view()?.hold?.until).to.equal(bench.clock.now() + 7 * DAY);
    await bench.dispatcher.stop();
    bench.clock.jump(-400 * DAY);
    const next = await bench.restart();
    expect(next.lanes()[0]?.hold?.until).to.equal(bench.clock.now() + 7 * DAY);
    await next.stop();
  });

  it('keeps the start when the end is changed', async () => {
    await open();
    await hold(HOUR);
    const since = bench.clock.now();
    await bench.clock.advance(MINUTE);
    await hold(DAY);
    expect(view()?.hold).to.deep.equal({ by: 'account', since, until: since + MINUTE + DAY });
  });
});

describe('the state of the dispatcher', () => {
  let bench: Bench;
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopped;
  });
  const view = ({ url } = A) => bench.dispatcher.lanes((lane) => lane.url === url)[0];

  it('lists each lane: slots, attempts in flight, waiting and parked deliveries', async () => {
    bench = await createBench({ concurrencyPerEndpoint: 8, concurrencyAtStart: 2 });
    await bench.dispatcher.start();
    const [poison, ...others] = Array.from({ length: 8 }, () => aDelivery(A.url));
    bench.endpoint(({ id }) => answered(id === poison?.id ? 500 : 200));
    if (poison) await bench.put([poison]);
    for (const one of others.slice(0, 4)) {
      await bench.clock.advance(7 * MINUTE);
      await bench.put([one]);
    }
    await settleDown(bench);
    expect(view()).to.include({ breaker: 'up', since: null, nextProbeAt: null, waiting: 1, parked: 1, inFlight: 0 });
    expect(view()?.last).to.deep.equal({ result: answered(200), at: bench.clock.now() });

    let answer = () => {};
    bench.endpoint(
      () =>
        new Promise((resolve) => {
          answer = () => resolve(answered(200));
        }),
    );
    await bench.put(others.slice(4, 5));
    await settleDown(bench);
    expect(view()).to.include({ inFlight: 1, preparing: 0, ready: 0, waiting: 1, maxConcurrency: 8 });
    expect(view()?.concurrency).to.be.within(1, 8);
    answer();
  });

  it('lists deliveries in preparation, with the progress of each', async () => {
    const steps = new Map<string, { at: 'verdicts' | 'parsing'; question: string | null }>();
    bench = await createBench({}, { steps: async () => steps });
    await bench.dispatcher.start();
    bench.slow(() => true);
    const [first, second, other] = [aDelivery(A.url), aDelivery(A.url), aDelivery(B.url)];
    await bench.put([first, second, other]);
    await settleDown(bench);
    steps.set(first.id, { at: 'verdicts', question: 'TXT example.org' });
    await bench.clock.advance(6 * SECOND);
    const since = bench.clock.now() - 6 * SECOND;
    const common = { account: 'acc', url: A.url, kind: 'inbound', since };
    expect(await bench.dispatcher.preparing(A)).to.deep.equal([
      { id: first.id, ...common, waitsFor: 'verdicts', question: 'TXT example.org' },
      { id: second.id, ...common, waitsFor: 'preparing', question: null },
    ]);
    expect((await bench.dispatcher.preparing()).map(({ id }) => id)).to.have.members([first.id, second.id, other.id]);
    await bench.clock.advance(20 * SECOND);
    expect(await bench.dispatcher.preparing()).to.deep.equal([]);
  });

  it('allows retries one by one: a retry of one endpoint does not probe another', async () => {
    bench = await createBench();
    await bench.dispatcher.start();
    bench.endpoint(() => refused);
    await bench.put(Array.from({ length: 20 }, (_, n) => aDelivery(n % 2 ? A.url : B.url)));
    await settleDown(bench);
    expect([view(A)?.breaker, view(B)?.breaker]).to.deep.equal(['down', 'down']);
    await bench.clock.advance(SECOND);
    const before = { a: bench.postsTo(A.url).length, b: bench.postsTo(B.url).length };
    expect(await bench.dispatcher.retry(A)).to.equal(before.a);
    await settleDown(bench);
    expect(bench.postsTo(A.url)).to.have.length(before.a + 1);
    expect(bench.postsTo(B.url)).to.have.length(before.b);
    bench.endpoint(() => answered(200));
    await bench.dispatcher.retry(A);
    await settleDown(bench);
    expect(await bench.spool.count({ url: A.url })).to.include({ waiting: 0, delivered: 10 });
    expect(await bench.spool.count({ url: B.url })).to.include({ waiting: 10 });
    expect(await bench.dispatcher.retry({ account: 'nobody', url: A.url })).to.equal(0);
  });
});
