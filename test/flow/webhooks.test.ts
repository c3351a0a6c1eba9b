import { expect } from 'chai';
import { mandrillSignature } from '../../src/webhooks/signing.ts';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

/** Posted events without repeats of a batch. */
const arrived = (hook: Receiver) =>
  [...new Map(postsOf(hook.requests).map((post) => [post.headers['webhook-id'], post])).values()].flatMap(eventsOf);
const idsOf = (hook: Receiver) => new Set(postsOf(hook.requests).map(({ headers }) => headers['webhook-id']));

describe('webhooks, from a change of the lists to a signed POST', function () {
  this.timeout(60_000);
  let hook: Receiver;
  let running: TestDaemon;
  beforeEach(async () => {
    hook = await startReceiver();
    running = await startDaemon({ POSTERN_WEBHOOKS__BATCH_WAIT_MS: '100' });
  });
  afterEach(async () => {
    await running.stop();
    await hook.stop();
  });

  it('post the subscribed events, and count them', async () => {
    const { id, auth_key: key } = await running.api('/webhooks/add', {
      url: hook.url,
      events: ['blacklist', 'whitelist'],
    });
    await running.api('/rejects/add', { email: 'One@example.com', comment: 'no more' });
    await running.api('/whitelists/add', { email: 'one@example.com' });
    await until('three events', () => arrived(hook).length === 3);
    expect(arrived(hook).map(({ type, action }) => `${type} ${action}`)).to.deep.equal([
      'blacklist add',
      'whitelist add',
      'blacklist remove',
    ]);
    const post = postsOf(hook.requests)[0];
    expect(post?.headers['user-agent']).to.match(/^Postern\//);
    const value = new URLSearchParams(post?.body.toString()).get('mandrill_events') ?? '';
    expect(post?.headers['x-mandrill-signature']).to.equal(
      mandrillSignature(key, hook.url, { mandrill_events: value }),
    );
    const record = await until('the numbers', async () => {
      const found = await running.api('/webhooks/info', { id });
      return found.events_sent === 3 && found;
    });
    expect(record.batches_sent).to.equal(idsOf(hook).size);
    expect(record.last_error).to.equal(null);
    expect(record.last_sent_at).to.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  });

  it('show the answer of the endpoint when it failed', async () => {
    const { id } = await running.api('/webhooks/add', { url: hook.url });
    hook.answer({ status: 503, body: 'we are moving' });
    const { id: delivery } = await running.api('/webhooks/test', { id });
    const record = await until('the error', async () => {
      const found = await running.api('/webhooks/info', { id });
      return found.last_error !== null && found;
    });
    expect(record).to.include({
      last_error: `POST to ${hook.url} failed with 503: we are moving`,
      batches_sent: 0,
      events_sent: 0,
      last_sent_at: null,
    });
    const [batch] = await running.api('/webhooks/deliveries', { id, delivery });
    expect(batch).to.include({ state: 'waiting', events: 10, last_status: 503 });
    hook.answer({ status: 200 });
    await until('it is taken', async () => (await running.api('/webhooks/info', { id })).events_sent === 10, 20_000);
    expect([...idsOf(hook)]).to.deep.equal([delivery]);
  });

  it('are told apart from mail on the command line', async () => {
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    const { id } = await running.api('/webhooks/add', { url: hook.url, events: ['send', 'open'] });
    hook.answer({ status: 503 });
    await sendMail(running.smtp, { from: 'ada@example.org', to: 'jo@in.test' }, message('hello'));
    const { id: delivery } = await running.api('/webhooks/test', { id });
    const env = { POSTERN_DATA_DIR: running.dir };
    const table = (await postern(['queue', 'list'], env)).out;
    expect(table).to.contain('jo@in.test').and.to.contain(`2 events of webhook ${id}`);
    const rows = (await postern(['queue', 'list', '--json'], env)).records();
    expect(rows.map(({ kind }) => kind)).to.have.members(['inbound', 'events']);
    expect(rows.find(({ kind }) => kind === 'events')).to.include({
      id: delivery,
      webhook: String(id),
      events: 2,
      recipient: null,
      route: null,
    });
    expect((await postern(['queue', 'list', '--json', '--webhook', String(id)], env)).json()).to.have.length(1);
    expect((await postern(['queue', 'show', delivery], env)).out)
      .to.match(/kind +events/)
      .and.to.match(/events +2/);
    const events = JSON.parse((await postern(['queue', 'show', delivery, '--raw'], env)).out);
    expect(events.map(({ event }: { event: string }) => event)).to.deep.equal(['send', 'open']);
    expect(await running.api('/inbound/deliveries')).to.have.length(1);
    expect((await postern(['queue', 'drop', '--webhook', String(id), '--json'], env)).json()).to.deep.equal([
      { count: 1, dry_run: false },
    ]);
  });
});
