import { expect } from 'chai';
import { aDelivery, answered, refused, timedOut } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const URL_A = 'https://a.example/hook';
const URL_B = 'https://b.example/hook';

describe('a failing endpoint', () => {
  let bench: Bench;
  const open = async (...args: Parameters<typeof createBench>): Promise<Bench> => {
    bench = await createBench(...args);
    await bench.dispatcher.start();
    return bench;
  };
  const counts = () => bench.spool.count({});
  const put = async (count: number, url = URL_A) => {
    const all = Array.from({ length: count }, () => aDelivery(url));
    await bench.put(all);
    return all;
  };
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopped;
  });

  it('gets fewer than 200 posts in an hour of 500s, and all mail within minutes of its recovery', async () => {
    await open();
    bench.endpoint(() => answered(500));
    await put(2_000);
    await bench.clock.advance(HOUR);
    expect(bench.posts.length).to.be.within(100, 199);
    expect(await counts()).to.include({ waiting: 2_000 });

    bench.endpoint(() => answered(200));
    const before = bench.posts.length;
    await bench.clock.advance(MINUTE);
    expect(bench.posts.length).to.be.above(before);
    await bench.clock.advance(4 * MINUTE);
    expect(await counts()).to.include({ waiting: 0, delivered: 2_000 });
  }).timeout(30_000);

  it('gets all waiting mail at its recovery, including mail with a long delay', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(20);
    await bench.clock.advance(2 * HOUR);
    bench.endpoint(() => answered(200));
    await bench.clock.advance(40 * SECOND);
    expect(await counts()).to.include({ waiting: 0, delivered: 20 });
  });

  it('is probed with one delivery after another, not always with the same', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(50);
    await bench.clock.advance(10 * MINUTE);
    expect(new Set(bench.posts.map(({ id }) => id)).size).to.be.above(10);
  });

  it('recovers when one waiting delivery succeeds, whatever the others do', async () => {
    await open();
    const [poison] = await put(1);
    bench.endpoint(() => refused);
    await put(10);
    await bench.clock.advance(5 * MINUTE);
    bench.endpoint(({ id }) => answered(id === poison?.id ? 500 : 200));
    await bench.clock.advance(3 * MINUTE);
    expect(await counts()).to.include({ delivered: 10, waiting: 1 });
  });

  it('uses no attempts of waiting deliveries while it is down', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(300);
    await bench.clock.advance(MINUTE);
    const untouched = (await bench.rows()).filter(({ attempts }) => attempts === 0);
    expect(untouched.length).to.be.above(280);
  });

  it('is left alone for the time of Retry-After', async () => {
    await open();
    bench.endpoint(() => answered(429, '1200'));
    await put(100);
    await bench.clock.advance(MINUTE);
    const before = bench.posts.length;
    expect(before).to.be.below(15);
    await bench.clock.advance(18 * MINUTE);
    expect(bench.posts).to.have.length(before);
    bench.endpoint(() => answered(200));
    await bench.clock.advance(3 * MINUTE);
    expect(await counts()).to.include({ delivered: 100 });
  });

  it('does not affect other endpoints', async () => {
    await open();
    bench.endpoint(({ url }) => (url === URL_A ? timedOut : answered(200)));
    await put(500);
    await put(500, URL_B);
    await settleDown(bench);
    expect(bench.postsTo(URL_B)).to.have.length(500);
  });

  it('keeps breaker and due times over a restart', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(30);
    await bench.clock.advance(5 * MINUTE + 10 * SECOND);
    const [endpoint] = await bench.spool.endpoints();
    expect(JSON.parse(endpoint?.memory ?? '')).to.include({ phase: 'open' });
    await bench.dispatcher.stop();

    const before = bench.posts.length;
    const next = await bench.restart();
    await bench.clock.advance(5 * SECOND);
    expect(bench.posts.length - before).to.be.at.most(1);
    await bench.clock.advance(10 * MINUTE);
    expect(bench.posts.length - before).to.be.within(15, 30);
    bench.endpoint(() => answered(200));
    await bench.clock.advance(MINUTE);
    expect(await counts()).to.include({ delivered: 30 });
    expect(await bench.spool.endpoints()).to.deep.equal([]);
    await next.stop();
  });

  it('keeps the due time of a single delivery over a restart', async () => {
    await open();
    bench.endpoint(() => answered(500));
    await put(1);
    await bench.clock.advance(40 * SECOND); // attempts at 0, 5 and 35 s; the next is due at 335 s
    await bench.dispatcher.stop();
    const next = await bench.restart();
    await bench.clock.advance(294 * SECOND);
    expect(bench.posts).to.have.length(3);
    await bench.clock.advance(SECOND);
    expect(bench.posts).to.have.length(4);
    await next.stop();
  });

  describe('answering 410', () => {
    it('is paused, over a restart too, and probed again after a day', async () => {
      await open();
      bench.endpoint(() => answered(410));
      await put(5);
      await bench.clock.advance(12 * HOUR);
      const before = bench.posts.length;
      expect(before).to.be.at.most(2);
      expect(bench.log.of('endpoint.paused')).to.have.length(1);
      await bench.dispatcher.stop();

      const next = await bench.restart();
      await bench.clock.advance(11 * HOUR);
      expect(bench.posts).to.have.length(before);
      bench.endpoint(() => answered(200));
      await bench.clock.advance(HOUR + MINUTE);
      expect(await counts()).to.include({ delivered: 5 });
      expect(bench.log.of('endpoint.resumed')).to.have.length(1);
      await next.stop();
    });

    it('is probed at once when an operator retries', async () => {
      await open();
      bench.endpoint(() => answered(410));
      await put(3);
      await bench.clock.advance(HOUR);
      bench.endpoint(() => answered(200));
      await bench.spool.retry({}, bench.clock.now());
      await settleDown(bench);
      expect(await counts()).to.include({ delivered: 3 });
    });

    it('turns waiting mail into dead letters when it expires', async () => {
      await open({ retryHours: 24 });
      bench.endpoint(() => answered(410));
      await put(600);
      await bench.clock.advance(3 * DAY);
      expect(await counts()).to.include({ waiting: 0, dead: 600 });
      expect(bench.posts.length).to.be.below(10);
    });
  });

  describe('with one delivery that always fails', () => {
    it('parks it with long gaps and delivers all others', async () => {
      await open();
      const [poison] = await put(1);
      bench.endpoint(({ id }) => answered(id === poison?.id ? 422 : 200));
      for (let i = 0; i < 120; i++) {
        await put(1);
        await bench.clock.advance(MINUTE);
      }
      expect(await counts()).to.include({ delivered: 120, waiting: 1 });
      expect(await bench.spool.delivery(poison?.id ?? '')).to.include({ parked: true });
      expect(bench.posts.filter(({ id }) => id === poison?.id).length).to.be.within(4, 6);
      expect(bench.log.of('endpoint.down')).to.deep.equal([]);
    });

    it('parks nothing if the whole endpoint was down', async () => {
      await open();
      await put(20);
      await settleDown(bench);
      bench.endpoint(() => answered(500));
      await put(5);
      await bench.clock.advance(HOUR);
      expect((await bench.rows()).some(({ parked }) => parked)).to.equal(false);
    });
  });
});

