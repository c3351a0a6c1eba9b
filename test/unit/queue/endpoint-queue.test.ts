import { expect } from 'chai';
import { createEndpointQueue, createFifo, createHeap, HELD } from '../../../src/queue/schedule/endpoint-queue.ts';

import type { Waiting } from '../../../src/queue/schedule/waiting.ts';
import { aDelivery } from '../../support/delivery.ts';

const waiting = (due = 0, more: Partial<Waiting> = {}): Waiting => ({
  delivery: aDelivery(),
  attempts: 0,
  budgetFrom: 0,
  parked: false,
  alone: false,
  scheduled: false,
  timed: false,
  due,
  failedAt: Number.POSITIVE_INFINITY,
  ...more,
});

describe('the queue of an endpoint', () => {
  it('returns companions of a taken delivery only if they are due', () => {
    const queue = createEndpointQueue();
    const [first, second, third, later] = [waiting(), waiting(), waiting(), waiting(50)];
    for (const one of [first, second, third, later]) queue.addFresh(one, 10);
    expect(queue.take(10)).to.equal(first);
    expect(queue.takeWith({ most: 9, accepts: (next) => next !== second }, 10)).to.deep.equal([third]);
    expect(queue.take(10)).to.equal(second);
    expect(queue.takeWith({ most: 9, accepts: () => true }, 10)).to.deep.equal([]);
    expect(queue.takeWith({ most: 9, accepts: () => true }, 50)).to.deep.equal([later]);
  });

  it('holds up to its limit of due ones and leaves the rest outside', () => {
    const queue = createEndpointQueue();
    for (let i = 0; i < HELD; i++) queue.addFresh(waiting(), 10);
    expect(queue.outsideAt()).to.equal(Number.POSITIVE_INFINITY);
    queue.addFresh(waiting(), 10);
    expect(queue.outsideAt()).to.equal(10);
    expect(queue.wantsLoad(10)).to.equal(false);
    while (queue.take(10));
    expect(queue.wantsLoad(10)).to.equal(true);
  });

  it('leaves new ones outside while due mail is outside, and while it reads', () => {
    const queue = createEndpointQueue();
    queue.forget(10);
    queue.addFresh(waiting(), 11);
    expect(queue.take(11)).to.equal(undefined);
    queue.beginLoad();
    queue.addFresh(waiting(), 12);
    queue.endLoad([], false, 13);
    expect(queue.wantsLoad(13)).to.equal(true);
  });

  it('adds the same delivery once, even if it is reported several times', () => {
    const queue = createEndpointQueue();
    const one = waiting();
    queue.addFresh(one, 0);
    queue.addFresh(one, 0);
    expect(queue.take(0)).to.equal(one);
    queue.addFresh(one, 0);
    expect(queue.take(0)).to.equal(undefined);
    queue.done(one.delivery.id);
    queue.addFresh(one, 0);
    expect(queue.take(0)).to.equal(one);
  });

  it('names all that it holds and all in flight, so that they are not read again', () => {
    const queue = createEndpointQueue();
    const [flying, here, later] = [waiting(), waiting(), waiting(0)];
    queue.addFresh(flying, 0);
    queue.take(0);
    queue.addFresh(here, 0);
    queue.addFresh(later, 0);
    expect([...queue.beginLoad()].sort()).to.deep.equal(
      [flying, here, later].map(({ delivery }) => delivery.id).sort(),
    );
  });

  it('knows when there is more outside after a limited read', () => {
    const queue = createEndpointQueue();
    queue.forget(0);
    queue.beginLoad();
    queue.endLoad([waiting(0), waiting(50), waiting(90)], true, 0);
    expect(queue.outsideAt()).to.equal(90);
    expect(queue.nextDue()).to.equal(Number.NEGATIVE_INFINITY);
    queue.take(0);
    expect(queue.nextDue()).to.equal(50);
  });

  it('discards rows that it read if it was reset meanwhile', () => {
    const queue = createEndpointQueue();
    queue.forget(0);
    queue.beginLoad();
    queue.forget(1);
    queue.endLoad([waiting()], false, 2);
    expect(queue.take(2)).to.equal(undefined);
    expect(queue.wantsLoad(2)).to.equal(true);
  });

  it('reads again some seconds after a read that failed', () => {
    const queue = createEndpointQueue();
    queue.forget(0);
    queue.beginLoad();
    queue.endLoad(undefined, false, 100);
    expect(queue.wantsLoad(100)).to.equal(false);
    expect(queue.wantsLoad(5100)).to.equal(true);
  });

  it('probes with the first even before its due time, but not with parked ones', () => {
    const queue = createEndpointQueue();
    queue.defer(waiting(100, { parked: true }));
    expect(queue.takeProbe(0)).to.equal(undefined);
    expect(queue.nextProbe()).to.equal(100);
    const plain = waiting(50);
    queue.defer(plain);
    expect(queue.takeProbe(0)).to.equal(plain);
    expect(queue.takeProbe(100)?.parked).to.equal(true);
  });

  it('makes all but parked ones due when the endpoint has recovered', () => {
    const queue = createEndpointQueue();
    queue.defer(waiting(100, { parked: true }));
    queue.defer(waiting(200));
    expect(queue.makeAllDue(10)).to.equal(false);
    expect(queue.take(10)?.due).to.equal(10);
    expect(queue.take(99)).to.equal(undefined);
  });

  it('leaves deferred ones above its limit outside, with their due time', () => {
    const queue = createEndpointQueue();
    for (let i = 0; i <= HELD; i++) queue.defer(waiting(1000 + i));
    expect(queue.outsideAt()).to.equal(1000 + HELD);
  });

  it('removes ended deliveries and keeps the order of the rest', () => {
    const queue = createEndpointQueue();
    const all = [1, 2, 3, 4].map((budgetFrom) => waiting(0, { budgetFrom }));
    for (const one of all) queue.addFresh(one, 0);
    expect(queue.takeExpired(0, ({ budgetFrom }) => budgetFrom % 2 === 0)).to.deep.equal([all[1], all[3]]);
    expect([queue.take(0), queue.take(0)]).to.deep.equal([all[0], all[2]]);
  });
});

