import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createLists } from '../../../src/events/lists.ts';
import { createRecorder, type Recorder } from '../../../src/events/record.ts';
import { sentId } from '../../../src/mail/addresses/return-address.ts';
import type { SendReport } from '../../../src/queue/delivery.ts';
import { createReporter, toReport } from '../../../src/sending/reporter.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { NO_COPIES } from '../../support/copies.ts';
import { aDelivery } from '../../support/delivery.ts';
import { settleDown } from '../../support/dispatcher-bench.ts';
import { createWorld, OUTGOING, type SendingWorld } from '../../support/sending-world.ts';
import { openTestStore } from '../../support/store.ts';

describe('reports to the store', () => {
  let world: SendingWorld;
  let store: Store;
  let reporter: ReturnType<typeof createReporter>;
  /** What every call of the recorder does first; it may throw. */
  let first: (what: string) => void;
  beforeEach(async () => {
    world = await createWorld({ reported: () => reporter.poke() });
    const { spool, clock, log, watch } = world;
    store = await openTestStore(log);
    first = () => {};
    const outbox = { publish: async () => {} };
    const lists = createLists({ store, outbox, clock, ids: createIds(clock), log });
    const recorder = createRecorder({ store, lists, outbox, clock, log });
    const failing = watch.over<Recorder>({
      async begin(message) {
        first(message.id);
        return await recorder.begin(message);
      },
      async record(event) {
        first(event.id);
        return await recorder.record(event);
      },
    });
    reporter = createReporter({ spool, copies: NO_COPIES, recorder: failing, clock, log });
  });
  afterEach(async () => {
    const stopped = world.dispatcher.stop();
    await world.clock.advance(10_000);
    await Promise.all([stopped, reporter.stop()]);
    await store.close();
  });

  const start = async () => {
    await world.dispatcher.start();
    await reporter.start();
  };
  const kinds = async () => (await store.messageEvents.many({})).map(({ kind }) => kind);
  const rows = async () => (await store.messages.many({})).map(({ id }) => id);
  const untold = async () => (await world.spool.reports(1000)).length;
  /** Puts a report on the queue. */
  const report = (one: SendReport) =>
    world.spool.settle({
      deliveryId: aDelivery().id,
      attempt: null,
      state: 'dead',
      dueAt: 0,
      parked: false,
      at: 0,
      report: one,
    });

  it('create a missing row, record the event, and are removed from the spool', async () => {
    await start();
    const delivery = await world.mail();
    await world.clock.advance(1000);
    expect(await rows()).to.deep.equal([sentId(delivery.id)]);
    expect(await kinds()).to.deep.equal(['send']);
    expect(await untold()).to.equal(0);
    expect(reporter.idle()).to.equal(true);
  });

  it('that waited before the start are delivered', async () => {
    await world.dispatcher.start();
    await Promise.all(Array.from({ length: 120 }, () => world.mail()));
    await world.clock.advance(1000);
    expect(await untold()).to.equal(120);
    await reporter.start();
    await world.clock.advance(1000);
    expect(await kinds()).to.have.length(120);
    expect(await untold()).to.equal(0);
  });

  it('stay while the store is unavailable, with growing intervals, and are all delivered afterwards', async () => {
    let asked = 0;
    first = () => {
      asked++;
      throw new StoreAway('away');
    };
    await start();
    await world.mail();
    await world.clock.advance(10 * 60_000);
    expect(asked).to.be.within(8, 20);
    await Promise.all(Array.from({ length: 80 }, () => world.mail()));
    await world.clock.advance(60_000);
    expect(await untold()).to.equal(81);
    expect(world.log.of('event.fault')).to.deep.equal([]);
    first = () => {};
    await world.clock.advance(2 * 60_000);
    expect(await kinds()).to.have.length(81);
    expect(await untold()).to.equal(0);
  });

  it('delivered twice are recorded once', async () => {
    await world.dispatcher.start();
    const delivery = await world.mail();
    await settleDown(world);
    const [sent] = await world.spool.reports(1);
    if (!sent) throw new Error('no report');
    await reporter.start();
    await world.clock.advance(1000);
    await report(sent); // as if the process had died before the spool heard of it
    reporter.poke();
    await world.clock.advance(1000);
    expect(await kinds()).to.deep.equal(['send']);
    expect(await rows()).to.deep.equal([sentId(delivery.id)]);
    expect(await untold()).to.equal(0);
  });

  it('rejected by the store do not block others, and are retried later', async () => {
    const bad = await world.mail({ recipient: 'bad@example.com' });
    let refuses = true;
    first = (id) => {
      if (refuses && id === sentId(bad.id)) throw new Error('no such number');
    };
    await start();
    await Promise.all(Array.from({ length: 200 }, () => world.mail()));
    await world.clock.advance(5000);
    expect(await kinds()).to.have.length(200);
    expect(await untold()).to.equal(1);
    expect(world.log.of('event.fault')).to.have.length(1);
    refuses = false;
    await world.mail();
    await world.clock.advance(1000);
    expect(await kinds(), 'a new one need not wait for the old').to.have.length(201);
    await world.clock.advance(10 * 60_000);
    expect(await kinds()).to.have.length(202);
  });

  it('of a lost message without a row are dropped, with a log line', async () => {
    await start();
    await report(
      toReport({ delivery: aDelivery(), attempts: 0, at: 0, message: undefined }, { kind: 'reject', detail: {} }),
    );
    reporter.poke();
    await world.clock.advance(1000);
    expect(await untold()).to.equal(0);
    expect(world.log.of('event.fault')).to.have.length(1);
  });

  it('that cannot be parsed stay where they are', async () => {
    await start();
    await report({ id: 'x', body: '{' });
    reporter.poke();
    await world.clock.advance(1000);
    expect(await untold()).to.equal(1);
    expect(world.log.of('event.fault')).to.have.length(1);
  });

  it('have another id for another attempt and another outcome, and the same for the same', () => {
    const delivery = aDelivery();
    const message = {
      id: 'm',
      receivedAt: 0,
      trace: '',
      verdicts: null,
      envelope: { mailFrom: '', client: { address: null, helo: null, tls: null }, outgoing: OUTGOING },
    };
    const idOf = (attempts: number, kind: 'send' | 'deferral') =>
      toReport({ delivery, attempts, at: 5, message }, { kind, detail: {} }).id;
    expect(idOf(0, 'send'))
      .to.equal(idOf(0, 'send'))
      .and.to.match(/^[0-9a-f]{32}$/);
    expect(new Set([idOf(0, 'send'), idOf(1, 'send'), idOf(0, 'deferral')]).size).to.equal(3);
  });

  // A wake-up between the last look and the end of the work was heard by nobody, and the report stayed until the next
  // one came.
  for (let steps = 0; steps < 12; steps++) {
    it(`are delivered if they arrive ${steps} steps of the event loop after the check`, async () => {
      const { spool } = world;
      const { reports } = spool;
      const late = async () => {
        for (let i = 0; i < steps; i++) await undefined;
        reporter.poke();
      };
      let looked = false;
      spool.reports = async (limit) => {
        const found = await reports(limit);
        if (looked) return found;
        looked = true;
        const delivery = aDelivery();
        await report(toReport({ delivery, attempts: 0, at: 0, message: undefined }, { kind: 'send', detail: {} }));
        void late();
        return found;
      };
      await reporter.start();
      await world.clock.advance(10_000);
      expect(await untold()).to.equal(0);
    });
  }
});
