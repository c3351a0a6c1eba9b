import { expect } from 'chai';
import type { Recorder } from '../../../src/events/record.ts';
import { sentId } from '../../../src/mail/return-address.ts';
import type { Report } from '../../../src/queue/delivery.ts';
import { createReporter, toReport } from '../../../src/sending/reporter.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { createTestClock } from '../../support/clock.ts';
import { aDelivery } from '../../support/delivery.ts';
import { settleDown } from '../../support/dispatcher-bench.ts';
import { createTestLog } from '../../support/log.ts';
import { createWorld, OUTGOING, type SendingWorld } from '../../support/sending-world.ts';

describe('reports on their way to the store', () => {
  let world: SendingWorld;
  beforeEach(() => {
    world = createWorld();
  });
  afterEach(async () => {
    const stopped = world.dispatcher.stop();
    await world.clock.advance(10_000);
    await Promise.all([stopped, world.reporter.stop()]);
  });

  const start = async () => {
    await world.dispatcher.start();
    await world.reporter.start();
  };
  const kinds = () => [...world.recorder.events.values()].map(({ kind }) => kind);

  it('make the row of a message that has none, record what happened, and leave the spool', async () => {
    await start();
    const delivery = world.mail();
    await world.clock.advance(1000);
    expect([...world.recorder.rows.keys()]).to.deep.equal([sentId(delivery.id)]);
    expect(kinds()).to.deep.equal(['send']);
    expect(world.spool.untold.size).to.equal(0);
    expect(world.reporter.idle()).to.equal(true);
  });

  it('are told that waited before the start', async () => {
    await world.dispatcher.start();
    for (let i = 0; i < 120; i++) world.mail();
    await world.clock.advance(1000);
    expect(world.spool.untold.size).to.equal(120);
    await world.reporter.start();
    await world.clock.advance(1000);
    expect(kinds()).to.have.length(120);
    expect(world.spool.untold.size).to.equal(0);
  });

  it('stay while the store is away, which is asked less and less often, and are all told when it is back', async () => {
    let asked = 0;
    world.recorder.first = () => {
      asked++;
      throw new StoreAway('away');
    };
    await start();
    world.mail();
    await world.clock.advance(10 * 60_000);
    expect(asked).to.be.within(8, 20);
    for (let i = 0; i < 80; i++) world.mail();
    await world.clock.advance(60_000);
    expect(world.spool.untold.size).to.equal(81);
    expect(world.log.of('event.fault')).to.deep.equal([]);
    world.recorder.first = () => {};
    await world.clock.advance(2 * 60_000);
    expect(kinds()).to.have.length(81);
    expect(world.spool.untold.size).to.equal(0);
  });

  it('that were told twice are recorded once', async () => {
    await world.dispatcher.start();
    const delivery = world.mail();
    await settleDown(world);
    const [report] = world.spool.untold.values();
    if (!report) throw new Error('no report');
    await world.reporter.start();
    await world.clock.advance(1000);
    world.spool.untold.set(report.id, report); // as if the process had died before the spool heard of it
    world.reporter.poke();
    await world.clock.advance(1000);
    expect(kinds()).to.deep.equal(['send']);
    expect([...world.recorder.rows.keys()]).to.deep.equal([sentId(delivery.id)]);
    expect(world.spool.untold.size).to.equal(0);
  });

  it('that the store refuses hold up no other, and are told again later', async () => {
    const bad = world.mail({ recipient: 'bad@example.com' });
    let refuses = true;
    world.recorder.first = (id) => {
      if (refuses && id === sentId(bad.id)) throw new Error('no such number');
    };
    await start();
    for (let i = 0; i < 200; i++) world.mail();
    await world.clock.advance(5000);
    expect(kinds()).to.have.length(200);
    expect(world.spool.untold.size).to.equal(1);
    expect(world.log.of('event.fault')).to.have.length(1);
    refuses = false;
    world.mail();
    await world.clock.advance(1000);
    expect(kinds(), 'a new one need not wait for the old').to.have.length(201);
    await world.clock.advance(10 * 60_000);
    expect(kinds()).to.have.length(202);
  });

  it('of a lost message that has no row are forgotten with a word in the log', async () => {
    await start();
    const report = toReport(
      { delivery: aDelivery(), attempts: 0, at: 0, message: undefined },
      { kind: 'reject', detail: {} },
    );
    world.spool.untold.set(report.id, report);
    world.reporter.poke();
    await world.clock.advance(1000);
    expect(world.spool.untold.size).to.equal(0);
    expect(world.log.of('event.fault')).to.have.length(1);
  });

  it('that cannot be read stay where they are', async () => {
    await start();
    world.spool.untold.set('x', { id: 'x', body: '{' });
    world.reporter.poke();
    await world.clock.advance(1000);
    expect(world.spool.untold.size).to.equal(1);
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
    it(`are told when they come ${steps} steps of the event loop's queue after it looked`, async () => {
      const clock = createTestClock();
      const waiting = new Map<string, Report>();
      const told: string[] = [];
      const recorder: Recorder = {
        begin: async () => 'recorded',
        record: async ({ id }) => {
          told.push(id);
          return 'recorded';
        },
      };
      let looked = false;
      const spool = {
        async reports() {
          if (!looked) late();
          looked = true;
          return [...waiting.values()];
        },
        async reported(ids: readonly string[]) {
          for (const id of ids) waiting.delete(id);
        },
      };
      const reporter = createReporter({ spool, recorder, clock, log: createTestLog() });
      const late = async () => {
        for (let i = 0; i < steps; i++) await undefined;
        const report = toReport(
          { delivery: aDelivery(), attempts: 0, at: 0, message: undefined },
          { kind: 'send', detail: {} },
        );
        waiting.set(report.id, report);
        reporter.poke();
      };
      await reporter.start();
      await clock.advance(10_000);
      expect(told).to.have.length(1);
      await reporter.stop();
    });
  }
});