describe('a wall clock that jumps', () => {
  let bench: Bench;
  afterEach(() => bench.dispatcher.stop());

  it('set back by hours delays no retry', async () => {
    bench = await createBench();
    await bench.dispatcher.start();
    bench.endpoint(() => answered(500));
    await bench.put([aDelivery(URL_A)]);
    await settleDown(bench);
    bench.clock.jump(-6 * HOUR);
    await bench.clock.advance(36 * SECOND);
    expect(bench.posts.map(({ at }) => at / SECOND)).to.deep.equal([0, 5, 35]);
  });

  it('set back by hours delays nothing after a restart either', async () => {
    bench = await createBench();
    await bench.dispatcher.start();
    bench.endpoint(() => refused);
    await bench.put([aDelivery(URL_A)]);
    await settleDown(bench);
    await bench.dispatcher.stop();
    bench.clock.jump(-6 * HOUR);
    const next = await bench.restart();
    await bench.clock.advance(31 * MINUTE);
    expect(bench.posts.length).to.be.above(2);
    await next.stop();
  });

  it('set ahead by days expires nothing and makes nothing due', async () => {
    bench = await createBench();
    await bench.dispatcher.start();
    bench.endpoint(() => answered(500));
    await bench.put(Array.from({ length: 5 }, (_, i) => aDelivery(`https://e${i}.example/`)));
    await bench.clock.advance(HOUR);
    const before = bench.posts.length;
    bench.clock.jump(30 * DAY);
    await bench.clock.advance(DAY);
    expect(await bench.spool.count({})).to.include({ waiting: 5, dead: 0 });
    expect(bench.posts.length - before).to.be.below(5 * 60);
    await bench.clock.advance(4 * DAY + HOUR);
    expect(await bench.spool.count({})).to.include({ waiting: 0, dead: 5 });
  });
});
