import { expect } from 'chai';
import { Webhook } from 'standardwebhooks';
import { mandrillSignature } from '../../src/webhooks/signing.ts';
import { postern } from '../support/command.ts';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { startClamd } from '../support/scanners.ts';
import { until } from '../support/until.ts';

const URL = 'pull:';

/** The mail in an answer of /inbound/pull. */
const eventOf = ({ body }: any): any =>
  JSON.parse(new URLSearchParams(Buffer.from(body, 'base64').toString()).get('mandrill_events') ?? '[]')[0];
const subjectOf = (one: any): string => eventOf(one).msg.subject;

describe('mail of a route with the URL pull:', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let hook: Receiver;
  const start = async (env: Record<string, string> = {}, dir?: string) => {
    running = await startDaemon({ POSTERN_INBOUND__OWNERSHIP: 'first', ...env }, dir === undefined ? {} : { dir });
  };
  const route = async (url = URL, pattern = '*', more: object = {}) => {
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    return running.api('/inbound/add-route', { domain: 'in.test', pattern, url, ...more });
  };
  const send = async (...subjects: string[]) => {
    for (const subject of subjects)
      expect(await sendMail(running.smtp, { from: 'ada@sender.test', to: 'box@in.test' }, message(subject))).to.match(
        /^250/,
      );
  };
  const pull = (params: object = {}): Promise<any[]> => running.api('/inbound/pull', params);
  const states = async () => (await running.api('/inbound/deliveries')).map(({ state }: any) => state);

  beforeEach(async () => {
    hook = await startReceiver();
  });
  afterEach(async () => {
    await running.stop();
    await hook.stop();
  });

  it('has the contents of a POST, headers and signatures included, and is delivered by an ack', async () => {
    await start();
    const { id } = await route();
    await send('one');
    const [one, ...more] = await pull();
    expect(more).to.deep.equal([]);
    expect(one).to.include({ route: id, email: 'box@in.test', attempts: 0, url: URL });
    expect(one.content_type).to.equal('application/x-www-form-urlencoded');
    const body = Buffer.from(one.body, 'base64').toString();
    const { auth_key: key, signing_secret: secret } = await running.api('/inbound/route-key', { id });
    new Webhook(secret).verify(body, one.headers, { jsonParse: false });
    const form = Object.fromEntries(new URLSearchParams(body));
    expect(one.headers['X-Mandrill-Signature']).to.equal(mandrillSignature(key, URL, form));
    expect(eventOf(one)).to.include({ event: 'inbound', _id: one.id });
    expect(subjectOf(one)).to.equal('one');
    expect(one.headers['webhook-id']).to.equal(one.id);

    expect(await pull(), 'it is leased').to.deep.equal([]);
    expect(await states()).to.deep.equal(['waiting']);
    expect(await running.api('/inbound/ack', { lease: one.lease })).to.deep.equal({ ended: 1, unknown: [] });
    const [delivery] = await running.api('/inbound/deliveries');
    expect(delivery).to.include({ state: 'delivered', last_status: 200, last_error: null });
    expect(delivery.attempts.map(({ status, answer }: any) => [status, answer])).to.deep.equal([[200, 'acknowledged']]);
    const again = await running.ask('/inbound/ack', { lease: one.lease });
    expect({ status: again.status, name: again.body.name }).to.deep.equal({ status: 404, name: 'Unknown_Lease' });
    const metrics = await scrape(running.base);
    expect(metrics.of('postern_attempts_total{class="inbound",outcome="delivered",code="2xx"}')).to.equal(1);
    await until('the history', async () => {
      const [found] = (await running.api('/inbound/search', { query: 'subject:one' })).mails;
      return found?.state === 'delivered' && found.subject === 'one';
    });
  });

  it('is handed out in order of arrival, up to the requested number, in the format of its route', async () => {
    await start();
    await route(URL, '*', { format: 'raw' });
    await send('a', 'b', 'c');
    const some = await pull({ limit: 2 });
    expect(some.map(({ content_type }) => content_type)).to.deep.equal(['message/rfc822', 'message/rfc822']);
    const texts = [...some, ...(await pull())].map(({ body }) => Buffer.from(body, 'base64').toString());
    expect(texts.map((text) => /^Subject: (\w)/m.exec(text)?.[1])).to.deep.equal(['a', 'b', 'c']);
  });

  it('is due again after a nack, with its reason; a late answer to an earlier lease is rejected', async () => {
    await start();
    await route();
    await send('one');
    const [first] = await pull();
    await running.api('/inbound/nack', { lease: first.lease, delay: 0, reason: 'no room' });
    const [second] = await pull();
    expect(second).to.include({ id: first.id, attempts: 1 });
    expect(second.lease).to.not.equal(first.lease);
    for (const path of ['/inbound/ack', '/inbound/nack'])
      expect((await running.ask(path, { lease: first.lease })).status).to.equal(404);
    expect(await running.api('/inbound/ack', { leases: [first.lease, second.lease] })).to.deep.equal({
      ended: 1,
      unknown: [first.lease],
    });
    const [{ attempts }] = await running.api('/inbound/deliveries');
    expect(attempts.map(({ status, error }: any) => [status, error])).to.deep.equal([
      [null, 'no room'],
      [200, null],
    ]);
  });

  it('waits as after a failed POST when a nack gives no time, with the status of the receiver', async () => {
    await start();
    await route();
    await send('one');
    const [one] = await pull();
    const asked = Date.now();
    await running.api('/inbound/nack', { lease: one.lease, status: 503, reason: 'Service Unavailable' });
    const told = Date.now();
    const [delivery] = await running.api('/inbound/deliveries');
    expect(delivery).to.include({ state: 'waiting', last_status: 503, last_error: null });
    expect(Date.parse(`${delivery.next_attempt_at}Z`)).to.be.within(asked + 2000, told + 7000);
    expect(await pull()).to.deep.equal([]);
    const [again] = await pull({ wait: 10 });
    expect(again.id).to.equal(one.id);
  });

  it('is leased again when a lease expires, as its history shows; a late consumer can still acknowledge', async () => {
    await start();
    await route();
    await send('one');
    const began = performance.now();
    const [first] = await pull({ lease: 5 });
    const [second] = await pull({ wait: 20 });
    expect(performance.now() - began).to.be.at.least(5000);
    expect(second.id).to.equal(first.id);
    const [{ attempts }] = await running.api('/inbound/deliveries');
    expect(attempts.map(({ error }: any) => error)).to.deep.equal(['lease ran out', 'not acknowledged']);
    expect((await running.ask('/inbound/ack', { lease: first.lease })).status).to.equal(404);
    await running.api('/inbound/ack', { lease: second.lease });
  });

  it('stays leased over a restart', async () => {
    await start();
    await route();
    await send('held', 'free');
    const [held] = await pull({ limit: 1, lease: 600 });
    const { dir } = running;
    await running.stop();
    await start({}, dir);
    expect((await pull()).map(subjectOf)).to.deep.equal(['free']);
    await running.api('/inbound/ack', { lease: held.lease });
    expect((await states()).sort()).to.deep.equal(['delivered', 'waiting']);
  });

  it('wakes only the consumers that wait for it; a stop answers them', async () => {
    await start();
    await route(URL, 'box');
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: 'pull:other' });
    const began = performance.now();
    const other = pull({ url: 'pull:other', wait: 50 });
    const waiting = pull({ wait: 50 });
    await send('one');
    expect((await waiting).map(subjectOf)).to.deep.equal(['one']);
    await running.stop();
    expect(await other).to.deep.equal([]);
    expect(performance.now() - began, 'neither waited to the end').to.be.below(50_000);
    await start();
  });

  it('is not leased to a client that disconnected', async () => {
    await start();
    await route();
    const gone = new AbortController();
    const call = fetch(`${running.base}/api/1.0/inbound/pull.json`, {
      method: 'POST',
      body: JSON.stringify({ key: running.key, wait: 50 }),
      signal: gone.signal,
    }).catch(() => 'gone');
    // Whatever is answered behind it came after it.
    for (let n = 0; n < 3; n++) await running.api('/users/ping');
    gone.abort();
    expect(await call).to.equal('gone');
    await send('one');
    expect((await pull({ wait: 5 })).map(subjectOf)).to.deep.equal(['one']);
  });

  it('is spread over several consumers, each message to one of them', async () => {
    await start();
    await route();
    const subjects = Array.from({ length: 30 }, (_, n) => `m${n}`);
    const consumer = async () => {
      const got: string[] = [];
      for (let some = await pull({ limit: 3, wait: 2 }); some.length > 0; some = await pull({ limit: 3, wait: 2 })) {
        got.push(...some.map(subjectOf));
        await running.api('/inbound/ack', { leases: some.map(({ lease }) => lease) });
      }
      return got;
    };
    const all = Promise.all([consumer(), consumer(), consumer(), consumer()]);
    await send(...subjects);
    expect((await all).flat().sort()).to.deep.equal(subjects.toSorted());
  });

  it('is hidden from another account: 404 for its leases, its route and its queue', async () => {
    await start();
    const { id } = await route();
    await send('one');
    const [one] = await pull();
    const made = await postern(['account', 'create', 'other', '--json'], { POSTERN_DATA_DIR: running.dir });
    const [{ key }] = made.json();
    const other = createCaller(running.base, key);
    for (const [path, params] of [
      ['/inbound/ack', { lease: one.lease }],
      ['/inbound/nack', { lease: one.lease }],
      ['/inbound/pull', {}],
      ['/inbound/pull', { id }],
      ['/inbound/tap', { id }],
    ] as const) {
      const { status, body } = await other.ask(path, params);
      expect({ status, code: body.code > 0 }, path).to.deep.equal({ status: 404, code: true });
    }
    expect((await running.api('/inbound/ack', { lease: one.lease })).ended).to.equal(1);
  });

  it('is posted when the route gets a webhook URL, and pulled when it gets pull: back', async () => {
    await start();
    const { id } = await route();
    await send('one');
    await running.api('/inbound/update-route', { id, url: hook.url });
    await until('the post', () => postsOf(hook.requests).length === 1);
    expect(eventsOf(postsOf(hook.requests)[0] as any)[0].msg.subject).to.equal('one');
    hook.answer({ status: 500 });
    await send('two');
    await until('the attempt', () => postsOf(hook.requests).length === 2);
    await running.api('/inbound/update-route', { id, url: 'pull:laptop' });
    const [two] = await pull({ url: 'pull:laptop', wait: 20 });
    expect(subjectOf(two)).to.equal('two');
    await running.api('/inbound/ack', { lease: two.lease });
    expect(await states()).to.deep.equal(['delivered', 'delivered']);
    expect((await running.ask('/inbound/pull')).body.name).to.equal('Unknown_Endpoint');
  });

  it('has an endpoint that is never down, delays no others, and can be paused', async () => {
    await start();
    await route();
    await send('one', 'two');
    const [shown] = await running.api('/endpoints/list');
    expect(shown).to.include({ url: URL, kind: 'inbound', breaker: 'up', waiting: 2, in_flight: 0 });
    await running.api('/endpoints/pause', { url: URL });
    expect(await pull()).to.deep.equal([]);
    await running.api('/endpoints/resume', { url: URL });
    expect(await pull()).to.have.length(2);
    expect(running.log.of('delivery.fault')).to.deep.equal([]);
  });

  it('can be replayed, and an answer to a lease before the replay is rejected', async () => {
    await start();
    await route();
    await send('one');
    const [one] = await pull();
    await running.api('/inbound/ack', { lease: one.lease });
    await running.api('/inbound/replay', { id: one.id });
    const [again] = await pull({ wait: 5 });
    expect(again).to.include({ id: one.id, attempts: 0 });
    expect((await running.ask('/inbound/ack', { lease: one.lease })).status).to.equal(404);
    expect((await running.api('/inbound/ack', { lease: again.lease })).ended).to.equal(1);
  });

  it('allows one form of its URL, for routes only', async () => {
    await start();
    await route();
    for (const url of ['pull:Upper', 'pull:a b', `pull:${'x'.repeat(65)}`, 'PULL:', 'pull://x'])
      expect((await running.ask('/inbound/add-route', { domain: 'in.test', pattern: 'x', url })).status, url).to.equal(
        422,
      );
    expect((await running.ask('/webhooks/add', { url: URL })).status).to.equal(422);
    expect((await running.ask('/inbound/try-route', { id: '1.1' })).body.message).to.contain('/inbound/pull');
    expect((await running.ask('/inbound/pull', { id: '1.1', lease: 4 })).status).to.equal(422);
    expect((await running.ask('/inbound/ack', {})).status).to.equal(422);
  });

  it('is limited to 8 MB in an answer, but at least one message', async () => {
    await start();
    await route(URL, '*', { format: 'raw' });
    const text = `${'0123456789abcdef'.repeat(4)}\r\n`.repeat(90_000);
    for (const subject of ['a', 'b', 'c'])
      await sendMail(running.smtp, { from: 'ada@sender.test', to: 'box@in.test' }, message(subject, text));
    const first = await pull({ wait: 20 });
    expect(first).to.have.length(1);
    expect(Buffer.from(first[0].body, 'base64').toString()).to.contain(text);
    expect(await pull({ wait: 20 })).to.have.length(1);
  });

  it('waits for its scan, and includes the result', async () => {
    const clamd = await startClamd();
    await start({ POSTERN_SCAN__CLAMD: clamd.address, POSTERN_SCAN__TIMEOUT_MS: '1500' });
    await route();
    await clamd.leave();
    await send('one');
    expect(await pull({ wait: 2 })).to.deep.equal([]);
    const waiting = pull({ wait: 50 });
    await clamd.resume();
    const [one] = await waiting;
    expect(eventOf(one).msg.scan.virus).to.equal('clean');
    await clamd.stop();
  });

  it('of a live route is copied by tap, without being consumed', async () => {
    await start();
    const { id } = await route(hook.url);
    const { cursor } = await running.api('/inbound/tap', { id });
    const waiting = running.api('/inbound/tap', { id, cursor, wait: 30 });
    await send('one', 'two');
    const seen = await waiting;
    const rest =
      seen.messages.length < 2
        ? await running.api('/inbound/tap', { id, cursor: seen.cursor, wait: 30 })
        : { messages: [] };
    const messages = [...seen.messages, ...rest.messages];
    expect(messages.map(subjectOf)).to.deep.equal(['one', 'two']);
    await until('both posts', () => postsOf(hook.requests).length === 2);
    const posted = postsOf(hook.requests).map(({ headers }: any) => headers['webhook-id']);
    expect(messages.map((one: any) => one.headers['webhook-id']).sort()).to.deep.equal(posted.sort());
    expect(messages[0].url).to.equal(hook.url);
    await until('both to be settled', async () => (await states()).every((state: string) => state === 'delivered'));
    expect((await running.api('/inbound/deliveries')).map((one: any) => one.attempts.length)).to.deep.equal([1, 1]);
  });
});
