import { expect } from 'chai';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

describe('reply addresses', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let hook: Receiver;

  before(async () => {
    running = await startDaemon();
    hook = await startReceiver();
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'reply', url: hook.url });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'catch-*', url: hook.url });
  });
  after(async () => {
    await running?.stop();
    await hook?.stop();
  });

  const make = async (params: object = {}): Promise<string> =>
    (await running.api('/inbound/reply-address', { domain: 'in.test', mailbox: 'reply', data: 'x', ...params })).email;
  const send = (to: string, text = 'Thanks!\r\n\r\nOn 5 Jan 2026, at 12:00, Bob wrote:\r\n> Hi\r\n') =>
    sendMail(running.smtp, { from: 'ann@example.org', to }, message('Re: Hi', text));
  const faultOf = async (params: object): Promise<string> => {
    const caller = createCaller(running.base, running.key);
    const { body } = await caller.ask('/inbound/reply-address', {
      domain: 'in.test',
      mailbox: 'reply',
      data: 'x',
      ...params,
    });
    return `${body.name}: ${body.message}`;
  };

  it('return the sealed data with the reply and its quote', async () => {
    const address = await make({ data: 'ticket 4711', expires_at: '2999-01-01 00:00:00' });
    expect(address).to.match(/^reply\+r-[0-9a-v]+@in\.test$/);
    const before = postsOf(hook.requests).length;
    expect(await send(address.toUpperCase())).to.match(/^250/);
    const [post] = await until(
      'the post',
      () => postsOf(hook.requests).length > before && postsOf(hook.requests).slice(-1),
    );
    const { msg } = eventsOf(post as never)[0];
    expect(msg).to.include({ reply_data: 'ticket 4711', email: address.toUpperCase(), reply_text: 'Thanks!\n' });
    expect(msg.quoted_text).to.match(/^\nOn 5 Jan 2026, at 12:00, Bob wrote:\n> Hi\n/);
    expect(msg.text).to.equal(msg.reply_text + msg.quoted_text);
    expect(Object.keys(msg).slice(-7)).to.deep.equal([
      'reply_text',
      'quoted_text',
      'reply_data',
      'captures',
      'automated',
      'thread',
      'answers',
    ]);
  });

  it('leave mail to the mailbox itself, and with tags of other software, unchanged', async () => {
    await make();
    const before = postsOf(hook.requests).length;
    expect(await send('reply@in.test')).to.match(/^250/);
    expect(await send('catch-1+news@in.test')).to.match(/^250/);
    const posts = await until('the posts', () => postsOf(hook.requests).length >= before + 2 && postsOf(hook.requests));
    const data = (posts as never[]).slice(before).flatMap((post) => eventsOf(post).map(({ msg }) => msg.reply_data));
    expect(data).to.deep.equal([null, null]);
    expect(await send('reply+news@in.test')).to.match(/^550 5\.1\.1/);
  });

  it('are refused at RCPT if forged, or made for another mailbox', async () => {
    const address = await make({ mailbox: 'catch-1' });
    expect(await send(address)).to.match(/^250/);
    const forged = address.replace(/.@/, (end) => (end === '0@' ? '1@' : '0@'));
    expect(await send(forged)).to.match(/^550 5\.1\.1 No such mailbox here/);
    expect(await send(address.replace('catch-1', 'catch-2'))).to.match(/^550 5\.1\.1/);
    expect(await send(`catch-1+r-${'0'.repeat(40)}@in.test`)).to.match(/^550 5\.1\.1/);
  });

  it('are shown by test-route, with the payload', async () => {
    const address = await make({ data: 'id-7' });
    const { route, payload } = await running.api('/inbound/test-route', { address });
    expect(route.pattern).to.equal('reply');
    expect(payload[0].msg.reply_data).to.equal('id-7');
    expect((await running.api('/inbound/test-route', { address: address.replace('reply', 'catch-1') })).route).to.equal(
      null,
    );
  });

  it('are valid until the key is rotated twice, or revoked', async () => {
    const [first, rotate] = [
      await make(),
      (params = {}) => running.api('/inbound/rotate-reply-key', { domain: 'in.test', ...params }),
    ];
    await rotate();
    const second = await make();
    expect(await send(first)).to.match(/^250/);
    await rotate();
    expect(await send(first)).to.match(/^550 5\.1\.1/);
    expect(await send(second)).to.match(/^250/);
    await rotate({ revoke: true });
    expect(await send(second)).to.match(/^550 5\.1\.1/);
    expect(await send(await make())).to.match(/^250/);
  });

  it('can be made for a pattern with names, which the payload then has', async () => {
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: 'order-{order}-{item}', url: hook.url });
    expect(await send('Order-7-B-2@in.test')).to.match(/^250/);
    expect(await send(await make({ mailbox: 'order-8-c' }))).to.match(/^250/);
    // Mail of other tests may still be posted.
    const found = await until('the posts', () => {
      const all = postsOf(hook.requests).flatMap((post) => eventsOf(post).map(({ msg }) => msg));
      const named = all.filter(({ captures }) => captures.order);
      return named.length >= 2 && named;
    });
    expect(found.map(({ captures, reply_data }) => ({ ...captures, reply_data }))).to.have.deep.members([
      { order: '7', item: 'B-2', reply_data: null },
      { order: '8', item: 'c', reply_data: 'x' },
    ]);
    for (const pattern of ['{a}{b}', '{a}-{a}', '*{a}', '{a}*']) {
      const { body } = await running.ask('/inbound/add-route', { domain: 'in.test', pattern, url: hook.url });
      expect(body.message, pattern).to.include('Please use each {name} once');
    }
    const { payload } = await running.api('/inbound/test-route', { address: 'order-9-d@in.test' });
    expect(payload[0].msg.captures).to.deep.equal({ order: '9', item: 'd' });
  });

  it('explain why they cannot be made', async () => {
    expect(await faultOf({ data: 'a'.repeat(25) })).to.match(
      /^ValidationError: .*room for 24 bytes of data, not for 25/,
    );
    expect(await faultOf({ data: 'é'.repeat(11), expires_at: '2999-01-01' })).to.match(/room for 20 bytes/);
    expect(await faultOf({ mailbox: 'sales' })).to.match(/^ValidationError: .*No route of the domain matches/);
    expect(await faultOf({ mailbox: 'two words' })).to.match(/^ValidationError: .*mailbox name of ASCII letters/);
    expect(await faultOf({ expires_at: '2020-01-01 00:00:00' })).to.match(/^ValidationError: .*time in the future/);
    expect(await faultOf({ domain: 'other.test' })).to.match(/^Unknown_InboundDomain/);
    expect(await faultOf({ data: '' })).to.match(/^ValidationError/);
  });
});
