import { expect } from 'chai';
import { startDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { startMongoProxy } from '../support/mongo-proxy.ts';
import { startReceiver } from '../support/receiver.ts';
import { PATIENCE, until } from '../support/until.ts';

const mail = { from: 'ada@example.org', to: 'x@in.test' };

describe('an unavailable store', () => {
  it('at the start: mail is deferred, calls get a temporary error, nothing is refused permanently', async () => {
    const postern = await startDaemon({
      POSTERN_STORE__URL: 'mongodb://127.0.0.1:1/postern',
      POSTERN_STORE__TIMEOUT_MS: '300',
    });
    expect(await sendMail(postern.smtp, mail, message('early'))).to.match(/^451 4\.3\.0 /);
    const { status, body } = await postern.ask('/users/ping');
    expect([status, body.name, body.code]).to.deep.equal([503, 'ServiceUnavailable', -2]);
    const ready = await fetch(`${postern.base}/readyz`);
    expect(ready.status).to.equal(503);
    expect(JSON.stringify(await ready.json())).to.contain('not read yet: the store is away');
    expect((await fetch(`${postern.base}/healthz`)).status).to.equal(200);
    await postern.stop();
  });

  it('makes only the first of a hundred calls wait', async function () {
    // Each would take three seconds.
    this.timeout(60_000 * PATIENCE);
    const postern = await startDaemon({
      POSTERN_STORE__URL: 'mongodb://127.0.0.1:1/postern',
      POSTERN_STORE__TIMEOUT_MS: '3000',
    });
    for (let n = 0; n < 100; n++) expect((await postern.ask('/users/ping')).status).to.equal(503);
    expect(await sendMail(postern.smtp, mail, message('early'))).to.match(/^451 4\.3\.0 /);
    await postern.stop();
  });

  it('while the daemon runs: mail for known routes is accepted and posted, and everything works once it is back', async function () {
    if (!mongoDriver) this.skip();
    this.timeout(30_000);
    const hook = await startReceiver();
    const server = await mongoServer();
    const proxy = await startMongoProxy(server.address);
    const postern = await startDaemon({
      POSTERN_STORE__URL: server.url(newDatabaseName(), proxy.address),
      POSTERN_STORE__TIMEOUT_MS: String(1000 * PATIENCE),
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    await sendMail(postern.smtp, mail, message('before'));
    await until('the first post', () => postsOf(hook.requests).length === 1);
    proxy.cut();
    expect(await sendMail(postern.smtp, mail, message('during'))).to.match(/^250 2\.0\.0 /);
    await until('the second post', () => postsOf(hook.requests).length === 2);
    expect((await postern.ask('/inbound/domains')).status).to.equal(503);
    proxy.mend();
    await until(
      'the store is back',
      async () => (await postern.ask('/inbound/domains')).status === 200,
      15_000 * PATIENCE,
    );
    expect(postsOf(hook.requests).map((post) => eventsOf(post)[0].msg.subject)).to.deep.equal(['before', 'during']);
    await postern.stop();
    await proxy.close();
    await hook.stop();
  });
});