describe('a heap', () => {
  it('returns the smallest first, for any input', () => {
    const heap = createHeap<number>((n) => n);
    let seed = 7;
    const numbers = Array.from({ length: 500 }, () => (seed = (seed * 48271) % 2147483647) % 1000);
    const out: number[] = [];
    numbers.forEach((n, i) => {
      heap.add(n);
      if (i % 3 === 2) out.push(heap.take() ?? -1);
    });
    const rest: number[] = [];
    for (let n = heap.take(); n !== undefined; n = heap.take()) rest.push(n);
    expect(rest).to.deep.equal([...rest].sort((a, b) => a - b));
    expect([...out, ...rest].sort()).to.deep.equal([...numbers].sort());
    expect(heap.peek()).to.equal(undefined);
  });
});

describe('a FIFO queue', () => {
  it('returns selected items up to a limit, and keeps the others in place', () => {
    for (const before of [0, 1, 1500]) {
      const fifo = createFifo<number>();
      for (let i = 0; i < before; i++) fifo.add(-1);
      for (let i = 0; i < 10; i++) fifo.add(i);
      for (let i = 0; i < before; i++) fifo.take();
      const asked: number[] = [];
      const even = (n: number) => asked.push(n) > 0 && n % 2 === 0;
      expect(fifo.takeWhich(3, even)).to.deep.equal([0, 2, 4]);
      expect(asked, 'asked no more than it must').to.deep.equal([0, 1, 2, 3, 4]);
      expect(fifo.takeWhich(9, even)).to.deep.equal([6, 8]);
      expect(fifo.drain()).to.deep.equal([1, 3, 5, 7, 9]);
    }
  });

  it('keeps the order over thousands, and can put one back at the front', () => {
    const fifo = createFifo<number>();
    const out: number[] = [];
    for (let i = 0; i < 5000; i++) {
      fifo.add(i);
      if (i % 2 === 1) {
        const taken = fifo.take();
        if (taken !== undefined && taken % 100 === 0) {
          fifo.putBack(taken);
          out.push(fifo.take() ?? -1);
        } else out.push(taken ?? -1);
      }
    }
    expect(fifo.size()).to.equal(2500);
    expect([...out, ...fifo.drain()]).to.deep.equal(Array.from({ length: 5000 }, (_, i) => i));
    expect(fifo.take()).to.equal(undefined);
  });
});
