import { expect } from 'chai';
import { type Backlog, createBacklog } from '../../../src/queue/schedule/backlog.ts';
import { aDelivery, answered, refused } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const SECOND = 1000;
const URL_A = 'https://a.example/hook';
const URL_B = 'https://b.example/hook';
/** Attempts for one endpoint that are prepared at one time. */
const PREPARED = 32;

describe('the backlog of deliveries waiting for Postern itself', () => {
  let bench: Bench;
  let backlog: Backlog;
  const endpoint = (url: string) => {
    const { account } = aDelivery(url);
    return { account, url };
  };
  const before = (url: string) => backlog.before([endpoint(url)]);
  const put = (count: number, url: string) => bench.put(Array.from({ length: count }, () => aDelivery(url)));

  beforeEach(async () => {
    backlog = createBacklog(50);
    bench = await createBench({ concurrencyPerEndpoint: 64, concurrencyAtStart: 64 }, { backlog });
    await bench.dispatcher.start();
    await put(1, URL_A);
    await put(1, URL_B);
    await settleDown(bench); // both are known to answer now
  });
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(30 * SECOND);
    await stopped;
  });

  it('is zero while all are started at once', async () => {
    await put(100, URL_A);
    await settleDown(bench);
    expect(bench.posts).to.have.length(102);
    expect(backlog.total()).to.equal(0);
    expect(before(URL_A)).to.equal(0);
  });

  it('is the mail that is not yet being prepared, and ends when it is', async () => {
    bench.slow(() => true);
    await put(PREPARED + 40, URL_A);
    await settleDown(bench);
    expect(before(URL_A)).to.equal(40);
    expect(backlog.total()).to.equal(40);
    await bench.clock.advance(60 * SECOND);
    expect(backlog.total()).to.equal(0);
  });

  it('counts deliveries beyond those in memory', async () => {
    bench.slow(() => true);
    await put(PREPARED + 600, URL_A);
    await settleDown(bench);
    expect(before(URL_A)).to.equal(600);
    bench.slow(() => false);
    await bench.clock.advance(60 * SECOND);
    expect(bench.postsTo(URL_A)).to.have.length(633);
    expect(backlog.total()).to.equal(0);
  });

  it('of one endpoint delays its own mail, and that of others only up to its share', async () => {
    bench.slow(() => true);
    await put(PREPARED + 300, URL_A);
    await settleDown(bench);
    expect(before(URL_A)).to.equal(300);
    expect(before(URL_B)).to.equal(50);
    await put(PREPARED + 300, URL_B);
    await settleDown(bench);
    expect(before('https://c.example/')).to.equal(100);
  });

  it('does not include mail for a slow endpoint', async () => {
    bench.endpoint(
      () =>
        new Promise((resolve) => {
          bench.clock.after(5 * SECOND, () => resolve(answered(200)));
        }),
    );
    for (let n = 0; n < 20; n++) {
      await put(100, URL_A);
      await bench.clock.advance(SECOND);
    }
    expect(backlog.total()).to.equal(0);
    expect((await bench.spool.count({ states: ['waiting'] })).waiting).to.be.at.least(1000);
  });

  it('does not include mail for an endpoint that is down', async () => {
    bench.endpoint(() => refused);
    await put(10, URL_A);
    await settleDown(bench);
    bench.slow(() => true);
    await put(500, URL_A);
    await settleDown(bench);
    expect(backlog.total()).to.equal(0);
  });

  it('is zero after a drop', async () => {
    bench.slow(() => true);
    await put(PREPARED + 100, URL_A);
    await settleDown(bench);
    expect(before(URL_A)).to.equal(100);
    await bench.spool.drop({ url: URL_A }, bench.clock.now());
    await settleDown(bench);
    expect(backlog.total()).to.equal(0);
  });
});
