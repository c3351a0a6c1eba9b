import { expect } from 'chai';
import type { AttemptResult } from '../../../src/queue/settle.ts';
import {
  type AttemptFacts,
  longestWait,
  readRetryAfter,
  settle,
  settleUnattempted,
} from '../../../src/queue/settle.ts';
import { answered, refused, timedOut } from '../../support/delivery.ts';

const NOW = Date.UTC(2026, 0, 5, 12, 0, 0);
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const LIMIT = 120 * HOUR;

const after = (
  result: AttemptResult,
  more: Partial<AttemptFacts> & { attempts?: number; parked?: boolean; age?: number; mayEnd?: boolean } = {},
) =>
  settle({
    delivery: { id: 'd1', attempts: more.attempts ?? 0, parked: more.parked ?? false },
    result,
    now: NOW,
    jitter: more.jitter ?? 0,
    budget: { age: more.age ?? 0, limit: LIMIT, mayEnd: more.mayEnd ?? true },
    othersPass: more.othersPass ?? false,
    batch: more.batch,
  });

describe('settling an attempt', () => {
  it('accepts any 2xx as delivered', () => {
    for (const status of [200, 201, 202, 204, 206, 299]) {
      const { outcome, settlement, lesson } = after(answered(status));
      expect(outcome).to.equal('delivered');
      expect(settlement).to.deep.include({ deliveryId: 'd1', state: 'delivered', parked: false, at: NOW });
      expect(lesson.kind).to.equal('passed');
    }
  });

  it('retries on anything else, 3xx and 4xx included', () => {
    for (const result of [300, 301, 304, 400, 401, 404, 406, 410, 422, 429, 500, 503]
      .map((status) => answered(status))
      .concat(refused, timedOut)) {
      expect(after(result)).to.deep.include({ outcome: 'deferred', wait: 5 * SECOND });
    }
  });

  it('waits 5 s, 30 s, 5 min, 15 min and then 25 min between attempts', () => {
    const waits = [0, 1, 2, 3, 4, 5, 50].map((attempts) => after(answered(500), { attempts }).wait / SECOND);
    expect(waits).to.deep.equal([5, 30, 300, 900, 1500, 1500, 1500]);
  });

  it('adds up to a fifth to retries, up to half an hour', () => {
    expect(after(answered(500), { jitter: 0.5 }).wait).to.equal(5.5 * SECOND);
    expect(after(answered(500), { attempts: 9, jitter: 0.9999 }).wait).to.be.within(29.9 * MINUTE, 30 * MINUTE);
  });

  it('fails when the retry time has expired, and keeps the last answer', () => {
    const { outcome, settlement } = after(answered(500), { age: LIMIT, attempts: 300 });
    expect(outcome).to.equal('failed');
    expect(settlement.state).to.equal('dead');
    expect(settlement.attempt).to.deep.equal({ at: NOW - 3, durationMs: 3, status: 500, error: null, answer: '' });
  });

  it('neither fails nor parks deliveries after a shared failure: each is retried once, alone', () => {
    const shared = { age: LIMIT, batch: 'batch-2-x' };
    const { outcome, wait, settlement } = after(answered(500), shared);
    expect([outcome, wait]).to.deep.equal(['deferred', 5 * SECOND]);
    expect(settlement).to.deep.include({ state: 'waiting', parked: false });
    expect(settlement.attempt).to.include({ status: 500, batch: 'batch-2-x' });
    expect(after(answered(500), { age: LIMIT, attempts: 1 }).outcome).to.equal('failed');
    expect(after(answered(200), shared).settlement.attempt).to.include({ status: 200, batch: 'batch-2-x' });
  });

  it('accepts a success at the last moment', () => {
    expect(after(answered(200), { age: 2 * LIMIT }).outcome).to.equal('delivered');
  });

  it('makes the last attempt when the retry time expires, not hours later', () => {
    const { wait } = after(answered(503, '21600'), { age: LIMIT - HOUR, attempts: 9 });
    expect(wait).to.equal(HOUR);
    expect(after(answered(500), { age: LIMIT - MINUTE, attempts: 9 }).wait).to.equal(25 * MINUTE);
  });

  it('fails nothing while the clock is uncertain', () => {
    expect(after(answered(500), { age: 10 * LIMIT, mayEnd: false }).outcome).to.equal('deferred');
  });

  describe('with Retry-After', () => {
    it('waits for the requested time, in seconds or until a date', () => {
      expect(after(answered(503, '90')).wait).to.equal(90 * SECOND);
      expect(after(answered(429, new Date(NOW + 10 * MINUTE).toUTCString())).wait).to.equal(10 * MINUTE);
    });

    it('never waits less than its own interval, and never more than six hours', () => {
      expect(after(answered(503, '0'), { attempts: 2 }).wait).to.equal(5 * MINUTE);
      expect(after(answered(503, new Date(NOW - HOUR).toUTCString()), { attempts: 2 }).wait).to.equal(5 * MINUTE);
      expect(after(answered(503, '9999999999')).wait).to.equal(6 * HOUR);
    });

    it('ignores invalid values', () => {
      for (const value of [
        '',
        'soon',
        '-5',
        '1.5',
        '1e3',
        '5 minutes',
        '0x10',
        'Infinity',
        '99999999999999999999',
        'Monday',
      ]) {
        expect(readRetryAfter(value, NOW), value).to.equal(undefined);
      }
      expect(readRetryAfter(null, NOW)).to.equal(undefined);
    });

    it('respects the time requested by the endpoint', () => {
      expect(after(answered(503, '600')).lesson).to.deep.include({
        kind: 'failed',
        leaveAlone: 10 * MINUTE,
        strained: true,
      });
    });
  });

  describe('of a delivery that fails while others succeed', () => {
    it('parks it from the fourth failure on, for an hour and then six', () => {
      expect(after(answered(422), { attempts: 2, othersPass: true }).settlement.parked).to.equal(false);
      const parked = after(answered(422), { attempts: 3, othersPass: true });
      expect(parked.settlement.parked).to.equal(true);
      expect(parked.wait).to.equal(HOUR);
      expect(after(answered(422), { attempts: 4, parked: true }).wait).to.equal(6 * HOUR);
    });

    it('parks a message that makes the endpoint hang, and none without a connection', () => {
      expect(after(timedOut, { attempts: 3, othersPass: true }).settlement.parked).to.equal(true);
      expect(after(refused, { attempts: 3, othersPass: true }).settlement.parked).to.equal(false);
    });

    it('does not count against the endpoint', () => {
      expect(after(answered(422), { attempts: 5, parked: true }).lesson.aside).to.equal(true);
      expect(after(timedOut, { attempts: 5, parked: true }).lesson.aside).to.equal(true);
      expect(after(refused, { attempts: 5, parked: true }).lesson.aside).to.equal(false);
      expect(after(answered(503), { attempts: 5, parked: true }).lesson.aside).to.equal(false);
      expect(after(answered(500), { attempts: 5 }).lesson.aside).to.equal(false);
    });
  });

  it('distinguishes no answer from a bad one, and 410 from both', () => {
    expect(after(refused).lesson).to.deep.include({ kind: 'unanswered', strained: false });
    expect(after(timedOut).lesson).to.deep.include({ kind: 'unanswered', strained: true });
    expect(after(answered(500)).lesson).to.deep.include({ kind: 'failed', strained: false });
    expect(after(answered(410)).lesson.kind).to.equal('gone');
  });

  it('ends a delivery without an attempt', () => {
    expect(settleUnattempted('d9', 'dead', true, NOW)).to.deep.equal({
      deliveryId: 'd9',
      attempt: null,
      state: 'dead',
      dueAt: NOW,
      parked: true,
      at: NOW,
    });
  });

  it('knows its longest delay, so that a later due time is recognised as wrong', () => {
    for (const attempts of [1, 2, 3, 4, 5, 20]) {
      expect(after(refused, { attempts: attempts - 1, jitter: 0.999 }).wait).to.be.at.most(
        longestWait({ attempts, parked: false, lastStatus: null }),
      );
    }
    expect(longestWait({ attempts: 9, parked: false, lastStatus: null })).to.equal(30 * MINUTE);
    expect(longestWait({ attempts: 1, parked: false, lastStatus: 503 })).to.equal(6 * HOUR);
  });
});
