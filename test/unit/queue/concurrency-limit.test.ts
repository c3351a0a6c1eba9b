import { expect } from 'chai';
import {
  afterIdle,
  type ConcurrencyBounds,
  type ConcurrencyLimit,
  newLimit,
  updateLimit,
} from '../../../src/queue/schedule/concurrency-limit.ts';

const BOUNDS: ConcurrencyBounds = { start: 2, most: 128, heedsLatency: true };
const SECOND = 1000;
/** As many as it gets. */
const MANY = Number.POSITIVE_INFINITY;

interface Model {
  /** Milliseconds of work for one post. */
  readonly work: (now: number) => number;
  /** How many it works on at one time; the others wait in its queue. */
  readonly workers: (now: number) => number;
  /** Milliseconds that an answer lies in our own event loop. */
  readonly lag?: (now: number) => number;
  /** Its answer at this concurrency. */
  readonly kind?: (now: number, inside: number) => 'ok' | 'failed' | 'strained';
}

interface Post {
  readonly sentAt: number;
  readonly endsAt: number;
  readonly full: boolean;
  readonly kind: 'ok' | 'failed' | 'strained';
}

/** An endpoint with workers and a queue, which gets as many posts at one time as its limit allows. */
function createEndpoint(
  { work, workers, lag = () => 0, kind = () => 'ok' }: Model,
  bounds = BOUNDS,
  /** Posts for which there is mail at one time. */
  wanted = Number.POSITIVE_INFINITY,
) {
  let state: ConcurrencyLimit = newLimit(bounds.start);
  let now = 0;
  let freeAt: number[] = [];
  const inside: Post[] = [];

  function send(): void {
    const limit = Math.floor(state.limit);
    while (inside.length < Math.min(limit, wanted)) {
      const ends = beginAt(workers(now)) + work(now);
      freeAt[0] = ends;
      const post = { sentAt: now, endsAt: ends + lag(now), kind: kind(now, inside.length + 1) };
      inside.push({ ...post, full: inside.length + 1 >= limit });
    }
  }

  /** When one of the workers is free. */
  function beginAt(size: number): number {
    if (size === Number.POSITIVE_INFINITY) return now;
    while (freeAt.length < size) freeAt.push(now);
    freeAt = freeAt.sort((a, b) => a - b).slice(0, size);
    return Math.max(now, freeAt[0] ?? now);
  }

  return {
    limit: () => Math.floor(state.limit),
    /** Answers in the time; runs it. */
    run(until: number): number {
      let answers = 0;
      for (send(); ; send()) {
        inside.sort((a, b) => a.endsAt - b.endsAt);
        const [next] = inside;
        if (!next || next.endsAt > until) break;
        inside.shift();
        now = next.endsAt;
        answers++;
        state = updateLimit(
          state,
          { kind: next.kind, sentAt: next.sentAt, now, full: next.full, lag: lag(now) },
          bounds,
        );
      }
      now = until;
      return answers;
    },
  };
}

const always =
  <T>(value: T) =>
  () =>
    value;

