import { expect } from 'chai';
import { freeMemory } from '../../../src/base/bytes.ts';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createWorkerPool, type PooledTask } from '../../../src/base/worker-pool.ts';
import { afterTest } from '../../support/cleanup.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { until } from '../../support/until.ts';

type Keep = PooledTask<Uint8Array, { readonly left: readonly number[]; readonly same: Uint8Array }>;

const pack = (text: string) => {
  const value = new Uint8Array(Buffer.from(text));
  return { value, transfer: [value.buffer] };
};

const MINUTE = 60_000;
const stops: (() => Promise<void>)[] = [];
afterTest(async () => {
  for (const stop of stops.splice(0)) await stop();
});

function openPool({ threads = 1, clock = systemClock }: { readonly threads?: number; readonly clock?: Clock } = {}) {
  const script = new URL('../../support/keeping-thread.ts', import.meta.url);
  const pool = createWorkerPool(
    { script, data: null, threads, timeoutMs: 60_000, memoryMb: 64 },
    { clock, log: createTestLog(), metrics: NO_METRICS },
  );
  stops.push(pool.stop);
  return pool;
}

describe('memory transferred to a task', () => {
  function open() {
    const pool = openPool();
    const keep: Keep = pool.task('keep');
    const fail: Keep = pool.task('fail');
    return { keep, fail };
  }

  it('is freed on its thread when the task has replied or failed', async () => {
    const { keep, fail } = open();
    expect((await keep(() => pack('first'))).left).to.deep.equal([]);
    expect(String(await fail(() => pack('second')).catch((error: unknown) => error))).to.contain('it was to fail');
    expect((await keep(() => pack('third'))).left).to.deep.equal([0, 0]);
  });

  it('stays until the reply is complete, even when replies leave together', async () => {
    const { keep } = open();
    const texts = Array.from({ length: 30 }, (_, n) => `the bytes of task ${n}`);
    const replies = await Promise.all(texts.map((text) => keep(() => pack(text))));
    expect(replies.map(({ same }) => Buffer.from(same).toString())).to.deep.equal(texts.map((text) => text.slice(1)));
  });

  it('cannot be transferred twice: the task fails, the others continue', async () => {
    const { keep } = open();
    const gone = new Uint8Array(Buffer.from('gone').buffer.slice(0, 4));
    freeMemory(gone);
    const lost = keep(() => ({ value: new Uint8Array(gone), transfer: [] }));
    const beside = keep(() => pack('beside'));
    expect(String(await lost.catch((error: unknown) => error))).to.contain('detached');
    expect((await beside).left).to.deep.equal([]);
    await keep(() => ({ value: new Uint8Array(gone), transfer: [] })).catch(() => undefined);
    expect((await keep(() => pack('behind'))).left).to.deep.equal([0]);
  });

  it('is freed only if transferred, not if copied', async () => {
    const value = new Uint8Array(8);
    expect(value.byteLength).to.equal(8);
    const { keep } = open();
    // Copied, not transferred, so it is not freed.
    expect((await keep(() => ({ value, transfer: [] }))).left).to.deep.equal([]);
    expect(value.byteLength).to.equal(8);
    expect((await keep(() => pack('next'))).left).to.deep.equal([8]);
  });
});

describe('a thread of a pool', () => {
  it('ends after five minutes without work, and the next task starts another', async () => {
    const clock = createTestClock();
    const pool = openPool({ clock });
    const threadOf = (): Promise<number> => pool.task<null, number>('thread')(() => ({ value: null, transfer: [] }));
    const first = await threadOf();
    await clock.advance(4 * MINUTE);
    expect(await threadOf()).to.equal(first);
    await clock.advance(4 * MINUTE);
    expect(await threadOf()).to.equal(first);
    await clock.advance(5 * MINUTE);
    const second = await threadOf();
    expect(second).to.not.equal(first);
    expect(await threadOf()).to.equal(second);
  });

  it('does not end during a task', async () => {
    const clock = createTestClock();
    const pool = openPool({ clock });
    const cells = new Int32Array(new SharedArrayBuffer(8));
    const waiting = pool.task<Int32Array, string>('wait')(() => ({ value: cells, transfer: [] }));
    await until('the task to run', async () => (await pool.each<number>('thread', MINUTE)).length === 1);
    await clock.leap(11 * MINUTE);
    Atomics.store(cells, 0, 1);
    Atomics.notify(cells, 0);
    expect(await waiting).to.equal('ok');
  });
});

describe('a broadcast to all threads of a pool', () => {
  it('is answered by the working ones, without waiting for a stuck thread', async () => {
    const pool = openPool({ threads: 2 });
    const ask = (ms: number) => pool.each<number>('thread', ms);
    expect(await ask(60_000)).to.deep.equal([]);

    const cells = new Int32Array(new SharedArrayBuffer(8));
    const packed = () => ({ value: cells, transfer: [] });
    const works = [pool.task<Int32Array, string>('wait')(packed)];
    await until('the first thread has work', async () => (await ask(60_000)).length === 1);
    const [first] = await ask(60_000);
    works.push(pool.task<Int32Array, string>('block')(packed));
    await until('the second is stuck', () => Atomics.load(cells, 1) === 1);
    const answers = await until('the first has answered', async () => {
      const some = await ask(200);
      return some.length > 0 && some;
    });
    expect(answers).to.deep.equal([first]);
    Atomics.store(cells, 0, 1);
    Atomics.notify(cells, 0);
    expect(await Promise.all(works)).to.deep.equal(['ok', 'ok']);
    expect(await ask(60_000)).to.deep.equal([]);
  });
});
