import { expect } from 'chai';
import { aDelivery, answered, refused, timedOut } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const URL_A = 'https://a.example/hook?token=secret';
const URL_B = 'https://b.example/hook';

describe('the dispatcher', () => {
  let bench: Bench;
  const open = async (...args: Parameters<typeof createBench>): Promise<Bench> => {
    bench = await createBench(...args);
    await bench.dispatcher.start();
    return bench;
  };
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopped;
  });

  const put = (count: number, url: string) => bench.put(Array.from({ length: count }, () => aDelivery(url)));

  it('delivers a new message at once, without reading the queue', async () => {
    await open();
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await settleDown(bench);
    expect(bench.posts).to.deep.equal([{ url: URL_A, id: delivery.id, keys: ['present'], at: 0 }]);
    expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'delivered', attempts: 1, lastStatus: 200 });
    expect(bench.reads).to.deep.equal([]);
    expect(bench.dispatcher.idle()).to.equal(true);
  });

  it('delivers mail that waited before the start', async () => {
    bench = await createBench();
    const waiting = [aDelivery(URL_A), aDelivery(URL_A), aDelivery(URL_B)];
    await bench.put(waiting);
    await bench.dispatcher.start();
    await settleDown(bench);
    expect(bench.posts).to.have.length(3);
    expect(await bench.spool.count({})).to.deep.equal({ waiting: 0, delivered: 3, dead: 0, dropped: 0, held: 0 });
  });

  it('keeps the verdicts of the first attempt, and discards each body', async () => {
    await open();
    bench.endpoint(() => answered(500));
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await settleDown(bench);
    expect((await bench.spool.message(delivery.messageId))?.message.verdicts?.spf.result).to.equal('pass');
    expect(bench.discarded).to.have.length(1);
    await bench.clock.advance(5 * SECOND);
    expect(bench.jobs.map(({ mails: [mail] }) => mail?.message.verdicts?.spf.result)).to.deep.equal([
      undefined,
      'pass',
    ]);
    expect(bench.discarded).to.have.length(2);
  });

  it('retries after 5 s, 30 s, 5 min and so on, and records every attempt', async () => {
    await open();
    bench.endpoint(() => answered(404));
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await bench.clock.advance(HOUR);
    expect(bench.posts.map(({ at }) => at / SECOND)).to.deep.equal([0, 5, 35, 335, 1235, 2735]);
    expect((await bench.spool.attempts(delivery.id)).map(({ status }) => status)).to.deep.equal([
      404, 404, 404, 404, 404, 404,
    ]);
    expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'waiting', attempts: 6 });
  });

  it('gives up after the retry time, and delivers a replay under the same webhook-id', async () => {
    await open({ retryHours: 2 });
    bench.endpoint(() => answered(500));
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await bench.clock.advance(3 * HOUR);
    expect((await bench.spool.delivery(delivery.id))?.state).to.equal('dead');
    expect(bench.log.of('delivery.failed')).to.have.length(1);
    const attempts = bench.posts.length;
    await bench.clock.advance(5 * HOUR);
    expect(bench.posts).to.have.length(attempts);

    bench.endpoint(() => answered(200));
    expect(await bench.spool.replay({ ids: [delivery.id] }, bench.clock.now())).to.equal(1);
    await settleDown(bench);
    expect((await bench.spool.delivery(delivery.id))?.state).to.equal('delivered');
    expect(new Set(bench.posts.map(({ id }) => id))).to.deep.equal(new Set([delivery.id]));
  });

  it('drops without an attempt deliveries that are no longer on the spool', async () => {
    await open();
    const delivery = aDelivery(URL_A);
    bench.spool.message = async () => undefined;
    await bench.put([delivery]);
    await settleDown(bench);
    expect(bench.posts).to.deep.equal([]);
    expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'dropped', attempts: 0 });
  });

  it('uses no attempt while the signing keys are unavailable', async () => {
    await open();
    bench.keys(undefined);
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await bench.clock.advance(10 * MINUTE);
    expect(bench.posts).to.deep.equal([]);
    bench.keys(['present']);
    await bench.clock.advance(30 * SECOND);
    expect(bench.posts).to.have.length(1);
    expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'delivered', attempts: 1 });
  });

  it('uses no attempt when the message cannot be rendered, and logs it once each time', async () => {
    await open();
    bench.renderer(true);
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await settleDown(bench);
    expect(bench.log.of('delivery.fault')).to.have.length(1);
    bench.renderer(false);
    await bench.clock.advance(30 * SECOND);
    expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'delivered', attempts: 1 });
  });

  it('signs odd attempts with the current key first and even ones with the previous, during a rotation', async () => {
    await open();
    bench.keys(['present', 'previous']);
    bench.endpoint(({ keys }) => answered(keys[0] === 'previous' && bench.posts.length > 3 ? 200 : 401));
    await bench.put([aDelivery(URL_A)]);
    await bench.clock.advance(10 * MINUTE);
    expect(bench.posts.map(({ keys }) => keys)).to.deep.equal([
      ['present', 'previous'],
      ['previous', 'present'],
      ['present', 'previous'],
      ['previous', 'present'],
    ]);
  });

  it('posts nothing again while a result cannot be written, and writes it later', async () => {
    await open();
    const { settle } = bench.spool;
    let failures = 3;
    bench.spool.settle = (...args) => (failures-- > 0 ? Promise.reject(new Error('disk full')) : settle(...args));
    const delivery = aDelivery(URL_A);
    await bench.put([delivery]);
    await bench.clock.advance(60 * SECOND);
    expect((await bench.spool.delivery(delivery.id))?.state).to.equal('waiting');
    await bench.clock.advance(60 * SECOND);
    expect((await bench.spool.delivery(delivery.id))?.state).to.equal('delivered');
    expect(bench.posts).to.have.length(1);
    expect(bench.log.of('delivery.fault')).to.have.length(1);
  });

  it('logs the host of an endpoint and never its URL', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(6, URL_A);
    await bench.clock.advance(MINUTE);
    bench.endpoint(() => answered(200));
    await bench.clock.advance(MINUTE);
    expect(bench.log.of('endpoint.down')[0]?.fields).to.deep.include({
      host: 'a.example',
      error: 'connection refused',
    });
    expect(bench.log.of('endpoint.up')).to.have.length(1);
    expect(bench.log.of('delivery.delivered')[0]?.fields).to.include({ host: 'a.example', status: 200, ms: 3 });
    expect(bench.log.of('delivery.deferred')[0]?.fields).to.include({
      attempt: 1,
      retry_in_s: 5,
      error: 'connection refused',
    });
    expect(JSON.stringify(bench.log.lines)).not.to.include('secret');
  });

  describe('limits concurrency:', () => {
    /** An endpoint that answers on request. */
    const held = () => {
      const waiting: (() => void)[] = [];
      bench.endpoint(
        () =>
          new Promise((resolve) => {
            waiting.push(() => resolve(answered(200)));
          }),
      );
      return {
        release: (count: number) => {
          for (const answer of waiting.splice(0, count)) answer();
        },
      };
    };

    it('posts to one endpoint up to the setting, once it has answered', async () => {
      await open({ concurrencyPerEndpoint: 8, concurrencyAtStart: 2 });
      const endpoint = held();
      await put(200, URL_A);
      await settleDown(bench);
      const seen = [bench.inFlight.now];
      for (let i = 0; i < 6; i++) {
        endpoint.release(100);
        await settleDown(bench);
        seen.push(bench.inFlight.now);
      }
      expect(seen).to.deep.equal([2, 4, 8, 8, 8, 8, 8]);
      expect(bench.inFlight.most).to.equal(8);
      bench.endpoint(() => answered(200));
      for (let i = 0; i < 4; i++) {
        endpoint.release(100);
        await settleDown(bench);
      }
      expect(await bench.spool.count({ states: ['waiting'] })).to.include({ waiting: 0 });
    });

    it('attempts in all up to the setting', async () => {
      await open({ concurrency: 5 });
      const endpoint = held();
      await bench.put(Array.from({ length: 20 }, (_, i) => aDelivery(`https://e${i}.example/`)));
      await settleDown(bench);
      expect(bench.inFlight.now).to.equal(5);
      for (let i = 0; i < 4; i++) {
        endpoint.release(5);
        await settleDown(bench);
      }
      expect(bench.inFlight.most).to.equal(5);
      expect(await bench.spool.count({})).to.include({ delivered: 20 });
    });

    it('serves endpoints in turn, so that a long queue delays no other', async () => {
      await open({ concurrency: 1 });
      await bench.put(Array.from({ length: 53 }, (_, i) => aDelivery(i < 50 ? URL_A : URL_B)));
      await settleDown(bench);
      const indexes = bench.posts.flatMap(({ url }, at) => (url === URL_B ? [at] : []));
      expect(
        indexes.every((index) => index < 8),
        indexes.join(),
      ).to.equal(true);
      expect(bench.posts).to.have.length(53);
    });

    it('reserves slots for others, however many slow endpoints could use them', async () => {
      await open({ concurrency: 20 });
      bench.endpoint(
        ({ url }) =>
          new Promise((resolve) => {
            if (url === URL_B) resolve(answered(200));
            else bench.clock.after(20 * SECOND, () => resolve(answered(200)));
          }),
      );
      for (let i = 0; i < 5; i++) await put(200, `https://slow${i}.example/`);
      await bench.clock.advance(2 * MINUTE);
      for (let round = 1; round < 20; round++) {
        await put(1, URL_B);
        await settleDown(bench);
        expect(bench.postsTo(URL_B)).to.have.length(round);
        expect(bench.inFlight.now).to.be.within(15, 19);
        await bench.clock.advance(7 * SECOND);
      }
      const shares = Array.from({ length: 5 }, (_, i) => bench.postsTo(`https://slow${i}.example/`).length);
      expect(Math.max(...shares) - Math.min(...shares), shares.join()).to.be.at.most(8);
    });

    it('gives one endpoint four fifths of the slots, the next the same share of the rest, and the last slot to a third', async () => {
      await open({ concurrency: 20, concurrencyPerEndpoint: 100, concurrencyAtStart: 100 });
      held();
      const names = ['a', 'b', 'c', 'd'].map((name) => `https://${name}.example/`);
      for (const url of names) {
        await put(50, url);
        await settleDown(bench);
      }
      expect(names.map((url) => bench.postsTo(url).length)).to.deep.equal([16, 3, 1, 0]);
    });

    it('halves the concurrent posts to an endpoint that answers 429, and to no other', async () => {
      await open({ concurrencyPerEndpoint: 16, concurrencyAtStart: 16 });
      const waiting: ((status: number) => void)[] = [];
      bench.endpoint(
        ({ url }) =>
          new Promise((resolve) => {
            if (url === URL_A) waiting.push((status) => resolve(answered(status)));
          }),
      );
      await put(100, URL_A);
      await put(100, URL_B);
      await settleDown(bench);
      expect(waiting).to.have.length(16);
      await bench.clock.advance(SECOND);
      for (const [n, answer] of waiting.splice(0).entries()) answer(n % 4 === 0 ? 429 : 200);
      await settleDown(bench);
      expect(waiting, 'halved once for all that were on their way').to.have.length(8);
      expect(bench.postsTo(URL_B)).to.have.length(16);
    });

    it('isolates a hanging endpoint from a hundred others', async () => {
      await open({ concurrency: 16 });
      bench.endpoint(({ url }) => (url === 'https://e0.example/' ? new Promise(() => {}) : answered(200)));
      await bench.put(Array.from({ length: 1000 }, (_, i) => aDelivery(`https://e${i % 100}.example/`)));
      await settleDown(bench);
      expect(await bench.spool.count({})).to.include({ delivered: 990, waiting: 10 });
      expect(bench.posts.filter(({ url }) => url === 'https://e0.example/')).to.have.length(2);
    });
  });

  it('is not delayed by messages whose senders have slow name servers', async () => {
    await open();
    await put(20, URL_A);
    await settleDown(bench); // the endpoint is known to answer now
    const slow = Array.from({ length: 16 }, () => aDelivery(URL_A));
    bench.slow((id) => slow.some((delivery) => delivery.id === id));
    await bench.put(slow);
    await put(100, URL_A);
    await settleDown(bench);
    expect(bench.posts).to.have.length(120);
    await bench.clock.advance(20 * SECOND);
    expect(bench.posts).to.have.length(136);
  });

  it('reserves half of the slots for endpoints that answer, however many do not', async () => {
    await open({ concurrency: 16 });
    bench.endpoint(({ url, at }) => (url.startsWith('https://bad') ? later(at + 30 * SECOND) : answered(200)));
    const later = (at: number) =>
      new Promise<typeof timedOut>((resolve) => {
        bench.clock.after(at - bench.clock.monotonic(), () => resolve(timedOut));
      });
    await bench.put(Array.from({ length: 1200 }, (_, i) => aDelivery(`https://bad${i % 40}.example/`)));
    await bench.clock.advance(6 * MINUTE);
    for (let minute = 0; minute < 10; minute++) {
      await bench.put([aDelivery(URL_B)]);
      await settleDown(bench);
      expect(bench.postsTo(URL_B)).to.have.length(minute + 1);
      expect(bench.inFlight.now).to.be.at.most(8);
      await bench.clock.advance(MINUTE);
    }
  });

  describe('with more deliveries than fit in memory', () => {
    it('reads the rest from the spool, each once and in order', async () => {
      await open();
      const all = Array.from({ length: 2000 }, () => aDelivery(URL_A));
      await bench.put(all);
      await settleDown(bench);
      await bench.clock.advance(SECOND);
      expect(await bench.spool.count({})).to.include({ delivered: 2000 });
      expect(bench.posts.map(({ id }) => id)).to.deep.equal(all.map(({ id }) => id));
      expect(bench.reads.every(({ limit }) => limit === 256)).to.equal(true);
      expect(bench.reads.length).to.be.below(25);
    });

    it('does not let new mail overtake older mail for ever', async () => {
      await open({ concurrency: 1 });
      const old = Array.from({ length: 400 }, () => aDelivery(URL_A));
      await bench.put(old);
      bench.endpoint(() => {
        if (bench.posts.length < 900) void bench.put([aDelivery(URL_A)]);
        return answered(200);
      });
      await settleDown(bench);
      await bench.clock.advance(SECOND);
      const last = bench.posts.findLastIndex(({ id }) => old.some((delivery) => delivery.id === id));
      expect(last).to.be.below(500);
      expect(await bench.spool.count({})).to.include({ waiting: 0 });
    });

    it('reads again after a failed read', async () => {
      bench = await createBench();
      await bench.put([aDelivery(URL_A)]);
      const due = bench.spool.due;
      bench.spool.due = async () => {
        throw new Error('disk');
      };
      await bench.dispatcher.start();
      await settleDown(bench);
      expect(bench.log.of('spool.fault')).to.have.length(1);
      bench.spool.due = due;
      await bench.clock.advance(5 * SECOND);
      expect(bench.posts).to.have.length(1);
    });
  });

  describe('when the queue is changed by hand', () => {
    it('attempts no dropped delivery', async () => {
      await open();
      bench.endpoint(() => answered(500));
      const delivery = aDelivery(URL_A);
      await bench.put([delivery]);
      await settleDown(bench);
      await bench.spool.drop({ ids: [delivery.id] }, bench.clock.now());
      await bench.clock.advance(HOUR);
      expect(bench.posts).to.have.length(1);
    });

    it('does not attempt again a delivery dropped in flight', async () => {
      await open();
      let answer = (): void => {};
      bench.endpoint(
        () =>
          new Promise((resolve) => {
            answer = () => resolve(answered(500));
          }),
      );
      const delivery = aDelivery(URL_A);
      await bench.put([delivery]);
      await settleDown(bench);
      await bench.spool.drop({ ids: [delivery.id] }, bench.clock.now());
      answer();
      await bench.clock.advance(HOUR);
      expect(bench.posts).to.have.length(1);
      expect((await bench.spool.delivery(delivery.id))?.state).to.equal('dropped');
    });

    it('attempts a retried delivery at once', async () => {
      await open();
      bench.endpoint(() => answered(500));
      await bench.put([aDelivery(URL_A)]);
      await bench.clock.advance(10 * MINUTE);
      const before = bench.posts.length;
      bench.endpoint(() => answered(200));
      await bench.spool.retry({}, bench.clock.now());
      await settleDown(bench);
      expect(bench.posts).to.have.length(before + 1);
      expect(await bench.spool.count({})).to.include({ delivered: 1 });
    });

    it('sends waiting mail of a route to its new URL', async () => {
      await open();
      bench.endpoint(({ url }) => answered(url === URL_B ? 200 : 500));
      await bench.put([aDelivery(URL_A, { routeId: '1.9' })]);
      await settleDown(bench);
      await bench.spool.redirect('1.9', URL_B);
      await bench.clock.advance(5 * SECOND);
      expect(bench.postsTo(URL_A)).to.have.length(1);
      expect(bench.postsTo(URL_B)).to.have.length(1);
    });
  });

  describe('stopping', () => {
    it('starts nothing new, waits for attempts in flight and records them', async () => {
      await open();
      let answer = (): void => {};
      bench.endpoint(
        () =>
          new Promise((resolve) => {
            answer = () => resolve(answered(200));
          }),
      );
      const first = aDelivery(URL_A, {});
      await bench.put([first]);
      await settleDown(bench);
      const stopped = bench.dispatcher.stop();
      await bench.put([aDelivery(URL_A)]);
      await settleDown(bench);
      answer();
      await stopped;
      expect(bench.posts).to.have.length(1);
      expect((await bench.spool.delivery(first.id))?.state).to.equal('delivered');
    });

    it('returns attempts that do not end in time, without counting them', async () => {
      await open();
      let cut = (): void => {};
      bench.endpoint(
        () =>
          new Promise((resolve) => {
            cut = () => resolve(refused);
          }),
      );
      const delivery = aDelivery(URL_A);
      await bench.put([delivery]);
      await settleDown(bench);
      const stopped = bench.dispatcher.stop();
      await bench.clock.advance(10 * SECOND);
      await stopped;
      cut();
      await settleDown(bench);
      expect(await bench.spool.delivery(delivery.id)).to.include({ state: 'waiting', attempts: 0 });
    });
  });
});
