import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const ENDPOINTS = 8;
const mailboxes = Array.from({ length: ENDPOINTS }, (_, i) => `box-${i}`);

describe('many endpoints at one host', () => {
  let daemon: TestDaemon;
  let receiver: Receiver;

  before(async () => {
    receiver = await startReceiver();
    daemon = await startDaemon({ POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1' });
    await daemon.api('/inbound/add-domain', { domain: 'in.test' });
    for (const pattern of mailboxes)
      await daemon.api('/inbound/add-route', { domain: 'in.test', pattern, url: `${receiver.url}/${pattern}` });
  });
  after(async () => {
    await daemon.stop();
    await receiver.stop();
  });

  it('reuse connections, as many as there are concurrent posts', async () => {
    const posts = () => receiver.requests.filter(({ method }) => method === 'POST').length;
    const before = receiver.connections(); // whether the URLs exist was asked over some
    for (let round = 1; round <= 4; round++) {
      // All are answered only when all have arrived: this number of connections is needed, and no more.
      receiver.answer(() =>
        until('all posts of the round', () => posts() === round * ENDPOINTS).then(() => ({ status: 200 })),
      );
      await sendMail(
        daemon.smtp,
        { from: 'ada@sender.test', to: mailboxes.map((name) => `${name}@in.test`) },
        message(`round ${round}`),
      );
      await until(
        'the round is over',
        async () => (await daemon.api('/inbound/deliveries', { state: 'delivered' })).length === round * ENDPOINTS,
      );
    }
    expect(receiver.connections() - before).to.be.within(ENDPOINTS - 1, ENDPOINTS);
  });
});
