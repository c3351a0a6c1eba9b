import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import type { Store } from '../../../src/store/store.ts';
import { tendBatchesTask } from '../../../src/webhooks/batches.ts';
import { hook, LIMITS, someEvents, wanted } from '../../support/hooks.ts';
import { freshSpool, type OpenedSpool } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';

const HOUR = 3_600_000;

describe('the task for batches', () => {
  let opened: OpenedSpool;
  let store: Store;
  let task: ReturnType<typeof tendBatchesTask>;
  beforeEach(async () => {
    opened = await freshSpool();
    const { spool, clock, log } = opened;
    store = await openTestStore(log);
    task = tendBatchesTask({ retryHours: 120 }, { spool, store, clock, log, time: createRunningTime(clock) });
    await task.run();
  });
  afterEach(() => store.close());

  const insert = (id: string, url = hook(id).url) =>
    store.webhooks.insert({
      id,
      account: 'acme',
      number: Number(id),
      url,
      description: null,
      events: [],
      createdAt: new Date(0),
    });
  const publish = (id: string, count = 3, from = 0) =>
    opened.spool.events.publish([wanted(someEvents(count, from), hook(id))], opened.clock.now());
  const freeze = (id: string) =>
    opened.spool.events.freeze(id, createIds(systemClock).message(), LIMITS, opened.clock.now());
  const pending = async () =>
    (await opened.spool.events.pending(100)).map(({ webhook, pending: { events } }) => [webhook, events]);

  it('drops waiting batches for a webhook that another host deleted', async () => {
    await insert('8');
    await publish('4');
    await freeze('4');
    await publish('4', 2, 50);
    await publish('8');
    expect(await task.run()).to.deep.equal({ forgotten: 1, redirected: 0 });
    expect(await pending()).to.deep.equal([['8', 3]]);
    expect(await opened.spool.count({ kinds: ['events'] })).to.include({ waiting: 0, dropped: 1 });
    expect(await task.run()).to.equal(undefined);
  });

  it('sends waiting batches to the URL that another host gave the webhook', async () => {
    await insert('4', 'https://moved.example/');
    await publish('4');
    const { delivery } = await freeze('4');
    expect(await task.run()).to.deep.equal({ forgotten: 0, redirected: 1 });
    expect(await opened.spool.delivery(delivery?.id ?? '')).to.include({
      url: 'https://moved.example/',
      state: 'waiting',
    });
    expect(await task.run()).to.equal(undefined);
  });

  it('drops events that waited too long to become a batch, with a log line, but not after a jump of the clock', async () => {
    await insert('4');
    await publish('4');
    opened.clock.jump(121 * HOUR);
    await task.run();
    expect(await pending()).to.deep.equal([['4', 3]]);
    // Minutes that a test clock takes at once; the spool's own timers fall due on the way.
    await opened.clock.advance(11 * 60_000);
    await task.run();
    expect(await pending()).to.deep.equal([]);
    expect(opened.log.of('delivery.failed').map(({ fields }) => fields)).to.deep.equal([
      { webhook: '4', events: 3, error: 'expired while waiting for the endpoint' },
    ]);
  });
});