describe('the concurrency limit of an endpoint', () => {
  it('reaches its maximum within a second if answers take 50 ms at any concurrency', () => {
    const endpoint = createEndpoint({ work: always(50), workers: always(MANY) });
    endpoint.run(SECOND);
    expect(endpoint.limit()).to.equal(128);
    expect(endpoint.run(2 * SECOND)).to.be.at.least(2400);
  });

  for (const { work, workers, least, most } of [
    { work: 50, workers: 16, least: 16, most: 32 },
    { work: 50, workers: 64, least: 64, most: 128 },
    { work: 500, workers: 32, least: 32, most: 64 },
    { work: 1, workers: 1, least: 1, most: 42 }, // 40 ms in its queue count as nothing
    { work: 2000, workers: 1, least: 1, most: 8 },
  ])
    it(`stays between ${least} and ${most} if ${workers} are processed concurrently, ${work} ms each`, () => {
      const endpoint = createEndpoint({ work: always(work), workers: always(workers) });
      endpoint.run(60 * work + 2 * SECOND);
      const seen: number[] = [];
      let answers = 0;
      for (let n = 0; n < 40; n++) {
        answers += endpoint.run(60 * work + 2 * SECOND + (n + 1) * 5 * work);
        seen.push(endpoint.limit());
      }
      expect(Math.min(...seen), 'least').to.be.at.least(least);
      expect(Math.max(...seen), 'most').to.be.at.most(most);
      expect(answers).to.be.at.least(0.97 * 200 * workers);
    });

  it('does not grow beyond the waiting mail', () => {
    const endpoint = createEndpoint({ work: always(50), workers: always(MANY) }, BOUNDS, 3);
    endpoint.run(60 * SECOND);
    expect(endpoint.limit()).to.be.at.most(8);
  });

  it('follows an endpoint that is slower for a while', () => {
    const workers = (now: number) => (now > 5 * SECOND && now < 30 * SECOND ? 4 : 64);
    const endpoint = createEndpoint({ work: always(50), workers });
    endpoint.run(5 * SECOND);
    expect(endpoint.limit()).to.be.at.least(64);
    endpoint.run(29 * SECOND);
    expect(endpoint.limit()).to.be.within(4, 12);
    endpoint.run(40 * SECOND);
    expect(endpoint.limit()).to.be.at.least(64);
  });

  it('recovers if an endpoint became slower for another reason', () => {
    const endpoint = createEndpoint({ work: (now) => (now < 5 * SECOND ? 50 : 200), workers: always(MANY) });
    const seen = Array.from({ length: 250 }, (_, n) => {
      endpoint.run(n * 100);
      return endpoint.limit();
    });
    expect(Math.min(...seen.slice(50))).to.be.at.least(10);
    expect(seen.at(-1)).to.equal(128);
  });

  it('does not shrink if our own event loop is late', () => {
    const endpoint = createEndpoint({
      work: always(1),
      workers: always(MANY),
      lag: (now) => (now < 200 ? 0 : 150),
    });
    for (let n = 1; n < 40; n++) {
      endpoint.run(200 + n * 100);
      expect(endpoint.limit()).to.equal(128);
    }
  });

  it('adapts to an endpoint that answers 429 above its capacity', () => {
    const endpoint = createEndpoint({
      work: always(20),
      workers: always(MANY),
      kind: (_, inside) => (inside > 40 ? 'strained' : 'ok'),
    });
    endpoint.run(10 * SECOND);
    const seen = Array.from({ length: 100 }, (_, n) => {
      endpoint.run(10 * SECOND + n * 100);
      return endpoint.limit();
    });
    expect(Math.min(...seen)).to.be.at.least(20);
    expect(Math.max(...seen)).to.be.at.most(48);
  });

  it('is halved at once on a failure from load, once for all in flight', () => {
    const full = { now: 10, sentAt: 0, full: true, lag: 0 };
    const strained = { ...full, kind: 'strained' } as const;
    const once = updateLimit(newLimit(64), strained, BOUNDS);
    expect(once.limit).to.equal(32);
    expect(updateLimit(once, strained, BOUNDS).limit).to.equal(32);
    expect(updateLimit(once, { ...strained, sentAt: 10, now: 20 }, BOUNDS).limit).to.equal(16);
    expect(updateLimit(newLimit(1), strained, BOUNDS).limit).to.equal(1);
  });

  it('shrinks a little when a few of many messages fail', () => {
    const few = createEndpoint({ work: always(50), workers: always(MANY), kind: () => (n++ % 100 ? 'ok' : 'failed') });
    let n = 1;
    few.run(30 * SECOND);
    expect(few.limit()).to.be.at.least(40);
    const all = createEndpoint({ work: always(50), workers: always(MANY), kind: () => 'failed' });
    all.run(30 * SECOND);
    expect(all.limit()).to.equal(1);
  });

  it('ignores latency if so set', () => {
    const bounds = { start: 2, most: 20, heedsLatency: false };
    const endpoint = createEndpoint({ work: always(1000), workers: always(2) }, bounds);
    endpoint.run(60 * SECOND);
    expect(endpoint.limit()).to.equal(20);
  });

  it('is small again after a minute without mail', () => {
    const known = { ...newLimit(100), floor: 50 };
    expect(afterIdle(known, 59_999, BOUNDS)).to.equal(known);
    expect(afterIdle(known, 60_000, BOUNDS)).to.include({ limit: 2, doubling: true, floor: 50 });
  });
});
