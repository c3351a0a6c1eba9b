import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { freePort } from '../support/free-port.ts';
import { message, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

describe('trials of webhooks, through the whole daemon', function () {
  this.timeout(60_000);
  let hook: Receiver;
  let other: Receiver;
  let zone: Zone;
  let postern: TestDaemon;
  let id: string;

  before(async () => {
    hook = await startReceiver();
    zone = await startZone({ 'intra.test': { A: ['10.0.0.1'] }, 'mixed.test': { A: ['127.0.0.1', '10.0.0.1'] } });
  });
  after(() => Promise.all([hook.stop(), zone.stop()]));
  beforeEach(async () => {
    other = await startReceiver();
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
      POSTERN_WEBHOOKS__TIMEOUT_MS: '1000',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    await sendMail(postern.smtp, { from: 'ada@example.org', to: 'a@in.test' }, message('one'));
    [{ id }] = await until('it is delivered', async () => {
      const list = await postern.api('/inbound/deliveries', { state: 'delivered' });
      return list.length > 0 && list;
    });
  });
  afterEach(async () => {
    await postern.stop();
    await other.stop();
  });

  const tryAt = (url: string) => postern.ask('/inbound/try', { id, url });

  it('are posts like any other, marked for receivers, and not counted by the daemon', async () => {
    const look = async () => ({
      deliveries: await postern.api('/inbound/deliveries'),
      numbers: (await scrape(postern.base)).text
        .split('\n')
        .filter((line) =>
          /^postern_(?:delivery|deliveries|endpoint|batched|authentication|message_parse_failures)/.test(line),
        ),
    });
    const before = await look();
    expect(before.numbers).to.have.length.above(5);
    other.answer({ status: 503, headers: { 'Retry-After': '3600' }, body: 'not today' });
    for (let n = 0; n < 3; n++) expect((await tryAt(other.url)).body).to.include({ status: 503, answer: 'not today' });
    expect(await look()).to.deep.equal(before);
    const [real] = postsOf(hook.requests).slice(-1);
    const [trial] = postsOf(other.requests);
    if (!real || !trial) throw new Error('nothing was posted');
    const own = String(trial.headers['webhook-id']);
    expect(eventsOf(trial)).to.deep.equal(eventsOf(real).map((event) => ({ ...event, _id: own })));
    expect(trial.headers).to.include({ 'x-postern-trial': '1' });
    expect(own.startsWith(`${id}-trial-`)).to.equal(true);
    expect(real.headers).not.to.have.property('x-postern-trial');
    expect(other.open(), 'no connection is kept').to.equal(0);
  });

  it('show their destination, the request, and the headers of the answer', async () => {
    other.answer({ status: 200, headers: { 'X-Hello': 'w\u00f6rld\u009b', 'Set-Cookie': 'session=secret; Path=/' } });
    const { body } = await tryAt(other.url);
    expect(body.detail).to.include({ address: `127.0.0.1:${other.port}`, tls: null, reused: false });
    const sent = new Map(body.detail.request_headers.map(({ name, value }: any) => [name.toLowerCase(), value]));
    expect(sent.get('x-postern-trial')).to.equal('1');
    expect(sent.get('webhook-signature')).to.match(/^v1,.{8}…$/);
    const received = new Map(body.detail.response_headers.map(({ name, value }: any) => [name, value]));
    expect(received.get('x-hello')).to.match(/^[^\p{Cc}]+$/u);
    expect(received.get('set-cookie')).to.equal('session=…; Path=/');
    expect((await tryAt('http://127.0.0.1:1/')).body).to.deep.include({ name: 'ValidationError' });
    const free = other.url.replace(String(other.port), String(await freePort()));
    expect((await tryAt(free)).body).to.include({ status: null, error: 'connection refused' });
  });

  it('do not reach a forbidden network, and reveal nothing about it', async () => {
    const closed = [
      `http://127.0.0.2:${other.port}/hook`,
      `http://0x7f000002:${other.port}/`,
      `http://[::1]:${other.port}/`,
      `http://[::ffff:10.0.0.1]/`,
      'http://169.254.169.254/latest/meta-data/',
      `http://intra.test:${other.port}/`,
      `http://mixed.test:${other.port}/`,
      `http://nobody.test:${other.port}/`,
    ];
    for (const url of closed) {
      const { status, body } = await tryAt(url);
      expect({ status, message: body.message }, url).to.deep.equal({
        status: 422,
        message: 'Validation error: {"url":"Nothing was posted: the host has no address that webhooks may reach"}',
      });
    }
    // The port is in the URL: that it is refused says nothing of what is there.
    const { status, body } = await tryAt('http://intra.test:25/');
    expect({ status, message: body.message }).to.deep.equal({
      status: 422,
      message:
        'Validation error: {"url":"Nothing was posted: webhooks may use port 80, 443 and those above 1023, not port 25"}',
    });
    expect(other.connections()).to.equal(0);
    expect((await tryAt(other.url)).body, 'and this is allowed').to.include({ status: 200 });
  });

  it('follow no redirect', async () => {
    const trap = await startReceiver();
    other.answer({ redirect: trap.url, status: 307 });
    expect((await tryAt(other.url)).body).to.include({ status: 307 });
    expect(trap.connections()).to.equal(0);
    await trap.stop();
  });

  it('have a timeout of their own, longer than that of posts', async () => {
    const { promise: late, resolve: release } = Promise.withResolvers<void>();
    const slowly = () => late.then(() => ({ status: 200, body: 'slow' }));
    other.answer(slowly);
    const trial = tryAt(other.url);
    await until('the trial', () => other.requests.length === 1);
    hook.answer(slowly);
    await sendMail(postern.smtp, { from: 'ada@example.org', to: 'a@in.test' }, message('two'));
    await until('a post that began later to be given up', async () =>
      (await postern.api('/inbound/deliveries')).some((one: any) => one.last_error === 'timeout'),
    );
    release();
    hook.answer({ status: 200 });
    const { body } = await trial;
    expect(body).to.include({ status: 200, answer: 'slow', error: null });
    expect(body.duration_ms).to.be.above(1000);
  });

  it('show 512 characters of an answer, escaped', async () => {
    other.answer({ status: 500, body: `<script>\u001b[2J\u202e${'é'.repeat(100_000)}` });
    const { body } = await tryAt(other.url);
    expect(body.answer).to.have.length(512);
    expect(body.answer).to.match(/^<script>\ufffd\[2J\ufffdé+$/);
    for (const how of ['endless', 'malformed', 'reset'] as const) {
      other.answer(how);
      const { status, body: shown } = await tryAt(other.url);
      expect(status, how).to.equal(200);
      expect([shown.status, shown.error], how).to.deep.equal(
        { endless: [200, null], malformed: [null, 'malformed answer'], reset: [null, 'connection reset'] }[how],
      );
    }
  });

  it('post a message in a file, and leave no file behind', async () => {
    const line = `${'QUJD'.repeat(19)}\r\n`;
    const large = `Subject: large\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n`;
    await sendMail(
      postern.smtp,
      { from: 'ada@example.org', to: 'a@in.test' },
      large + line.repeat(Math.ceil((6 * 1024 * 1024) / line.length)),
    );
    const [{ id: largeId }] = await until('it is delivered', async () => {
      const list = await postern.api('/inbound/deliveries', { state: 'delivered' });
      return list.length > 1 && list;
    });
    expect((await postern.ask('/inbound/try', { id: largeId, url: other.url })).body).to.include({ status: 200 });
    const [real] = postsOf(hook.requests).slice(-1);
    const [trial] = postsOf(other.requests);
    const own = String(trial?.headers['webhook-id']);
    expect(trial?.body.toString().replaceAll(own, largeId) === real?.body.toString()).to.equal(true);
  });
});
