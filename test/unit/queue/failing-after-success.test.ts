import { expect } from 'chai';
import type { DeliveryKind } from '../../../src/queue/delivery.ts';
import { type Road, sameFor } from '../../../src/queue/road.ts';
import { createBacklog } from '../../../src/queue/schedule/backlog.ts';
import { type BreakerState, learn, newEndpoint } from '../../../src/queue/schedule/breaker.ts';
import {
  type AttemptResult,
  type Lesson,
  type MailAttempt,
  settleMail,
  settleUnattempted,
  summaryOf,
} from '../../../src/queue/settle.ts';
import { aDelivery, answered, refused } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';
import { NO_ROAD } from '../../support/roads.ts';

// The success of minutes hid the failures of now: 34,000 good posts kept an endpoint that answered only 503 "up" for
// 132 seconds, with 12,000 failed posts.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const URL_A = 'https://a.example/hook';
const reset: AttemptResult = { kind: 'unanswered', error: 'connection reset', connected: true, durationMs: 3 };
const BOUNDS = { start: 4, most: 64, heedsLatency: true };
const pass: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };
const unavailable: Lesson = { kind: 'failed', aside: false, strained: true, leaveAlone: 0, suspect: true };

/** What an endpoint becomes that is sent a message every `every` ms, of which `answer` decides the result. */
function attend(state: BreakerState, from: number, ms: number, every: number, answer: (n: number) => Lesson) {
  let n = 0;
  for (let now = from; now < from + ms; now += every) {
    const attempted = { id: `d${now}`, messageId: `m${now}` };
    const occasion = { now, jitter: 0.5, probe: false, sentAt: now, full: true, lag: 0, bounds: BOUNDS, attempted };
    const learned = learn(state, answer(n++), occasion);
    state = learned.state;
    if (learned.change === 'opened') return { state, openedAfter: now - from, failed: n };
  }
  return { state, openedAfter: Number.POSITIVE_INFINITY, failed: n };
}

/** What an endpoint becomes whose few messages are all answered 503, at once and then as they are tried again. */
function attendFew(count: number, tries: readonly number[]) {
  let state = newEndpoint(0, BOUNDS);
  for (const at of tries)
    for (let n = 0; n < count; n++) {
      const now = at + n * 10;
      const attempted = { id: `d${n}`, messageId: `m${n}` };
      const occasion = { now, jitter: 0.5, probe: false, sentAt: now, full: true, lag: 0, bounds: BOUNDS, attempted };
      const learned = learn(state, unavailable, occasion);
      state = learned.state;
      if (learned.change === 'opened') return now;
    }
  return Number.POSITIVE_INFINITY;
}

describe('the breaker of an endpoint with few messages', () => {
  it('opens when five of them fail, and fail again after five seconds, without any success', () => {
    expect(attendFew(5, [0, 5_000, 35_000])).to.be.below(10_000);
    expect(attendFew(8, [0, 5_000, 35_000])).to.be.below(10_000);
  });

  it('stays closed for one or two that fail repeatedly: they may be the cause', () => {
    const tries = [0, 5_000, 35_000, 335_000, 2_135_000];
    expect(attendFew(1, tries)).to.equal(Number.POSITIVE_INFINITY);
    expect(attendFew(2, tries)).to.equal(Number.POSITIVE_INFINITY);
  });
});

describe('the breaker after 34,000 successful posts', () => {
  const good = attend(newEndpoint(0, BOUNDS), 0, 2 * MINUTE, 3.5, () => pass).state;

  for (const every of [1, 10, 100, 1000])
    it(`opens within 10 s of failures only, one in ${every} ms`, () => {
      for (const offset of [0, 1000, 2500, 3999, 120_000])
        expect(attend(good, 2 * MINUTE + offset, 5 * MINUTE, every, () => unavailable).openedAfter).to.be.below(10_000);
    });

  it('opens within 10 s while one in twenty still succeeds', () => {
    const { openedAfter } = attend(good, 2 * MINUTE, MINUTE, 10, (n) => (n % 20 === 7 ? pass : unavailable));
    expect(openedAfter).to.be.below(10_000);
  });

  it('stays closed while half succeed, and after a second of failures', () => {
    const half = attend(good, 2 * MINUTE, 10 * MINUTE, 10, (n) => (n % 2 === 0 ? pass : unavailable));
    expect(half.openedAfter).to.equal(Number.POSITIVE_INFINITY);
    const burst = attend(good, 2 * MINUTE, SECOND, 1, () => unavailable);
    expect(burst.openedAfter).to.equal(Number.POSITIVE_INFINITY);
    const after = attend(burst.state, 2 * MINUTE + SECOND, 10 * MINUTE, 3.5, () => pass);
    expect(after.openedAfter).to.equal(Number.POSITIVE_INFINITY);
  });
});

