import { expect } from 'chai';
import { attempt, freshSpool, mail, put, settled } from '../../support/spool.ts';
import { until } from '../../support/until.ts';
import { startedThreads, type WarmWorker } from '../../support/warm-threads.ts';

describe('a spool thread that dies', () => {
  let workers: WarmWorker[] = [];
  const note = (worker: WarmWorker) => {
    workers.push(worker);
  };
  beforeEach(() => {
    workers = [];
    startedThreads.on('thread', note);
  });
  afterEach(() => {
    startedThreads.off('thread', note);
  });

  it('fails unanswered writes, stores nothing of them, and is replaced', async () => {
    const { spool, clock, log } = await freshSpool();
    const before = await put(spool, clock);
    const mails = Array.from({ length: 50 }, () => mail(clock));
    const outcomes = Promise.all(mails.map(({ message, deliveries }) => spool.accept(message, deliveries)));
    const settling = spool.settle(settled(clock, before.delivery, { attempt: attempt(clock, 200) }));
    await workers[0]?.terminate();
    expect(new Set(await outcomes)).to.deep.equal(new Set(['fault']));
    expect(spool.hasRoom()).to.equal(false);
    await until('a new thread', () => spool.hasRoom());
    await settling;
    expect(await spool.count({})).to.deep.equal({ waiting: 0, delivered: 1, dead: 0, dropped: 0, held: 0 });
    expect(spool.backlog('acme')).to.equal(0);
    await put(spool, clock);
    expect(spool.backlog('acme')).to.equal(1);
    expect(log.of('spool.fault')).to.have.length(1);
  });

  it('is replaced if it was the reader, and the query is answered', async () => {
    const { spool, clock, log } = await freshSpool();
    const { delivery } = await put(spool, clock);
    await workers[1]?.terminate();
    expect((await spool.delivery(delivery.id))?.id).to.equal(delivery.id);
    expect(log.of('spool.fault')).to.have.length(1);
  });
});
