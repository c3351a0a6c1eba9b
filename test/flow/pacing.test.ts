import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { startKeepingNameServer } from '../support/keeping-name-server.ts';
import { message, sendMail } from '../support/mail.ts';
import { readScrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const ABOVE = 20;

describe('accepting mail', () => {
  let daemon: TestDaemon;
  let receiver: Receiver;
  let names: Awaited<ReturnType<typeof startKeepingNameServer>>;
  const send = (to: string | readonly string[], from = 'ada@sender.test') =>
    sendMail(daemon.smtp, { from, to }, message('hello'));
  const numbers = async () => readScrape(await (await fetch(`${daemon.base}/metrics`)).text());
  /** Replies that were held back. */
  const held = async () => (await numbers()).of('postern_accept_delay_seconds_count');
  const behind = async () => (await numbers()).of('postern_deliveries_behind');
  const many = (count: number) => Array.from({ length: count }, (_, n) => `box-${n}@in.test`);

  before(async () => {
    names = await startKeepingNameServer();
    receiver = await startReceiver();
    daemon = await startDaemon({
      POSTERN_DELIVERY__SLOW_ABOVE: String(ABOVE),
      POSTERN_DELIVERY__SLOW_MS: '20',
      POSTERN_DNS__SERVERS: names.server,
      POSTERN_DNS__TIMEOUT_MS: '60000',
      POSTERN_DNS__BUDGET_MS: '60000',
      POSTERN_PARSE__TIMEOUT_MS: '60000',
    });
    await daemon.api('/inbound/add-domain', { domain: 'in.test' });
    await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: receiver.url });
    await send('first@in.test');
    await until('the first post', () => receiver.requests.some(({ method }) => method === 'POST'));
  });
  after(async () => {
    await daemon.stop();
    await receiver.stop();
    names.stop();
  });

  it('slows down if more arrives than can be prepared, for SMTP and for send-raw', async () => {
    names.keep();
    const first = await send(many(90), 'ada@slow.test');
    expect(first).to.match(/^250 /);
    await until('all that are prepared at one time to wait', () => names.kept() > 0);
    expect(await behind()).to.be.above(ABOVE);
    const before = await held();
    expect(await send('one@in.test')).to.match(/^250 /);
    expect(await held()).to.equal(before + 1);
    await daemon.api('/inbound/send-raw', { raw_message: message('raw'), to: ['two@in.test'] });
    expect(await held()).to.equal(before + 2);
    expect(daemon.log.of('accept.slowed')).to.have.length(1);

    names.release();
    await until('all posts', () => receiver.requests.filter(({ method }) => method === 'POST').length === 93);
    expect(await behind()).to.equal(0);
    await send('three@in.test');
    expect(await held()).to.equal(before + 2);
  });

  it('does not slow down while the endpoint does not answer, however much waits for it', async () => {
    receiver.answer('reset');
    await send(many(10));
    await until('the endpoint is down', () => daemon.log.of('endpoint.down').length > 0);
    const before = await held();
    for (let n = 0; n < 3; n++) expect(await send(many(100))).to.match(/^250 /);
    expect((await daemon.api('/inbound/deliveries', { state: 'waiting', limit: 1000 })).length).to.be.above(ABOVE);
    expect(await behind()).to.equal(0);
    expect(await held()).to.equal(before);
  });

  it('does not slow down for an endpoint that starts to answer only 503, before and after it is marked as down', async () => {
    receiver.answer({ status: 200 });
    await daemon.api('/endpoints/retry', { url: receiver.url });
    await until(
      'nothing waits',
      async () => (await daemon.api('/inbound/deliveries', { state: 'waiting' })).length === 0,
    );
    for (let n = 0; n < 5; n++) await send(many(100));
    await until(
      'nothing waits',
      async () => (await daemon.api('/inbound/deliveries', { state: 'waiting' })).length === 0,
    );
    const downs = () => daemon.log.of('endpoint.down').length;
    const [wereDown, wereHeld] = [downs(), await held()];
    receiver.answer({ status: 503 });
    const from = receiver.requests.length;
    const began = performance.now();
    while (downs() === wereDown) {
      // Fewer than the limit: one message alone may find the endpoint free for a moment.
      const posts = receiver.requests.length;
      expect(await send(many(15))).to.match(/^250 /);
      await until('another post', () => receiver.requests.length > posts || downs() > wereDown);
      expect(performance.now() - began, 'ms until it is down').to.be.below(30_000);
    }
    const failed = receiver.requests.length - from;
    console.log(`      down after ${Math.round(performance.now() - began)} ms and ${failed} posts`);
    expect(failed).to.be.below(400);
    for (let n = 0; n < 3; n++) await send(many(100));
    expect(await held()).to.equal(wereHeld);
    expect(await behind()).to.equal(0);
  }).timeout(60_000);
});
