import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { type How, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const MOST = 16;
const START = 4;

describe('concurrent posts to one endpoint', () => {
  let daemon: TestDaemon;
  let receiver: Receiver;
  /** Posts that wait for their answer. */
  const waiting: ((how: How) => void)[] = [];
  const answer = (count: number, status = 200) => {
    for (const one of waiting.splice(0, count)) one({ status });
  };
  const waitFor = (count: number) => until(`${count} posts at one time`, () => waiting.length === count);
  const limit = async () => {
    const text = await (await fetch(`${daemon.base}/metrics`)).text();
    return Number(/^postern_endpoint_places\{endpoint="webhook"\} (\d+)$/m.exec(text)?.[1]);
  };
  const delivered = async () => (await daemon.api('/inbound/deliveries', { state: 'delivered', limit: 1000 })).length;

  before(async () => {
    receiver = await startReceiver();
    daemon = await startDaemon({
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: String(MOST),
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT_START: String(START),
    });
    await daemon.api('/inbound/add-domain', { domain: 'in.test' });
    await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: receiver.url });
    receiver.answer(() => new Promise((resolve) => waiting.push(resolve)));
  });
  after(async () => {
    await daemon.stop();
    await receiver.stop();
  });

  it('start as set, are halved after a 429, and grow again on success', async () => {
    const to = Array.from({ length: 90 }, (_, n) => `box-${n}@in.test`);
    await sendMail(daemon.smtp, { from: 'ada@sender.test', to }, message('hello'));
    await waitFor(START);
    expect(await limit()).to.equal(START);

    answer(1, 429);
    await until('half of them', async () => (await limit()) === START / 2);
    answer(START - 1);
    await waitFor(START / 2);

    await until('as many as at first', async () => {
      answer(waiting.length);
      return (await limit()) === START;
    });

    receiver.answer({ status: 200 });
    answer(waiting.length);
    await until('all but the one', async () => (await delivered()) === to.length - 1);
    expect(receiver.connections()).to.be.at.most(MOST + 2); // whether the URL exists was asked over some
  });
});
