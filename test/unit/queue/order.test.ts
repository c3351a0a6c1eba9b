import { expect } from 'chai';
import type { Delivery } from '../../../src/queue/delivery.ts';
import type { AttemptResult } from '../../../src/queue/settle.ts';
import { waitReason } from '../../../src/queue/wait-reason.ts';
import { aDelivery, answered, refused, timedOut } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const HOLD = 15 * MINUTE;
const URL_A = 'https://a.example/hook';

describe('deliveries of a sequence', () => {
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

  /** Names of deliveries, as `ada-3`: the third of Ada's. */
  const names = new Map<string, string>();
  const idOf = (name: string): string => [...names].find(([, known]) => known === name)?.[0] ?? '';
  /** Accepts them one after another, as they are named; `-` is in no sequence. */
  async function put(...all: string[]): Promise<Delivery[]> {
    const made: Delivery[] = [];
    for (const name of all) {
      const [who = ''] = name.split('-');
      const sequence = who === '' ? {} : { sequence: `sender:${who}` };
      const delivery = aDelivery(URL_A, { messageId: `01korder${name.padStart(18, '0')}`, ...sequence });
      names.set(delivery.id, name);
      await bench.put([delivery]);
      made.push(delivery);
    }
    return made;
  }
  const numbered = (who: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${who}-${i + 1}`);
  const nameOf = (id: string): string => names.get(id) ?? id;
  const posted = (): string[] => bench.posts.map(({ id }) => nameOf(id));
  /** In the order in which they were delivered. */
  let passed: string[] = [];
  let inFlight: string[] = [];
  /** The endpoint answers as `answer` says. */
  function endpoint(answer: (name: string, attempt: number) => AttemptResult | Promise<AttemptResult>): void {
    bench.endpoint(async ({ id }) => {
      const name = nameOf(id);
      inFlight.push(name);
      const result = await answer(name, posted().filter((one) => one === name).length);
      inFlight = inFlight.filter((one) => one !== name);
      if (result.kind === 'answered' && result.status === 200) passed.push(name);
      return result;
    });
  }
  beforeEach(() => {
    names.clear();
    passed = [];
    inFlight = [];
  });
  const ofSender = (who: string, all = passed): string[] => all.filter((name) => name.startsWith(`${who}-`));
  const counts = () => bench.spool.count({});

  it('are sent one after another in order of acceptance, and others meanwhile', async () => {
    await open();
    const release: (() => void)[] = [];
    endpoint(async (name) => {
      if (name.startsWith('ada')) await new Promise<void>((resolve) => release.push(resolve));
      return answered(200);
    });
    await put('ada-1', 'ada-2', '-1', 'bob-1', 'ada-3', 'bob-2', '-2');
    await settleDown(bench);
    expect(inFlight).to.deep.equal(['ada-1']);
    expect(passed).to.have.members(['-1', '-2', 'bob-1', 'bob-2']);
    for (const next of ['ada-2', 'ada-3']) {
      release.shift()?.();
      await settleDown(bench);
      expect(inFlight).to.deep.equal([next]);
    }
    release.shift()?.();
    await settleDown(bench);
    expect([ofSender('ada'), ofSender('bob')]).to.deep.equal([numbered('ada', 3), numbered('bob', 2)]);
    expect(bench.reads, 'nothing is read from the queue').to.deep.equal([]);
    expect(bench.dispatcher.idle()).to.equal(true);
  });

  it('wait behind one that failed without an attempt; others do not', async () => {
    await open();
    endpoint((name, attempt) => answered(name === 'ada-1' && attempt < 4 ? 500 : 200));
    await put('ada-1', 'ada-2', 'ada-3');
    await settleDown(bench);
    await put('bob-1', 'ada-4', '-1');
    await bench.clock.advance(MINUTE);
    expect(passed).to.have.members(['bob-1', '-1']);
    const rows = await bench.rows();
    expect(rows.map(({ attempts, behind = false }) => [attempts, behind])).to.deep.equal([
      [3, false],
      [0, true],
      [0, true],
      [1, false],
      [0, true],
      [1, false],
    ]);
    const second = rows[1];
    const facts = { endpoint: undefined, preparing: undefined, scanner: undefined, now: bench.clock.now() };
    expect(second && waitReason(second, facts)).to.deep.equal({
      kind: 'behind',
      text: 'Waits behind an earlier message of the same sender',
    });
    await bench.clock.advance(10 * MINUTE);
    expect(ofSender('ada')).to.deep.equal(numbered('ada', 4));
  });

  it('are tried after a while if the first one keeps failing, and continue without it if they are delivered', async () => {
    await open();
    endpoint((name) => answered(name === 'ada-1' ? 500 : 200));
    await put(...numbered('ada', 3), '-1');
    await bench.clock.advance(HOLD - SECOND);
    expect(ofSender('ada')).to.deep.equal([]);
    await bench.clock.advance(2 * SECOND);
    expect(posted().at(-3), 'the first one has failed once more').to.equal('ada-1');
    expect(ofSender('ada')).to.deep.equal(['ada-2', 'ada-3']);
    await put('ada-4');
    await settleDown(bench);
    expect(ofSender('ada')).to.deep.equal(['ada-2', 'ada-3', 'ada-4']);
    // It goes on alone, as one that was never in order.
    const before = posted().length;
    await bench.clock.advance(7 * HOUR + HOLD);
    expect(posted().slice(before).length, 'every 25 minutes').to.be.within(16, 18);
    expect(await bench.spool.delivery(idOf('ada-1'))).to.include({ state: 'waiting' });
  });

  it('pass several that keep failing, one after another', async () => {
    await open();
    endpoint((name) => answered(['ada-1', 'ada-2', 'ada-3'].includes(name) ? 500 : 200));
    await put(...numbered('ada', 5), '-1');
    await bench.clock.advance(2 * HOLD + MINUTE);
    expect(ofSender('ada')).to.deep.equal([]);
    expect(posted()).to.include.members(['ada-2', 'ada-3']);
    expect(posted()).not.to.include('ada-4');
    await bench.clock.advance(HOLD);
    expect(ofSender('ada')).to.deep.equal(['ada-4', 'ada-5']);
    endpoint(() => answered(200));
    await bench.clock.advance(7 * HOUR);
    expect(await counts()).to.include({ waiting: 0, delivered: 6 });
  });

  for (const [what, failure] of [
    ['answers 503 to everything', answered(503)],
    ['answers 500 to everything', answered(500)],
    ['refuses connections', refused],
    ['does not answer', timedOut],
    ['answers 410', answered(410)],
  ] as const)
    for (const senders of [1, 2, 12])
      it(`keep their order while their endpoint ${what}, with ${senders} senders`, async () => {
        await open();
        const people = Array.from({ length: senders }, (_, i) => `s${i}`);
        endpoint(() => failure);
        for (const n of [1, 2, 3, 4]) await put(...people.map((who) => `${who}-${n}`));
        await bench.clock.advance(3 * HOUR);
        expect(passed).to.deep.equal([]);
        endpoint(() => answered(200));
        await bench.clock.advance(25 * HOUR);
        for (const who of people) expect(ofSender(who)).to.deep.equal(numbered(who, 4));
        expect(await counts()).to.include({ waiting: 0 });
      });

  it('keep their order while their endpoint is paused', async () => {
    await open();
    endpoint((name, attempt) => answered(name === 'ada-1' && attempt === 1 ? 500 : 200));
    await put(...numbered('ada', 2));
    await settleDown(bench);
    const name = { account: 'acc', url: URL_A, kind: 'inbound' } as const;
    await bench.dispatcher.hold(name, bench.clock.now() + 5 * HOUR, 'account');
    await put('ada-3');
    await bench.clock.advance(5 * HOUR + MINUTE);
    expect(passed).to.deep.equal(numbered('ada', 3));
  });

  it('continue at once when the first one is dropped, failed or lost', async () => {
    await open({ retryHours: 1 });
    endpoint((name) => answered(name === 'ada-1' || name === 'bob-1' ? 500 : 200));
    await put(...numbered('ada', 2), ...numbered('bob', 2));
    await settleDown(bench);
    await bench.spool.drop({ ids: [idOf('ada-1')] }, bench.clock.now());
    await settleDown(bench);
    expect(passed).to.deep.equal(['ada-2']);
    await bench.clock.advance(2 * HOUR);
    expect(await bench.spool.delivery(idOf('bob-1'))).to.include({ state: 'dead' });
    expect(passed).to.deep.equal(['ada-2', 'bob-2']);
  });

  it('end one after another when all of them are dropped, and when all have expired', async () => {
    await open({ retryHours: 1 });
    endpoint(() => refused);
    await put(...numbered('ada', 30), ...numbered('bob', 30));
    await settleDown(bench);
    expect(await bench.spool.drop({ ids: numbered('ada', 30).map(idOf) }, bench.clock.now())).to.equal(30);
    await bench.clock.advance(3 * HOUR);
    expect(await counts()).to.include({ waiting: 0, dropped: 30, dead: 30 });
  });

  it('are replayed after those in flight, and before later ones', async () => {
    await open();
    endpoint((name) => answered(name === 'ada-1' ? 500 : 200));
    await put('ada-1', 'ada-2');
    await bench.clock.advance(MINUTE);
    await bench.spool.drop({ ids: [idOf('ada-1')] }, bench.clock.now());
    await settleDown(bench);
    expect(passed).to.deep.equal(['ada-2']);
    endpoint(() => answered(500));
    await put('ada-3', 'ada-4');
    await settleDown(bench);
    await bench.spool.replay({ ids: [idOf('ada-1')] }, bench.clock.now());
    await settleDown(bench);
    expect(await bench.spool.delivery(idOf('ada-1'))).to.include({ behind: true, attempts: 0 });
    // The third fails once more, so the first goes before it now.
    endpoint((name, attempt) => answered(name === 'ada-3' && attempt < 3 ? 500 : 200));
    await bench.clock.advance(10 * MINUTE);
    expect(passed).to.deep.equal(['ada-2', 'ada-1', 'ada-3', 'ada-4']);
  });

  it('of held mail wait in their order once they are released', async () => {
    await open();
    const held = ['ada-1', 'ada-2'];
    for (const name of held) {
      const fate = { state: 'held', note: 'held by route 1.1' } as const;
      const delivery = aDelivery(URL_A, {
        messageId: `01kheld${name.padStart(19, '0')}`,
        sequence: 'sender:ada',
        fate,
      });
      names.set(delivery.id, name);
      await bench.put([delivery]);
    }
    endpoint((_, attempt) => answered(attempt === 1 ? 500 : 200));
    await put('ada-3');
    await bench.clock.advance(MINUTE);
    expect(passed, 'what is held holds up nothing').to.deep.equal(['ada-3']);
    await bench.spool.replay({ ids: held.map(idOf) }, bench.clock.now());
    await bench.clock.advance(MINUTE);
    expect(passed).to.deep.equal(['ada-3', 'ada-1', 'ada-2']);
  });

  it('are not made due by a retry of all waiting mail, nor by a probe', async () => {
    await open();
    endpoint((name) => answered(name === 'ada-1' ? 500 : 200));
    await put(...numbered('ada', 3));
    await settleDown(bench);
    await bench.spool.retry({}, bench.clock.now());
    await bench.dispatcher.retry({ account: 'acc', url: URL_A });
    bench.dispatcher.probe({ account: 'acc', url: URL_A });
    await settleDown(bench);
    expect(new Set(posted())).to.deep.equal(new Set(['ada-1']));
  });

  it('keep their order when their route gets another URL', async () => {
    await open();
    endpoint(() => answered(500));
    await put(...numbered('ada', 3));
    await settleDown(bench);
    endpoint(() => answered(200));
    await bench.spool.redirect('1.1', 'https://b.example/hook');
    await bench.clock.advance(MINUTE);
    expect(passed).to.deep.equal(numbered('ada', 3));
    expect(bench.postsTo('https://b.example/hook')).to.have.length(3);
  });

  it('keep their order over a restart', async () => {
    await open();
    endpoint((name, attempt) => answered(name === 'ada-1' && attempt < 3 ? 500 : 200));
    await put(...numbered('ada', 4));
    await settleDown(bench);
    await bench.dispatcher.stop();
    const next = await bench.restart();
    await bench.clock.advance(MINUTE);
    expect(passed).to.deep.equal(numbered('ada', 4));
    await next.stop();
  });

  it('wait on the disk, from one sender or thousands, and are read a bounded number of times', async () => {
    await open();
    endpoint(() => answered(500));
    const many = (count: number, sequence: (n: number) => string) =>
      bench.put(Array.from({ length: count }, (_, n) => aDelivery(URL_A, { sequence: sequence(n) })));
    await many(1000, () => 'sender:ada');
    await many(1000, (n) => `sender:${n}`);
    await settleDown(bench);
    const [lane] = bench.dispatcher.lanes();
    expect(lane?.waiting).to.be.below(600);
    bench.endpoint(() => answered(200));
    bench.reads.length = 0;
    await bench.clock.advance(HOUR);
    expect(await counts()).to.include({ waiting: 0, delivered: 2000 });
    expect(bench.reads.length).to.be.below(100);
  }).timeout(60_000);

  it('without an order cost the queue no additional read', async () => {
    await open();
    await bench.put(Array.from({ length: 200 }, () => aDelivery(URL_A)));
    await settleDown(bench);
    expect(await counts()).to.include({ delivered: 200 });
    expect(bench.reads).to.deep.equal([]);
  });

  it('are each delivered in turn, for any failures', async function () {
    this.timeout(60_000);
    await open({ concurrencyPerEndpoint: 16, concurrencyAtStart: 16 });
    let seed = 25;
    const random = (below: number): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      return (seed >>> 8) % below;
    };
    const failures = new Map<string, number>();
    endpoint(async (name, attempt) => {
      if (random(4) === 0) await new Promise<void>((resolve) => void bench.clock.after(random(20) * SECOND, resolve));
      if (!failures.has(name)) failures.set(name, random(6) === 0 ? random(4) : 0);
      if (attempt > (failures.get(name) ?? 0)) return answered(200);
      return [answered(500), answered(429), timedOut, refused][random(4)] ?? refused;
    });
    const people = Array.from({ length: 12 }, (_, i) => `p${i}`);
    for (let n = 1; n <= 12; n++) {
      await put(...people.map((who) => `${who}-${n}`), `-${n}`);
      await bench.clock.advance(random(10) * SECOND);
    }
    await bench.clock.advance(6 * HOUR);
    for (const who of people) expect(ofSender(who)).to.deep.equal(numbered(who, 12));
    expect(await counts()).to.include({ waiting: 0 });
  });
});