/** A road whose attempts end as the test says, over SMTP. */
function mailRoad(now: () => number, end: () => MailAttempt): Road {
  return {
    ...NO_ROAD,
    concurrency: 64,
    concurrencyPerEndpoint: 8,
    concurrencyAtStart: 2,
    limit: 5 * 24 * 60 * MINUTE,
    async prepare(all) {
      const [{ delivery, attempts }] = all;
      const send = async () => {
        const attempt = end();
        const budget = { age: 0, limit: 1, mayEnd: false };
        const settled = settleMail({ delivery: { id: delivery.id, attempts }, attempt, now: now(), jitter: 0, budget });
        return sameFor(all, { kind: 'settled', settled, result: summaryOf(attempt) });
      };
      return { outcomes: new Map(), shipment: { deliveries: all, send } };
    },
    async expire({ delivery }) {
      return { kind: 'gone', settlement: settleUnattempted(delivery.id, 'dead', false, now()) };
    },
  };
}

const mailAnswer = (code: number): MailAttempt => ({
  ...{ kind: 'answered', code, diag: 'x', host: 'mx.example', address: '192.0.2.1' },
  ...{ source: null, tls: false, durationMs: 3 },
});
const lost = (given: boolean): MailAttempt => ({
  ...{ kind: 'unanswered', reason: 'the connection was closed', permanent: false, durationMs: 3, given },
});

