import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { postsOf } from '../support/events.ts';
import { startKeepingNameServer } from '../support/keeping-name-server.ts';
import { message, sendMail } from '../support/mail.ts';
import { type How, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/;
const DAY = 86_400_000;

/** A time so far from now, as the API takes and shows it. */
const timeIn = (ms: number) => new Date(Date.now() + ms).toISOString().slice(0, 19).replace('T', ' ');

describe('the endpoints of an account', () => {
  let daemon: TestDaemon;
  let hook: Receiver;
  let env: Record<string, string>;
  const send = (...boxes: string[]) =>
    sendMail(
      daemon.smtp,
      { from: 'ada@sender.test', to: boxes.map((box) => `${box}@in.test`) },
      message(boxes.join(' ')),
    );
  const info = (url = hook.url) => daemon.api('/endpoints/info', { url });
  const posts = () => postsOf(hook.requests).length;
  const start = async (settings: Record<string, string> = {}) => {
    daemon = await startDaemon(
      { POSTERN_INBOUND__OWNERSHIP: 'first', ...settings },
      { ...(env?.['POSTERN_DATA_DIR'] && { dir: env['POSTERN_DATA_DIR'] }) },
    );
    env = { POSTERN_DATA_DIR: daemon.dir };
  };
  /** The daemon with a route for all of `in.test`. */
  const begin = async (settings: Record<string, string> = {}) => {
    await start(settings);
    await daemon.api('/inbound/add-domain', { domain: 'in.test' });
    await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  };

  beforeEach(async () => {
    env = {};
    hook = await startReceiver();
  });
  afterEach(async () => {
    await daemon.stop();
    await hook.stop();
  });

  it('are those of its routes and webhooks, even before anything was posted', async () => {
    await begin();
    const route = await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: 'x', url: hook.url });
    const webhook = await daemon.api('/webhooks/add', { url: `${hook.url}?token=1` });
    const both = await daemon.api('/webhooks/add', { url: hook.url });
    const untouched = {
      breaker: 'up',
      since: null,
      next_probe_at: null,
      paused: false,
      paused_until: null,
      paused_by: null,
      waiting: 0,
      oldest_at: null,
      in_flight: 0,
      last_status: null,
      last_error: null,
      last_at: null,
    };
    expect(await daemon.api('/endpoints/list')).to.deep.equal([
      { url: hook.url, kind: 'inbound', routes: ['1.1', route.id], webhooks: [both.id], ...untouched },
      { url: `${hook.url}?token=1`, kind: 'events', routes: [], webhooks: [webhook.id], ...untouched },
    ]);
    const none = { attempts: 0, ok: 0, failed: 0, p50_ms: null, p95_ms: null };
    expect(await info()).to.deep.include({
      hour: none,
      day: none,
      recent: [],
      answers: [],
      preparing: [],
      sampled: false,
    });
  });

  it('show one that is down: since when, why, what waits, and that it recovered after a retry', async () => {
    await begin();
    hook.answer('reset');
    await send('a', 'b', 'c', 'd', 'e', 'f');
    await until('it is down', async () => (await info()).breaker === 'down');
    await until('nothing is on its way', async () => (await info()).in_flight === 0);
    const down = await info();
    expect(down).to.include({ waiting: 6, last_status: null, last_error: 'connection reset', paused: false });
    for (const name of ['since', 'oldest_at', 'last_at', 'next_probe_at']) expect(down[name], name).to.match(TIME);
    expect(Date.parse(`${down.next_probe_at}Z`) - Date.parse(`${down.since}Z`)).to.be.within(20_000, 40_000);
    expect(down.answers[0]).to.include({ status: null, error: 'connection reset', text: '' });
    expect(down.hour).to.include({ ok: 0, failed: down.hour.attempts });

    hook.answer({ status: 200 });
    const retried = await daemon.api('/endpoints/retry', { url: hook.url });
    expect(retried.waiting).to.equal(6);
    expect(retried.retried).to.be.within(5, 6); // those that were attempted; one may have waited for its first attempt
    await until('all are delivered', async () => (await info()).waiting === 0);
    expect(await info()).to.include({
      breaker: 'up',
      since: null,
      oldest_at: null,
      last_status: 200,
      last_error: null,
    });
  });

  it('group failures by cause, with an example of each, and the recent results of all', async () => {
    await begin();
    let count = 0;
    hook.answer(() => {
      count++;
      return count % 4 === 0
        ? { status: 200, body: `stored as ${count}` }
        : { status: 500, body: `order ${10 ** count} (id 7f3a-${count}) is unknown` };
    });
    await send('a', 'b', 'c', 'd');
    await until('four posts are noted', async () => (await info()).day.attempts === 4);
    const { answers, recent, hour, day, sampled } = await info();
    expect(answers.map(({ status, text, count }: any) => ({ status, text, count }))).to.deep.equal([
      { status: 500, text: 'order # (id #) is unknown', count: 3 },
      { status: 200, text: 'stored as #', count: 1 },
    ]);
    const [example] = await daemon.api('/inbound/deliveries', { id: answers[0].example_id });
    expect(example.attempts[0]).to.include({ status: 500 });
    expect(recent.map(({ status }: any) => status).toSorted()).to.deep.equal([200, 500, 500, 500]);
    expect(recent[0].at).to.match(TIME);
    expect(hour).to.include({ attempts: 4, ok: 1, failed: 3 });
    expect(day.p95_ms).to.be.at.least(day.p50_ms);
    expect(sampled).to.equal(false);
  });

  it('show of a slow one what is in flight and what waits for capacity', async () => {
    await begin({
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1',
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT_START: '1',
    });
    await send('first');
    await until('it has answered once', async () => (await info()).last_status === 200);
    const open: ((how: How) => void)[] = [];
    hook.answer(() => new Promise((resolve) => open.push(resolve)));
    await send('a', 'b', 'c');
    await until('the next is ready', async () =>
      (await info()).preparing.some((one: any) => one.waits_for === 'connection'),
    );
    const busy = await info();
    expect(busy).to.include({ in_flight: 1, waiting: 3, breaker: 'up' });
    const ready = busy.preparing.filter(({ waits_for: what }: any) => what === 'connection');
    expect(ready).to.have.length.within(1, 2);
    expect(ready[0]).to.include({ question: null });
    const [made] = await daemon.api('/inbound/deliveries', { id: ready[0].id });
    expect(made).to.include({ state: 'waiting', url: hook.url });
    hook.answer({ status: 200 });
    for (const answer of open) answer({ status: 200 });
    await until('all are delivered', async () => (await info()).waiting === 0);
    expect((await info()).preparing).to.deep.equal([]);
  });

  it('show which query mail is waiting for in the DNS', async () => {
    const names = await startKeepingNameServer();
    await begin({
      POSTERN_DNS__SERVERS: names.server,
      POSTERN_DNS__TIMEOUT_MS: '60000',
      POSTERN_DNS__BUDGET_MS: '60000',
    });
    names.keep();
    await send('a');
    await until('it waits', async () => (await info()).preparing.length === 1);
    await until('a question is open', async () => (await info()).preparing[0]?.question !== null);
    const [preparing] = (await info()).preparing;
    expect(preparing).to.include({ waits_for: 'verdicts' });
    expect(preparing.question).to.match(/^[A-Z]+ (.+\.)?sender\.test$/);
    names.release();
    await until('it is delivered', () => posts() === 1);
    names.stop();
  });

  it('can be paused: mail waits and is delivered when it is resumed', async () => {
    await begin();
    const other = await startReceiver();
    await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: 'other', url: other.url });
    const end = timeIn(DAY);
    const paused = await daemon.api('/endpoints/pause', { url: hook.url, until: end });
    expect(paused).to.include({ paused: true, paused_until: end, breaker: 'up' });
    expect(await send('a', 'b')).to.match(/^250 /);
    await send('other');
    await until('mail for another endpoint passes', () => postsOf(other.requests).length === 1);
    expect(posts()).to.equal(0);
    expect(await info()).to.include({ waiting: 2, paused: true, in_flight: 0 });
    // A retry does not end a pause.
    expect((await daemon.api('/endpoints/retry', { url: hook.url })).waiting).to.equal(2);
    await send('other');
    await until('mail for another endpoint passes', () => postsOf(other.requests).length === 2);
    expect(posts()).to.equal(0);

    const resumed = await daemon.api('/endpoints/resume', { url: hook.url });
    expect(resumed).to.include({ paused: false, paused_until: null });
    await until('it is delivered', () => posts() === 2);
    expect(await daemon.api('/endpoints/resume', { url: hook.url })).to.include({ paused: false });
    await other.stop();
  });

  it('stay paused over a restart, as the command line shows', async () => {
    await begin();
    const secret = `${hook.url}?token=secret`;
    await daemon.api('/inbound/add-route', { domain: 'in.test', pattern: 'b', url: secret });
    const { paused_until: end } = await daemon.api('/endpoints/pause', { url: secret });
    expect(Date.parse(`${end}Z`) - Date.now()).to.be.within(7 * DAY - 60_000, 7 * DAY);
    await send('b');
    await daemon.stop();
    await start();
    expect(await info(secret)).to.include({ paused: true, paused_until: end, waiting: 1 });

    const listed = await postern(['queue', 'endpoints'], env);
    expect(listed.out).to.contain(end).and.to.contain(hook.url).and.not.to.contain('secret');
    const [row, ...rest] = (await postern(['queue', 'endpoints', '--json', '--kind', 'inbound'], env)).json();
    expect(row).to.include({ url: secret, waiting: 1, breaker: 'up', paused: true, paused_until: end });
    expect(rest).to.deep.equal([]);
    expect((await postern(['queue', 'endpoints', '--kind', 'events'], env)).out).to.equal(
      'No waiting deliveries; no endpoint is down or paused.\n',
    );
    expect(await postern(['queue', 'endpoints', '--kind', 'mail'], env)).to.include({ code: 64 });

    await send('a');
    await until('mail for another endpoint passes', () => posts() === 1);
    await daemon.api('/endpoints/resume', { url: secret });
    await until('what waited is delivered', async () => (await info(secret)).waiting === 0);
    expect(posts()).to.equal(2);
    expect((await postern(['queue', 'endpoints', '--json'], env)).json()).to.deep.equal([]);
  });

  it('can be paused until a time within the next seven days', async () => {
    await begin();
    for (const end of [timeIn(-1000), timeIn(7 * DAY + 60_000), '0000-01-01', '9999-12-31']) {
      const { status, body } = await daemon.ask('/endpoints/pause', { url: hook.url, until: end });
      expect({ status, message: body.message }, end).to.deep.equal({
        status: 422,
        message: 'Validation error: {"until":"Please enter a time in the next 7 days"}',
      });
    }
    expect(await info()).to.include({ paused: false });
  });

  it('belong to one account each, even if two accounts have the same URL', async () => {
    await begin();
    const [{ key }] = (await postern(['account', 'create', 'second', '--json'], env)).json();
    const second = createCaller(daemon.base, key);
    expect(await second.api('/endpoints/list')).to.deep.equal([]);
    for (const operation of ['info', 'pause', 'resume', 'retry']) {
      const { status, body } = await second.ask(`/endpoints/${operation}`, { url: hook.url });
      expect(body, operation).to.deep.equal({
        status: 'error',
        code: 404,
        name: 'Unknown_Endpoint',
        message: `No route or webhook of the account has the URL ${hook.url}, and no deliveries wait for it`,
      });
      expect(status).to.equal(404);
    }
    await second.api('/inbound/add-domain', { domain: 'second.test' });
    await second.api('/inbound/add-route', { domain: 'second.test', pattern: '*', url: hook.url });
    await second.api('/endpoints/pause', { url: hook.url });
    await sendMail(daemon.smtp, { from: 'ada@sender.test', to: 'a@second.test' }, message('theirs'));
    await send('a');
    await until('that of the first is delivered', async () => (await info()).day.ok === 1);
    expect(await info()).to.include({ paused: false, waiting: 0, last_status: 200 });
    expect((await info()).recent).to.have.length(1);
    expect(posts()).to.equal(1);
    expect(await second.api('/endpoints/info', { url: hook.url })).to.deep.include({
      paused: true,
      waiting: 1,
      recent: [],
      routes: ['2.1'],
    });
    await daemon.api('/endpoints/resume', { url: hook.url });
    expect(await second.api('/endpoints/info', { url: hook.url })).to.include({ paused: true });
    await second.api('/endpoints/resume', { url: hook.url });
    await until('that of the second is delivered', () => posts() === 2);
  });

  it('are listed without a route while mail waits for them, or they are paused', async () => {
    await begin();
    await daemon.api('/endpoints/pause', { url: hook.url });
    await send('a');
    await daemon.api('/inbound/delete-route', { id: '1.1' });
    const [alone] = await daemon.api('/endpoints/list');
    expect(alone).to.deep.include({ url: hook.url, kind: 'inbound', routes: [], waiting: 1, paused: true });
    await daemon.api('/endpoints/resume', { url: hook.url });
    await until('it is delivered', () => posts() === 1);
    await until('it is forgotten', async () => (await daemon.api('/endpoints/list')).length === 0);
    expect((await daemon.ask('/endpoints/info', { url: hook.url })).body.name).to.equal('Unknown_Endpoint');
  });

  it('include the batches of events, which a pause stops too', async () => {
    await begin();
    const { id } = await daemon.api('/webhooks/add', { url: `${hook.url}/events`, events: ['send', 'open'] });
    await daemon.api('/endpoints/pause', { url: `${hook.url}/events` });
    await daemon.api('/webhooks/test', { id });
    expect(await info(`${hook.url}/events`)).to.include({ kind: 'events', waiting: 1, paused: true });
    await daemon.api('/endpoints/resume', { url: `${hook.url}/events` });
    await until('it is posted', async () => (await info(`${hook.url}/events`)).day.attempts === 1);
    expect((await info(`${hook.url}/events`)).day).to.include({ ok: 1, failed: 0 });
    expect(await info(`${hook.url}/events`)).to.include({ last_status: 200, waiting: 0 });
  });
});
