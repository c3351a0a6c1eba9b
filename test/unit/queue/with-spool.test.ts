import { expect } from 'chai';
import type { Clock } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds, deliveryId } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createRunningTime } from '../../../src/base/running-time.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import type { Dispatcher } from '../../../src/queue/dispatcher.ts';
import { openSpool } from '../../../src/queue/spool.ts';
import { PLAIN_TARGET } from '../../../src/webhooks/destinations.ts';
import type { Poster, Renderer } from '../../../src/webhooks/types.ts';
import { createTestClock } from '../../support/clock.ts';
import { openPoster } from '../../support/delivery.ts';
import { createTestLog } from '../../support/log.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { createWebhookDispatcher } from '../../support/roads.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

const MINUTE = 60_000;

/** The dispatcher over the real spool and the real poster; only the renderer is a double. */
describe('deliveries from the spool to receivers', () => {
  const closers: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });

  const receive = async (): Promise<Receiver> => {
    const receiver = await startReceiver();
    closers.push(() => receiver.stop());
    return receiver;
  };
  const spoolIn = (dir: string, clock: Clock): Promise<Spool> =>
    openSpool(
      { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: 1e6 },
      { clock, log: createTestLog(), role: 'daemon', metrics: NO_METRICS },
    );

  async function run(spool: Spool, clock: Clock, poster: Poster, retryHours = 120): Promise<Dispatcher> {
    const dispatcher = createWebhookDispatcher(
      {
        concurrency: 16,
        concurrencyPerEndpoint: 4,
        concurrencyAtStart: 2,
        batchBytes: 1024 ** 2,
        retryHours,
        orderHoldMs: 900_000,
      },
      {
        spool,
        poster,
        renderer,
        clock,
        ids: createIds(clock),
        log: createTestLog(),
        destinations: { of: async () => ({ kind: 'here' }), batchEvents: () => 1, target: () => PLAIN_TARGET },
        time: createRunningTime(clock),
        signingKeys: { keysFor: async () => ['k'] },
      },
    );
    await dispatcher.start();
    return dispatcher;
  }

  async function accept(spool: Spool, clock: Clock, url: string): Promise<string> {
    const messageId = createIds(clock).message();
    const id = deliveryId(messageId, '1.1', 'r@in.example');
    const outcome = await spool.accept(
      {
        id: messageId,
        receivedAt: clock.now(),
        trace: '',
        body: { kind: 'memory', bytes: new TextEncoder().encode('Subject: x\r\n\r\nx\r\n') },
        envelope: { mailFrom: '', client: { address: null, helo: null, tls: null } },
      },
      [
        {
          id,
          kind: 'inbound',
          messageId,
          account: 'acc',
          url,
          routeId: '1.1',
          pattern: '*',
          recipient: 'r@in.example',
        },
      ],
    );
    expect(outcome).to.equal('accepted');
    return id;
  }

  it('arrive everywhere except at the one that hangs', async () => {
    const spool = await spoolIn(await tempDir(), systemClock);
    const poster = openPoster({ timeoutMs: 60_000 });
    const receivers = await Promise.all(Array.from({ length: 8 }, receive));
    const [bad, ...good] = receivers;
    bad?.answer('hang');
    const dispatcher = await run(spool, systemClock, poster);
    closers.push(
      () => spool.close(),
      () => dispatcher.stop(),
      () => poster.stop(),
    );

    await Promise.all(Array.from({ length: 160 }, (_, i) => accept(spool, systemClock, receivers[i % 8]?.url ?? '')));
    await until('all good ones have theirs', () => good.every(({ requests }) => requests.length === 20));
    expect(bad?.requests.length).to.equal(2);
    await until('what came is settled', async () => (await spool.count({ states: ['delivered'] })).delivered === 140);
  });

  it('survive a stop in the middle, with their ids', async () => {
    const dir = await tempDir();
    const receiver = await receive();
    receiver.answer('hang');
    const first = await spoolIn(dir, systemClock);
    const cut = openPoster({ timeoutMs: 60_000 });
    const before = await run(first, systemClock, cut);
    const ids = await Promise.all(Array.from({ length: 30 }, () => accept(first, systemClock, receiver.url)));
    await until('some are in flight', () => receiver.requests.length > 0);
    // As a crash would: the spool is gone before anything can be noted.
    const stopped = before.stop();
    await first.close();
    await cut.stop();
    await stopped;

    receiver.answer({ status: 200 });
    const second = await spoolIn(dir, systemClock);
    const poster = openPoster();
    const after = await run(second, systemClock, poster);
    closers.push(
      () => second.close(),
      () => after.stop(),
      () => poster.stop(),
    );
    await until('all are delivered', async () => (await second.count({})).delivered === 30, 20_000);
    expect(new Set(receiver.requests.map(({ headers }) => headers['webhook-id']))).to.deep.equal(new Set(ids));
  }).timeout(30_000);

  it('become dead letters when they expire, and a replay arrives under the same webhook-id', async () => {
    const clock = createTestClock();
    const spool = await spoolIn(await tempDir(), clock);
    const poster = openPoster({ timeoutMs: 3_600_000, clock });
    const receiver = await receive();
    receiver.answer({ status: 500, body: 'out of order' });
    const dispatcher = await run(spool, clock, poster, 1);
    closers.push(
      () => spool.close(),
      () => dispatcher.stop(),
      () => poster.stop(),
    );

    const id = await accept(spool, clock, receiver.url);
    await until('it is dead', async () => {
      await clock.advance(MINUTE);
      await until('nothing is in flight', () => dispatcher.idle());
      return (await spool.delivery(id))?.state === 'dead';
    });
    const attempts = await spool.attempts(id);
    expect(attempts.length).to.be.within(5, 8);
    expect(attempts[0]).to.include({ status: 500, answer: 'out of order' });

    receiver.answer({ status: 200 });
    expect(await spool.replay({ ids: [id] }, clock.now())).to.equal(1);
    await until('it is delivered', async () => (await spool.delivery(id))?.state === 'delivered');
    expect(new Set(receiver.requests.map(({ headers }) => headers['webhook-id']))).to.deep.equal(new Set([id]));
  });

  it('continue when the queue does not fit in memory', async () => {
    const spool = await spoolIn(await tempDir(), systemClock);
    const receiver = await receive();
    const all = await Promise.all(Array.from({ length: 700 }, () => accept(spool, systemClock, receiver.url)));
    const poster = openPoster();
    const dispatcher = await run(spool, systemClock, poster);
    closers.push(
      () => spool.close(),
      () => dispatcher.stop(),
      () => poster.stop(),
    );
    await until('all are delivered', async () => (await spool.count({})).delivered === all.length, 20_000);
    expect(receiver.requests).to.have.length(all.length);
    expect(receiver.connections()).to.be.at.most(4);
  }).timeout(30_000);
});

const renderer: Renderer = {
  async render({ mails: [mail] }) {
    const id = mail?.delivery.id ?? '';
    return {
      id,
      linked: 0,
      body: { kind: 'memory', bytes: new TextEncoder().encode('mandrill_events=%5B%5D') },
      headers: { 'content-type': 'application/x-www-form-urlencoded', 'webhook-id': id },
      found: [
        {
          parseError: null,
          summary: null,
          verdicts: {
            spf: { result: 'none', detail: '' },
            dkim: { signed: false, valid: false },
            dmarc: { result: 'none', policy: null, aligned: false },
            arc: { result: 'none' },
          },
        },
      ],
    };
  },
  renderShared: async () => undefined,
  async discard() {},
};
