import { join } from 'node:path';
import { expect } from 'chai';
import type { Delivery } from '../../../src/queue/delivery.ts';
import { createOpenFile, type OpenFile } from '../../../src/queue/disk/open-file.ts';
import { BEHIND, DELIVERY_ROW, openFile, toDelivery } from '../../../src/queue/disk/schema.ts';
import { longFailure } from '../../../src/queue/settle.ts';
import type { DeliveryState } from '../../../src/queue/states.ts';
import { aDelivery } from '../../support/delivery.ts';
import { tempDir } from '../../support/temp.ts';

const PATIENCE = 900_000;
const ENDPOINT = { account: 'acc', url: 'pull:', kind: 'inbound' } as const;

/** The writer's side of a queue, in the test's own thread. */
async function openQueue() {
  const path = join(await tempDir(), 'spool.db');
  let file: OpenFile = createOpenFile(openFile(path));
  let number = 0;
  let now = 1_000_000;
  /** Writes in one transaction; returns the results. */
  function write(...asks: (readonly [name: string, args: readonly unknown[]])[]): unknown[] {
    const { answers, news } = file.commit(asks.map(([name, args]) => [number++, name, args]));
    for (const [, kind, value] of answers) if (kind !== 'done') throw new Error(String(value));
    due.push(...(news.due ?? []).map(({ id }) => id));
    return answers.map(([, , value]) => value);
  }
  /** Those that the writer has said are due now. */
  const due: string[] = [];
  const rows = (where = '1') =>
    file.db
      .prepare(`${DELIVERY_ROW} WHERE ${where} ORDER BY d.key`)
      .all()
      .map((row) => toDelivery(row));
  return {
    due,
    waiting: () => rows('d.state = 0'),
    ended: () => rows('d.state > 0'),
    write,
    pass(ms: number) {
      now += ms;
      return now;
    },
    now: () => now,
    accept(delivery: Delivery): unknown {
      const message = { id: delivery.messageId, receivedAt: now, envelope: '{}', trace: '', size: 1, blob: null };
      const bytes = { bytes: new Uint8Array(1), crc: 0, sha256: null, verdicts: null, scan: null };
      return write(['accept', [{ ...message, ...bytes }, [delivery]]])[0];
    },
    /** An attempt ends. */
    settle(id: string, state: DeliveryState): unknown {
      const since = rows('d.state = 0').find((row) => row.id === id)?.heldSince ?? Number.POSITIVE_INFINITY;
      const failure = state === 'waiting' ? { failure: longFailure(since, PATIENCE, now) } : {};
      const attempt = { at: now, durationMs: 1, status: state === 'delivered' ? 200 : 500, error: null, answer: '' };
      const settlement = { deliveryId: id, attempt, state, dueAt: now, parked: false, at: now, ...failure };
      return write(['settle', [settlement, null]])[0];
    },
    keysOf: (ids: readonly string[]) =>
      file.db
        .prepare('SELECT key FROM deliveries WHERE id IN (SELECT value FROM json_each(?)) ORDER BY key')
        .all(JSON.stringify(ids))
        .map(({ key }) => Number(key)),
    /** As after an end of the process. */
    reopen() {
      file.db.close();
      file = createOpenFile(openFile(path), now);
    },
    damage: (sql: string) => file.db.exec(sql),
    close: () => file.db.close(),
  };
}