describe('an endpoint that fails after thousands of successful posts', () => {
  let bench: Bench;
  const backlog = createBacklog(1000);
  let mail: MailAttempt = mailAnswer(250);
  let mails = 0;
  async function open() {
    mails = 0;
    mail = mailAnswer(250);
    bench = await createBench({ concurrencyPerEndpoint: 16, concurrencyAtStart: 4 }, { backlog }, ({ clock }) => {
      const road = mailRoad(clock.now, () => {
        mails++;
        return mail;
      });
      return { outbound: road, return: road };
    });
    await bench.dispatcher.start();
  }
  afterEach(async () => {
    const stopped = bench.dispatcher.stop();
    await bench.clock.advance(10 * SECOND);
    await stopped;
  });
  const put = (count: number, kind: DeliveryKind) =>
    bench.put(Array.from({ length: count }, () => aDelivery(URL_A, { kind })));
  const attempts = () => bench.posts.length + mails;

  /** Sends this number, then as many each tenth of a second for `seconds`, or until it is down; returns the seconds. */
  async function goodThenBad(kind: DeliveryKind, bad: () => void, perTick: number) {
    for (let i = 0; i < 30; i++) {
      await put(100, kind);
      await settleDown(bench);
      await bench.clock.advance(100);
    }
    expect(attempts()).to.equal(3000);
    bad();
    let behind = 0;
    for (let tick = 1; tick <= 150; tick++) {
      await put(perTick, kind);
      await bench.clock.advance(100);
      behind = Math.max(behind, backlog.total());
      if (bench.log.of('endpoint.down').length > 0) return { seconds: tick / 10, failed: attempts() - 3000, behind };
    }
    return { seconds: Number.POSITIVE_INFINITY, failed: attempts() - 3000, behind };
  }

  for (const kind of ['inbound', 'events'] as const)
    for (const status of [500, 503])
      it(`is down within 10 s and 250 posts, and delays no new mail: kind ${kind}, ${status}`, async () => {
        await open();
        const { seconds, failed, behind } = await goodThenBad(kind, () => bench.endpoint(() => answered(status)), 20);
        expect(seconds).to.be.at.most(10);
        expect(failed).to.be.at.most(250);
        expect(behind, 'that wait for this host').to.be.at.most(20);
      }).timeout(60_000);

  for (const kind of ['outbound', 'return'] as const)
    for (const end of [mailAnswer(421), lost(false), lost(true)])
      it(`is down within 10 s: kind ${kind}, ${end.kind === 'answered' ? end.code : `lost, given: ${end.given}`}`, async () => {
        await open();
        const { seconds, failed } = await goodThenBad(
          kind,
          () => {
            mail = end;
          },
          20,
        );
        expect(seconds).to.be.at.most(10);
        expect(failed).to.be.at.most(250);
      }).timeout(60_000);

  it('gets ten posts a second at most while its state is uncertain', async () => {
    await open();
    await goodThenBad('inbound', () => bench.endpoint(() => answered(503)), 50);
    const down = bench.posts.filter(({ at }) => at >= 3000);
    const late = down.filter(({ at }) => at >= 4000);
    expect(down.length - late.length, 'first what was made ready').to.be.at.most(150);
    expect(late.length).to.be.at.most(100);
  }).timeout(60_000);

  describe('because of one message', () => {
    /** The endpoint resets the connection for these, and refuses connections until it has restarted. */
    function crash(poisons: readonly string[], restartMs = 0) {
      let upAt = 0;
      bench.endpoint(({ id, at }) => {
        if (at < upAt) return refused;
        if (!poisons.includes(id)) return answered(200);
        upAt = at + restartMs;
        return reset;
      });
    }
    const healthyIn = async (seconds: number, count: number) => {
      const all = Array.from({ length: count }, () => aDelivery(URL_A));
      await bench.put(all);
      await bench.clock.advance(seconds * SECOND);
      const rows = await bench.rows();
      return all.filter(({ id }) => rows.find((row) => row.id === id)?.state === 'delivered').length;
    };

    it('that always resets the connection is not down, and 300 others are delivered at once', async () => {
      await open();
      const poison = aDelivery(URL_A);
      crash([poison.id]);
      await bench.put([poison]);
      await bench.clock.advance(2 * 60 * MINUTE);
      expect(bench.posts.length, 'tries of the one').to.be.above(5);
      expect(await healthyIn(1, 300)).to.equal(300);
      expect(bench.log.of('endpoint.down')).to.deep.equal([]);
      for (let i = 0; i < 60; i++) expect(await healthyIn(60, 1)).to.equal(1);
      expect(await bench.spool.delivery(poison.id)).to.include({ parked: true });
    }).timeout(30_000);

    it('for ten recipients is probed with another message at once', async () => {
      await open();
      const { messageId } = aDelivery();
      const poisons = Array.from({ length: 10 }, (_, n) =>
        aDelivery(URL_A, { messageId, recipient: `r${n}@in.example` }),
      );
      crash(poisons.map(({ id }) => id));
      const envelope = { mailFrom: 'a@example.org', client: { address: '192.0.2.1', helo: 'there', tls: null } };
      const body = { kind: 'memory', bytes: new TextEncoder().encode('Subject: x\r\n\r\nx\r\n') } as const;
      await bench.spool.accept({ id: messageId, receivedAt: bench.clock.now(), envelope, trace: '', body }, poisons);
      await bench.clock.advance(SECOND);
      expect(bench.log.of('endpoint.down')).to.have.length(1);
      expect(await healthyIn(1, 300)).to.equal(300);
      expect(bench.log.of('endpoint.up')).to.have.length(1);
    });

    it('that crashes the receiver for two seconds each time: 300 others are delivered within seconds, and it is parked', async () => {
      await open();
      const poison = aDelivery(URL_A);
      crash([poison.id], 2000);
      await bench.put([poison]);
      expect(await healthyIn(15, 300)).to.equal(300);
      for (let i = 0; i < 30; i++) {
        await healthyIn(60, 1);
      }
      expect(await bench.spool.delivery(poison.id)).to.include({ parked: true, state: 'waiting' });
      const rows = await bench.rows();
      expect(rows.filter(({ state }) => state !== 'delivered').map(({ id }) => id)).to.deep.equal([poison.id]);
    }).timeout(30_000);

    it('is probed with an untried message, not with the first in the queue', async () => {
      await open();
      const poisons = Array.from({ length: 12 }, () => aDelivery(URL_A));
      crash(poisons.map(({ id }) => id));
      await bench.put(poisons);
      expect(await healthyIn(5, 300)).to.equal(300);
    });
  });

  it('is probed a few times more with untried messages, and then every half minute', async () => {
    await open();
    bench.endpoint(() => reset);
    await put(100, 'inbound');
    await bench.clock.advance(10 * MINUTE);
    expect(bench.posts.length).to.be.within(20, 40);
  });

  it('is not retried endlessly while its probe cannot be prepared', async () => {
    await open();
    bench.endpoint(() => refused);
    await put(10, 'inbound');
    await bench.clock.advance(10 * SECOND);
    bench.keys(undefined);
    let looks = 0;
    const { message } = bench.spool;
    bench.spool.message = (...args) => {
      looks++;
      // Without an end, the loop would not let the test fail.
      return looks > 1000 ? new Promise(() => {}) : message(...args);
    };
    await bench.clock.advance(MINUTE);
    expect(looks).to.be.within(2, 60);
    bench.keys(['present']);
    bench.endpoint(() => answered(200));
    await bench.clock.advance(MINUTE);
    expect(await bench.spool.count({})).to.include({ delivered: 10 });
  });

  it('is not probed a second time if no message can be the cause, or if it asks for a delay', async () => {
    for (const result of [refused, answered(503, '600')]) {
      await open();
      bench.endpoint(() => result);
      await put(100, 'inbound');
      await bench.clock.advance(20 * SECOND);
      expect(bench.posts.length).to.be.at.most(12);
      await bench.dispatcher.stop();
    }
  });
});
