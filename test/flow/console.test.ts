import { connect } from 'node:net';
import { expect } from 'chai';
import { createBrowser, openLive } from '../support/console.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { createClient } from '../support/smtp.ts';
import { until } from '../support/until.ts';

describe('the console of a daemon', () => {
  let running: TestDaemon;
  let hook: Receiver;
  let port: number;
  let account: string;

  beforeEach(async () => {
    hook = await startReceiver();
    running = await startDaemon();
    port = Number(new URL(running.base).port);
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'box-*', url: hook.url });
    account = String(running.log.of('api.call').at(-1)?.fields['account']);
  });
  afterEach(async () => {
    await running.stop();
    await hook.stop();
  });

  async function enter(daemon = running) {
    const browser = createBrowser(Number(new URL(daemon.base).port));
    const link = await daemon.daemon.enterLink();
    await browser.press(new URL(link ?? '').pathname);
    return browser;
  }

  /** Hands over mail by SMTP and answers the last reply. */
  async function mail(subject: string, to = 'box-1@in.test', count = 1): Promise<string> {
    const client = createClient(connect(running.smtp));
    await client.reply();
    await client.say('EHLO client.test');
    let reply = '';
    for (let n = 0; n < count; n++) {
      await client.say('MAIL FROM:<ada@sender.test>');
      reply = await client.say(`RCPT TO:<${to}>`);
      if (!reply.startsWith('250')) break;
      await client.say('DATA');
      reply = await client.say(`From: Ada <ada@sender.test>\r\nSubject: ${subject}\r\n\r\nHello.\r\n.`);
    }
    client.destroy();
    return reply;
  }

  it('is available when every listener is on loopback, with a link at the start', async () => {
    const browser = await enter();
    const { body } = await browser.read('/console/me');
    expect(body).to.include({ name: 'operator', hostname: 'in.postern.test' });
    expect(body.smtp).to.deep.equal([`127.0.0.1:${running.smtp.port}`]);
    const off = await startDaemon({ POSTERN_CONSOLE__ENABLED: 'false' });
    expect(await off.daemon.enterLink()).to.equal(undefined);
    expect((await fetch(`${off.base}/console/`)).status).to.equal(404);
    await off.stop();
  });

  it('is not available beyond loopback until it is enabled', async () => {
    const open = await startDaemon({ POSTERN_SMTP__LISTEN: '0.0.0.0:0' });
    expect((await fetch(`${open.base}/console/`)).status).to.equal(404);
    await open.stop();
    const set = await startDaemon({ POSTERN_SMTP__LISTEN: '0.0.0.0:0', POSTERN_CONSOLE__ENABLED: 'true' });
    expect((await fetch(`${set.base}/console/`)).status).to.equal(200);
    await set.stop();
  });

  it('keeps sessions over a restart', async () => {
    const cookie = (await enter()).cookie();
    await running.stop();
    running = await startDaemon({}, { dir: running.dir });
    const again = createBrowser(Number(new URL(running.base).port));
    again.setCookie(cookie);
    expect((await again.read('/console/me')).status).to.equal(200);
  });

  it('shows a mail and its result live, as /inbound/search does', async () => {
    const browser = await enter();
    const live = await openLive(port, browser.cookie(), 'topics=mail,refused');
    expect([live.status, live.headers['content-type'], live.headers['x-accel-buffering']]).to.deep.equal([
      200,
      'text/event-stream; charset=utf-8',
      'no',
    ]);
    expect(await mail('Order 4711')).to.match(/^250 /);
    await until('the mail is shown as delivered', () => live.of('mail').at(-1)?.data.mail.state === 'delivered');
    const { data } = live.of('mail').at(-1) ?? {};
    const [found] = (await running.api('/inbound/search', { query: 'subject:4711' })).mails;
    expect(data).to.deep.equal({ account, mail: found });
    expect(found).to.include({ subject: 'Order 4711', last_status: 200 });
    live.close();
  });

  it('shows a refusal only to subscribers of refusals', async () => {
    const browser = await enter();
    const [mails, refusals] = [
      await openLive(port, browser.cookie(), 'topics=mail'),
      await openLive(port, browser.cookie(), `topics=refused&account=${account}`),
    ];
    // The first read of the refusals only records their end.
    await until('the refusal is shown', async () => {
      if (refusals.of('refused').length === 0) await mail('x', 'nobody@in.test');
      return refusals.of('refused').length > 0;
    });
    expect(refusals.of('refused')[0]?.data).to.deep.include({ account });
    expect(refusals.of('refused')[0]?.data.refusal).to.include({ reason: 'noMailbox', recipient: 'nobody@in.test' });
    expect(mails.of('refused')).to.deep.equal([]);
    mails.close();
    refusals.close();
  });

  it('continues after the last event of a disconnected browser, or reports a gap', async () => {
    const browser = await enter();
    const first = await openLive(port, browser.cookie(), 'topics=mail');
    await mail('one');
    await until('one is delivered', () => first.of('mail').at(-1)?.data.mail.state === 'delivered');
    const last = first.of('mail').at(-1)?.id;
    first.close();
    await mail('two');
    await until('two is known', async () => (await running.api('/inbound/search', { query: 'two' })).mails.length > 0);
    const back = await openLive(port, browser.cookie(), 'topics=mail', last);
    await until('two is shown', () => back.of('mail').some(({ data }) => data.mail.subject === 'two'));
    expect(back.of('reset')).to.deep.equal([]);
    const lost = await openLive(port, browser.cookie(), 'topics=mail', '1-1');
    await until('it is said that something is missing', () => lost.of('reset').length === 1);
    back.close();
    lost.close();
  });

  it('shows at most twenty mails in a second, and reports that there are more', async () => {
    const browser = await enter();
    const live = await openLive(port, browser.cookie(), 'topics=mail');
    hook.answer({ status: 500 });
    await mail('many', 'box-1@in.test', 60);
    await until('more is said', () => live.of('more').length > 0);
    expect(live.of('more')[0]?.data).to.deep.equal({ topic: 'mail' });
    live.close();
  });

  it('rejects unknown topics, and more than six streams of a session', async () => {
    const browser = await enter();
    for (const query of ['', 'topics=', 'topics=secrets', 'topics=mail,secrets'])
      expect((await browser.read(`/console/live?${query}`)).status, query).to.equal(422);
    const open = [];
    for (let n = 0; n < 6; n++) open.push(await openLive(port, browser.cookie(), 'topics=mail'));
    expect((await browser.read('/console/live?topics=mail')).status).to.equal(429);
    for (const live of open) live.close();
    await until('there is room again', async () => {
      const again = await openLive(port, browser.cookie(), 'topics=mail');
      again.close();
      return again.status === 200;
    });
  });

  it('does not delay a stop', async () => {
    const browser = await enter();
    const live = await openLive(port, browser.cookie(), 'topics=mail');
    const began = performance.now();
    await running.stop();
    expect(performance.now() - began).to.be.below(8000);
    await until('the stream has ended', live.ended);
    running = await startDaemon({}, { dir: running.dir });
  });

  it('names the person who replayed mail', async () => {
    const browser = await enter();
    await mail('again');
    await until('it is delivered', async () => {
      const { mails } = await running.api('/inbound/search', { query: 'again' });
      return mails[0]?.state === 'delivered';
    });
    const { mails } = await running.api('/inbound/search', { query: 'again' });
    const replayed = await browser.write('/console/call/inbound/replay', { id: mails[0].id });
    expect([replayed.status, replayed.text]).to.deep.equal([200, replayed.text]);
    await until('it is noted', async () => {
      const { actions } = await running.api('/actions/list');
      return actions.some(({ by }: { by: string }) => by === 'operator');
    });
  });

  it('sends a test message over SMTP to a route and a receiver of its own, any number of times', async () => {
    const browser = await enter();
    for (let n = 1; n <= 2; n++) {
      const { status, body } = await browser.write('/console/test-message');
      expect([status, body.address]).to.deep.equal([200, 'hello@account-1.test']);
      expect(body.reply).to.match(/^250 2\.0\.0 OK: queued as /);
      await until('it is delivered', async () => {
        const { mails } = await running.api('/inbound/search', { query: 'to:hello@account-1.test state:delivered' });
        return mails.length === n && mails[0].last_status === 200 && mails[0].subject === 'It works';
      });
    }
    expect(await running.api('/inbound/routes', { domain: 'account-1.test' })).to.have.length(1);
  });

  it('explains why a test message cannot be sent', async () => {
    const strict = await startDaemon({ POSTERN_WEBHOOKS__ALLOW_PRIVATE: '' });
    const { status, body } = await (await enter(strict)).write('/console/test-message');
    expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
    expect(body.message).to.match(/^The test route could not be added: /);
    await strict.stop();
  });
});
