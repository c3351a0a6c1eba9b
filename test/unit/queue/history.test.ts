import { expect } from 'chai';
import type { AttemptRecord, Delivery } from '../../../src/queue/delivery.ts';
import { clockAt, createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { borrowSpool, type TestSpool } from '../../support/shared-spool.ts';
import { put, settled } from '../../support/spool.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const URL = 'https://hooks.example.com/in';
const HERE = { account: 'acme', url: URL };

describe('endpoint statistics', () => {
  const clock = createTestClock();
  const now = clock.now();
  let spool: TestSpool;
  const history = (endpoint = HERE) => spool.history(endpoint, now);
  beforeEach(async () => {
    spool = await borrowSpool({ clock, log: createTestLog() });
  });
  afterEach(() => spool.close());

  const accept = async (at: number, url = URL) => (await put(spool, clockAt(at), { account: 'acme', url })).delivery;
  const attempt = (delivery: Delivery, at: number, made: Partial<AttemptRecord>, state: 'waiting' | 'delivered') =>
    spool.settle(
      settled(clockAt(at), delivery, {
        state,
        attempt: { at, durationMs: 10, status: 200, error: null, answer: 'ok', ...made },
      }),
    );

  it('cover the last hour and day, by the nearest rank', async () => {
    for (let n = 1; n <= 20; n++) {
      const at = now - n * MINUTE;
      await attempt(await accept(at), at, { durationMs: n }, 'delivered');
    }
    const late = await accept(now - 5 * HOUR);
    await attempt(late, now - 2 * HOUR, { status: 500, durationMs: 1000.4 }, 'waiting');
    await attempt(late, now - 25 * HOUR, { status: 500 }, 'waiting');
    await attempt(await accept(now, 'https://other.example.com/'), now, { status: 500 }, 'waiting');
    const { hour, day, recent, sampled } = await history();
    expect(hour).to.deep.equal({ attempts: 20, ok: 20, p50: 10, p95: 19 });
    expect(day).to.deep.equal({ attempts: 21, ok: 20, p50: 11, p95: 20 });
    expect(recent.map(({ ms }) => ms)).to.deep.equal([10, 1000.4, ...Array.from({ length: 20 }, (_, n) => 20 - n)]);
    expect(sampled).to.equal(false);
  });

  it('are empty for an endpoint that is unknown, or of another account', async () => {
    await attempt(await accept(now), now, {}, 'delivered');
    const none = { attempts: 0, ok: 0, p50: null, p95: null };
    for (const endpoint of [
      { account: 'other', url: URL },
      { account: 'acme', url: 'https://nobody.example.com/' },
    ])
      expect(await history(endpoint)).to.deep.equal({ hour: none, day: none, recent: [], answers: [], sampled: false });
  });

  it('count a shared POST as one', async () => {
    for (let n = 0; n < 5; n++) await attempt(await accept(now), now, { batch: 'batch-5-a' }, 'delivered');
    await attempt(await accept(now), now, {}, 'delivered');
    const { hour, answers } = await history();
    expect(hour.attempts).to.equal(2);
    expect(answers[0]?.count).to.equal(2);
  });

  it('group answers that differ only in numbers and ids, failures first, the most frequent first', async () => {
    const answer = async (made: Partial<AttemptRecord>, times = 1) => {
      for (let n = 0; n < times; n++) {
        const text = made.answer?.replaceAll('N', String(10 ** n));
        await attempt(await accept(now), now + n, { ...made, ...(text !== undefined && { answer: text }) }, 'waiting');
      }
    };
    await answer({ answer: 'stored N' }, 7);
    await answer({ status: 500, answer: `undefined method \`id' for #<User:0x00fN> at line N ${'x'.repeat(500)}` }, 9);
    await answer({ status: null, error: 'timeout', answer: '' }, 2);
    await answer({ status: 502, answer: 'Bad Gateway' });
    const { answers } = await history();
    expect(answers.map(({ status, error, text, count }) => [status, error, text, count])).to.deep.equal([
      [500, null, `undefined method \`id' for #<User:#> at line # ${'x'.repeat(200)}`.slice(0, 120), 9],
      [null, 'timeout', '', 2],
      [502, null, 'Bad Gateway', 1],
      [200, null, 'stored #', 7],
    ]);
    expect(answers[0]?.lastAt).to.equal(now + 8);
    expect((await spool.attempts(answers[2]?.example ?? ''))[0]?.answer).to.equal('Bad Gateway');
  });

  it('distinguish fifty answers at most', async () => {
    const words = Array.from({ length: 60 }, (_, n) =>
      String.fromCharCode(97 + (n % 26)).repeat(1 + Math.floor(n / 26)),
    );
    for (const word of words) await attempt(await accept(now), now, { status: 500, answer: word }, 'waiting');
    const { answers, hour } = await history();
    expect(answers).to.have.length(50);
    expect(hour.attempts).to.equal(60);
  });

  it('read ten thousand attempts, and report that there are more', async () => {
    const deliveries = await Promise.all(Array.from({ length: 201 }, () => accept(now - HOUR)));
    for (let n = 0; n < 50; n++)
      await Promise.all(deliveries.map((delivery) => attempt(delivery, now - n, { status: 500 }, 'waiting')));
    const { day, sampled, recent } = await history();
    expect(day.attempts).to.equal(10_000);
    expect(recent).to.have.length(100);
    expect(sampled).to.equal(true);
  }).timeout(30_000);
});

describe('deliveries waiting for an endpoint', () => {
  it('become due at once, each once, and none of another account', async () => {
    const clock = createTestClock();
    const spool = await borrowSpool({ clock, log: createTestLog() });
    const later = async (account: string, count: number) =>
      Promise.all(
        Array.from({ length: count }, async (_, n) => {
          const { delivery } = await put(spool, clock, { account, url: URL });
          const dueAt = clock.now() + 1000 + (n % 3);
          await spool.settle(settled(clock, delivery, { state: 'waiting', dueAt, attempt: null }));
        }),
      );
    await later('acme', 1203);
    await later('other', 2);
    await put(spool, clock, { account: 'acme', url: URL });
    expect(spool.waitingOf('acme')).to.deep.include({ ...HERE, kind: 'inbound', waiting: 1204, memory: null });
    expect(await spool.retryEndpoint('acme', URL, clock.now())).to.equal(1203);
    expect(await spool.retryEndpoint('acme', URL, clock.now())).to.equal(0);
    expect(await spool.due('acme', URL, clock.now(), 2000, [])).to.have.length(1204);
    expect(await spool.due('other', URL, clock.now(), 2000, [])).to.have.length(0);
    await spool.close();
  });

  it('have an oldest, by acceptance', async () => {
    const clock = createTestClock();
    const spool = await borrowSpool({ clock, log: createTestLog() });
    const at = clock.now();
    const { delivery } = await put(spool, clockAt(at - 3000), { account: 'acme', url: URL });
    await spool.settle(settled(clock, delivery));
    await put(spool, clockAt(at - 2000), { account: 'acme', url: URL });
    await put(spool, clockAt(at - 1000), { account: 'acme', url: URL });
    await put(spool, clockAt(at - 9000), { account: 'other', url: URL });
    expect([...(await spool.oldestOf('acme', [URL, 'https://nobody.example.com/']))]).to.deep.equal([[URL, at - 2000]]);
    expect([...(await spool.oldestOf('acme', []))]).to.deep.equal([]);
    await spool.close();
  });
});
