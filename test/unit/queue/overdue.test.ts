import { expect } from 'chai';
import type { Endpoint } from '../../../src/queue/delivery.ts';
import { createBacklog } from '../../../src/queue/schedule/backlog.ts';
import { aDelivery } from '../../support/delivery.ts';
import { type Bench, createBench, settleDown } from '../../support/dispatcher-bench.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const PULLED: Endpoint = { account: 'acc', url: 'pull:', kind: 'inbound' };

describe('pulled mail', () => {
  let bench: Bench;
  const open = async (...args: Parameters<typeof createBench>): Promise<Bench> => {
    bench = await createBench(...args);
    await bench.dispatcher.start();
    return bench;
  };
  const put = async (count: number) => {
    const all = Array.from({ length: count }, () => aDelivery(PULLED.url));
    await bench.put(all);
    await settleDown(bench);
    return all.map(({ id }) => id);
  };
  const counts = () => bench.spool.count({});
  const errors = () => bench.log.of('delivery.failed').map(({ fields }) => fields['error']);
  afterEach(() => bench.dispatcher.stop());

  it('is never attempted or loaded, and does not count as a delay of new mail, before and after a restart', async () => {
    const backlog = createBacklog(1000);
    await open({}, { backlog });
    await put(300);
    await bench.dispatcher.stop();
    await bench.restart();
    await bench.dispatcher.start();
    await bench.clock.advance(HOUR);
    await bench.dispatcher.retry(PULLED);
    await bench.dispatcher.hold(PULLED, bench.clock.now() + MINUTE, 'account');
    expect(bench.dispatcher.isHeld(PULLED)).to.equal(true);
    await bench.clock.advance(2 * MINUTE);
    expect(bench.dispatcher.isHeld(PULLED)).to.equal(false);
    expect(bench.posts).to.deep.equal([]);
    expect(bench.reads).to.deep.equal([]);
    expect(backlog.total()).to.equal(0);
    expect(await counts()).to.include({ waiting: 300 });
    expect(bench.dispatcher.idle()).to.equal(true);
  });

  it('expires after its time, and can be replayed', async () => {
    await open({ retryHours: 72 });
    await put(250);
    await bench.clock.advance(71 * HOUR);
    await put(1);
    expect(await counts()).to.include({ waiting: 251, dead: 0 });
    await bench.clock.advance(HOUR + 2 * MINUTE);
    expect(await counts()).to.include({ waiting: 1, dead: 250 });
    expect(new Set(errors())).to.deep.equal(new Set(['not acknowledged']));
    expect(await bench.spool.replay({ account: 'acc' }, bench.clock.now())).to.equal(250);
    await bench.clock.advance(HOUR);
    expect(await counts()).to.include({ waiting: 251, dead: 0 });
  });

  it('does not expire during a lease, but after it', async () => {
    await open({ retryHours: 72 });
    const [id = ''] = await put(1);
    await bench.clock.advance(72 * HOUR - MINUTE);
    const [lease] = await bench.spool.lease(PULLED, [id], {
      now: bench.clock.now(),
      until: bench.clock.now() + HOUR,
      patience: HOUR,
    });
    expect(lease).to.deep.equal({ id, n: 1, ranOut: null });
    await bench.clock.advance(HOUR - MINUTE);
    expect(await counts()).to.include({ waiting: 1, dead: 0 });
    await bench.clock.advance(3 * MINUTE);
    expect(await counts()).to.include({ waiting: 0, dead: 1 });
    const [row] = await bench.rows();
    expect(row).to.include({ state: 'dead', attempts: 1, lastError: 'not acknowledged' });
    const end = {
      deliveryId: id,
      n: 1,
      state: 'delivered',
      dueAt: 0,
      at: 0,
      status: 200,
      error: null,
      answer: '',
    } as const;
    expect(await bench.spool.endLease('acc', end), 'too late').to.equal(null);
  });
});