describe('the order of sequences on the disk', () => {
  let queue: Awaited<ReturnType<typeof openQueue>>;
  beforeEach(async () => {
    queue = await openQueue();
  });
  afterEach(() => queue.close());

  let seed = 7;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) % below;
  };
  const pick = <T>(from: readonly T[]): T | undefined => from[random(from.length)];
  const inTurn = (sequence: string) =>
    queue.waiting().filter((row) => row.sequence === sequence && row.dueAt !== BEHIND);

  it('leaves each sequence with one due delivery after any results, and lets none overtake too early', function () {
    this.timeout(60_000);
    let overtakings = 0;
    const sequences = ['sender:a', 'sender:b', 'thread:c'];
    const failures = new Map<string, { first: number; last: number }>();
    const replayed = new Set<string>();
    const tried = new Set<string>();
    /** One that is due and not the first is tried in place of the first, which has failed for long; so did all between. */
    const expectTrial = (id: string): void => {
      const one = queue.waiting().find((row) => row.id === id);
      const all = queue.waiting().filter(({ sequence }) => sequence !== undefined && sequence === one?.sequence);
      const before = all.slice(
        0,
        Math.max(
          0,
          all.findIndex((row) => row.id === id),
        ),
      );
      const [head] = before;
      if (!head || before.some((row) => replayed.has(row.id)) || replayed.has(id)) return;
      tried.add(id);
      const { first = 0, last = 0 } = failures.get(head.id) ?? {};
      expect(last - first, `${id} in place of ${head.id}`).to.be.at.least(PATIENCE);
      for (const { id: other } of before) expect(failures.has(other), `${id} after ${other}`).to.equal(true);
    };
    const ops: Readonly<Record<string, () => void>> = {
      accept: () => {
        const sequence = pick([...sequences, undefined]);
        queue.accept(aDelivery('pull:', sequence === undefined ? {} : { sequence }));
      },
      deliver: () => {
        const one = pick(queue.waiting().filter(({ behind }) => !behind));
        if (!one) return;
        const all = queue.waiting().filter((row) => row.sequence === one.sequence);
        const passed =
          one.sequence === undefined
            ? []
            : all.slice(
                0,
                all.findIndex(({ id }) => id === one.id),
              );
        for (const { id } of passed.filter((row) => !replayed.has(row.id) && !replayed.has(one.id))) {
          overtakings++;
          expect([failures.has(id), tried.has(one.id)], `${one.id} passed ${id}`).to.deep.equal([true, true]);
        }
        queue.settle(one.id, 'delivered');
      },
      fail: () => {
        const one = pick(queue.waiting().filter(({ behind }) => !behind));
        if (!one) return;
        const known = failures.get(one.id);
        failures.set(one.id, { first: known?.first ?? queue.now(), last: queue.now() });
        queue.settle(one.id, 'waiting');
      },
      die: () => {
        const one = pick(queue.waiting().filter(({ behind }) => !behind));
        if (one && random(3) === 0) queue.settle(one.id, 'dead');
      },
      drop: () => {
        const one = pick(queue.waiting());
        if (one && random(3) === 0) queue.write(['drop', [queue.keysOf([one.id]), queue.now()]]);
      },
      replay: () => {
        const one = pick(queue.ended());
        if (!one || random(8) > 0) return;
        replayed.add(one.id);
        failures.delete(one.id);
        queue.write(['replay', [queue.keysOf([one.id]), queue.now()]]);
      },
      lease: () => {
        const one = pick(queue.waiting().filter(({ behind }) => !behind));
        if (!one) return;
        const times = { now: queue.now(), until: queue.now() + 1000, patience: PATIENCE };
        queue.write(['lease', [ENDPOINT, [one.id], times]]);
        queue.pass(2000);
        const known = failures.get(one.id);
        // The lease runs out, which is a failure once it is leased again.
        queue.write(['lease', [ENDPOINT, [one.id], { ...times, now: queue.now(), until: queue.now() + 1 }]]);
        failures.set(one.id, { first: known?.first ?? queue.now(), last: queue.now() });
        queue.pass(10);
      },
      reopen: () => queue.reopen(),
    };
    const names = [...Object.keys(ops), 'accept', 'fail', 'fail', 'fail', 'fail'];
    for (let step = 0; step < 1500; step++) {
      queue.pass(random(PATIENCE));
      ops[pick(names) ?? 'accept']?.();
      for (const id of queue.due.splice(0)) expectTrial(id);
      const waiting = queue.waiting();
      for (const sequence of sequences) {
        const all = waiting.filter((row) => row.sequence === sequence);
        const ready = all.filter(({ behind }) => !behind);
        expect(ready.length, `step ${step}`).to.be.within(Math.min(1, all.length), 2);
      }
      expect(waiting.filter(({ sequence, behind }) => sequence === undefined && behind)).to.deep.equal([]);
    }
    expect(overtakings).to.be.above(10);
  });

  /** Accepted one after another, in one sequence; their ids. */
  function acceptInTurn(count: number): string[] {
    const all = Array.from({ length: count }, () => aDelivery('pull:', { sequence: 'sender:a' }));
    for (const one of all) queue.accept(one);
    return all.map(({ id }) => id);
  }
  const readyNow = () => inTurn('sender:a').map(({ id }) => id);

  it('tries one in place of the first at a time, and each once', () => {
    const [a = '', b = '', c = '', d = ''] = acceptInTurn(4);
    const failLong = () => {
      queue.settle(a, 'waiting');
      queue.pass(PATIENCE);
      queue.settle(a, 'waiting');
    };
    failLong();
    expect(readyNow()).to.deep.equal([a, b]);
    failLong();
    expect(readyNow(), 'b is still under way').to.deep.equal([a, b]);
    expect(queue.due).to.deep.equal([b]);
    expect(queue.settle(b, 'waiting')).to.deep.include({ behind: true });
    expect(readyNow()).to.deep.equal([a]);
    failLong();
    expect(readyNow()).to.deep.equal([a, c]);
    queue.settle(c, 'delivered');
    expect(readyNow(), 'those that failed are in no order now').to.deep.equal([d]);
    expect(queue.waiting().map(({ id, behind = false }) => [id, behind])).to.deep.equal([
      [a, false],
      [b, false],
      [d, false],
    ]);
  });

  it('restarts the wait after a trial, and when the first one has ended', () => {
    const [a = '', b = '', c = ''] = acceptInTurn(3);
    queue.settle(a, 'waiting');
    queue.pass(PATIENCE);
    queue.settle(a, 'waiting');
    queue.settle(b, 'waiting');
    queue.settle(a, 'waiting');
    expect(readyNow()).to.deep.equal([a]);
    queue.settle(a, 'delivered');
    expect(readyNow()).to.deep.equal([b]);
    queue.pass(PATIENCE);
    queue.settle(b, 'waiting');
    expect(readyNow(), 'b has failed as the first only now').to.deep.equal([b]);
    queue.pass(PATIENCE);
    queue.settle(b, 'waiting');
    expect(readyNow()).to.deep.equal([b, c]);
  });

  it('keeps a replayed one without a new attempt in its sequence, whatever passes it', () => {
    const [a = '', b = '', c = ''] = acceptInTurn(3);
    queue.write(['drop', [queue.keysOf([a]), queue.now()]]);
    queue.write(['replay', [queue.keysOf([a]), queue.now()]]);
    expect(readyNow(), 'b goes first').to.deep.equal([b]);
    queue.settle(b, 'delivered');
    expect(readyNow()).to.deep.equal([a]);
    queue.settle(a, 'delivered');
    expect(readyNow()).to.deep.equal([c]);
  });

  it('returns newly due deliveries, once they are written', () => {
    const [a, b, c] = [1, 2, 3].map(() => aDelivery('pull:', { sequence: 'sender:a' }));
    for (const one of [a, b, c]) if (one) queue.accept(one);
    expect(queue.due).to.deep.equal([]);
    queue.settle(a?.id ?? '', 'delivered');
    expect(queue.due).to.deep.equal([b?.id]);
    queue.settle(b?.id ?? '', 'dead');
    expect(queue.due).to.deep.equal([b?.id, c?.id]);
  });

  it('reports waiting ones at acceptance, including several recipients of one message', () => {
    const [first, second, other] = [
      aDelivery('pull:', { sequence: 'sender:a' }),
      aDelivery('pull:', { sequence: 'sender:a' }),
      aDelivery('pull:', { sequence: 'sender:b' }),
    ];
    const message = {
      id: 'm',
      receivedAt: 1,
      envelope: '{}',
      trace: '',
      size: 1,
      blob: null,
      bytes: new Uint8Array(1),
    };
    const rest = { crc: 0, sha256: null, verdicts: null, scan: null };
    const [accepted] = queue.write(['accept', [{ ...message, ...rest }, [first, second, other]]]);
    expect(accepted).to.deep.include({ written: true, behind: [second?.id] });
  });

  it('continues after the first of a sequence was lost with a damaged page', () => {
    const all = [1, 2, 3].map(() => aDelivery('pull:', { sequence: 'sender:a' }));
    for (const one of all) queue.accept(one);
    queue.damage('DELETE FROM deliveries WHERE key = (SELECT min(key) FROM deliveries)');
    expect(inTurn('sender:a')).to.deep.equal([]);
    queue.reopen();
    expect(inTurn('sender:a').map(({ id }) => id)).to.deep.equal([all[1]?.id]);
  });

  it('is unchanged after a transaction that was not written', () => {
    const all = [1, 2].map(() => aDelivery('pull:', { sequence: 'sender:a' }));
    for (const one of all) queue.accept(one);
    queue.damage("CREATE TRIGGER broken BEFORE INSERT ON attempts BEGIN SELECT raise(ABORT, 'no'); END");
    expect(() => queue.settle(all[0]?.id ?? '', 'delivered')).to.throw();
    expect(queue.due).to.deep.equal([]);
    expect(inTurn('sender:a').map(({ id }) => id)).to.deep.equal([all[0]?.id]);
  });
});
