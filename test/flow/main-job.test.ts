import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { Webhook } from 'standardwebhooks';
import { mandrillSignature } from '../../src/webhooks/signing.ts';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

describe('the main job, from socket to webhook', () => {
  let postern: TestDaemon;
  let hook: Receiver;
  let route: { id: string };

  before(async () => {
    postern = await startDaemon();
  });
  after(() => postern.stop());
  beforeEach(async () => {
    hook = await startReceiver();
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    route = await postern.api('/inbound/add-route', { domain: 'in.test', pattern: 'support-*', url: hook.url });
  });
  afterEach(async () => {
    const domains: { domain: string }[] = await postern.api('/inbound/domains');
    for (const { domain } of domains) await postern.api('/inbound/delete-domain', { domain });
    await hook.stop();
  });

  it('posts mail received by SMTP, signed both ways', async () => {
    const transport = createTransport({ ...postern.smtp, ignoreTLS: true });
    await transport.sendMail({
      from: 'Ada Lovelace <ada@example.org>',
      to: 'support-1@in.test',
      cc: 'Bob <bob@example.org>',
      subject: 'Grüße ✓',
      text: 'Plain text\n',
      html: '<p>HTML</p>',
      attachments: [
        { filename: 'daten.csv', content: 'a,b\n1,2\n' },
        { filename: 'logo.png', content: Buffer.from([137, 80, 78, 71]), cid: 'logo' },
      ],
    });
    const [post] = await until('the post', () => postsOf(hook.requests).length === 1 && postsOf(hook.requests));
    const [{ event, msg }] = eventsOf(post as never);
    expect(event).to.equal('inbound');
    expect(msg).to.include({
      email: 'support-1@in.test',
      from_email: 'ada@example.org',
      from_name: 'Ada Lovelace',
      subject: 'Grüße ✓',
    });
    expect(msg.text.trim()).to.equal('Plain text');
    expect(msg.html.trim()).to.equal('<p>HTML</p>');
    expect(msg.to).to.deep.equal([['support-1@in.test', null]]);
    expect(msg.attachments['daten.csv']).to.include({ name: 'daten.csv', content: 'a,b\n1,2\n', base64: false });
    expect(msg.spf).to.have.property('result');
    expect(msg.raw_msg).to.match(/^Received: from/);

    const { auth_key: key, signing_secret: secret } = await postern.api('/inbound/route-key', { id: route.id });
    const { headers, body } = post as { headers: Record<string, string>; body: Buffer };
    const value = new URLSearchParams(body.toString()).get('mandrill_events') ?? '';
    expect(headers['x-mandrill-signature']).to.equal(mandrillSignature(key, hook.url, { mandrill_events: value }));
    // The signature covers the bytes; the library parses what it verified as JSON, which a form is not.
    expect(() => new Webhook(secret).verify(body.toString(), headers)).to.throw(SyntaxError);
    expect(() => new Webhook(secret).verify(body.toString(), headers, { jsonParse: false })).not.to.throw();
    expect(() => new Webhook('whsec_d3Jvbmc=').verify(body.toString(), headers)).to.throw('No matching signature');
  });

  for (const [name, blank] of [
    ['blank', ' '],
    ['tab', '\t'],
  ] as const) {
    it(`takes a message that begins with a ${name} as having no header, and not as the rest of our Received line`, async () => {
      const raw = `${blank}X-Forged: by us\r\nSubject: none\r\n\r\nx\r\n`;
      expect(await sendMail(postern.smtp, { from: 'ada@example.org', to: 'support-1@in.test' }, raw)).to.match(/^250 /);
      const [post] = await until('the post', () => postsOf(hook.requests).length === 1 && postsOf(hook.requests));
      const [{ msg }] = eventsOf(post as never);
      expect(msg.raw_msg).to.match(
        /^Received: from [^]*\(envelope-from <ada@example\.org>\); .* \+0000\n\n[ \t]X-Forged: by us\nSubject: none\n\nx\n$/,
      );
      expect(Object.keys(msg.headers)).to.deep.equal(['Received']);
      expect(msg.headers['Received']).to.match(/\+0000$/);
      expect(msg).to.include({ subject: '', from_email: 'ada@example.org', text: raw.replaceAll('\r\n', '\n') });
      expect(msg.dkim).to.deep.equal({ signed: false, valid: false });
    });
  }

  it('posts the text of a message without a header, and the fields of one with a header', async () => {
    const arrived = async (raw: string, count: number) => {
      expect(await sendMail(postern.smtp, { from: 'ada@example.org', to: 'support-1@in.test' }, raw)).to.match(/^250 /);
      const posts = await until('the post', () => postsOf(hook.requests).length === count && postsOf(hook.requests));
      return posts
        .flatMap(eventsOf)
        .map(({ msg }) => msg)
        .find(({ raw_msg }) => raw_msg.endsWith(raw.replaceAll('\r\n', '\n')));
    };
    const bare = 'The backup failed: no space left\r\non the disk\r\n\r\nPlease look.\r\n';
    const text = await arrived(bare, 1);
    expect(text).to.include({ subject: '', text: bare.replaceAll('\r\n', '\n') });
    expect(text.raw_msg).to.contain('+0000\n\nThe backup failed');
    expect(await arrived('one line\r\n', 2)).to.include({ text: 'one line\n' });
    expect(await arrived('\r\nno header, rightly said\r\n', 3)).to.include({ text: 'no header, rightly said\n' });
    expect(await arrived('a line that is no field\r\nSubject: kept\r\n\r\nx\r\n', 4)).to.include({
      subject: 'kept',
      text: 'x\n',
    });
  });

  it('posts once for each recipient, to the route of each, and refuses the rest at RCPT', async () => {
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: `${hook.url}?all` });
    const reply = await sendMail(
      postern.smtp,
      { from: 'ada@example.org', to: ['support-1@in.test', 'Support-2@IN.test', 'sales@in.test'] },
      message('three'),
    );
    expect(reply).to.match(/^250 2\.0\.0 /);
    const posts = await until('three posts', () => postsOf(hook.requests).length === 3 && postsOf(hook.requests));
    const seen = posts.map((post) => [post.url, eventsOf(post)[0].msg.email]).toSorted();
    expect(seen).to.deep.equal([
      ['/hook', 'Support-2@IN.test'],
      ['/hook', 'support-1@in.test'],
      ['/hook?all', 'sales@in.test'],
    ]);
    expect(new Set(posts.map(({ headers }) => headers['webhook-id'])).size).to.equal(3);
    expect(
      await sendMail(postern.smtp, { from: 'ada@example.org', to: 'x@elsewhere.test' }, message('relay')),
    ).to.match(/^550 5\.7\.1 /);
    await postern.api('/inbound/delete-domain', { domain: 'in.test' });
    expect(
      await sendMail(postern.smtp, { from: 'ada@example.org', to: 'support-1@in.test' }, message('gone')),
    ).to.match(/^550 5\.7\.1 /);
  });

  it('treats send-raw the same as SMTP', async () => {
    const matched = await postern.api('/inbound/send-raw', {
      raw_message: message('raw'),
      to: ['support-9@in.test', 'nobody@in.test'],
      mail_from: 'ada@example.org',
      helo: 'h.example',
      client_address: '127.0.0.1',
    });
    expect(matched).to.deep.equal([{ email: 'support-9@in.test', pattern: 'support-*', url: hook.url }]);
    const [post] = await until('the post', () => postsOf(hook.requests).length === 1 && postsOf(hook.requests));
    expect(eventsOf(post as never)[0].msg).to.include({ email: 'support-9@in.test', subject: 'raw' });
  });

  it('keeps mail that the endpoint refuses, and delivers it under the same id at a retry', async () => {
    hook.answer({ status: 500, body: 'deploying' });
    await sendMail(postern.smtp, { from: 'ada@example.org', to: 'support-1@in.test' }, message('later'));
    const [delivery] = await until('the failed attempt', async () => {
      const list = await postern.api('/inbound/deliveries', { route: route.id });
      return list[0]?.attempts?.length > 0 && list;
    });
    expect(delivery).to.include({ state: 'waiting' });
    expect(delivery.attempts[0]).to.include({ status: 500, answer: 'deploying' });
    hook.answer({ status: 200 });
    await until('the second attempt', () => postsOf(hook.requests).length > 1);
    const ids = postsOf(hook.requests).map(({ headers }) => headers['webhook-id']);
    expect(new Set(ids).size).to.equal(1);
  }).timeout(20_000);

  it('delivers mail after a restart that was accepted before it', async () => {
    hook.answer('hang');
    await sendMail(postern.smtp, { from: 'ada@example.org', to: 'support-1@in.test' }, message('over'));
    await until('the attempt', () => hook.open() > 0);
    const { dir } = postern;
    await postern.stop();
    hook.answer({ status: 200 });
    const before = postsOf(hook.requests).length;
    postern = await startDaemon({}, { dir });
    const [delivery] = await until('it is known', async () => {
      const list = await postern.api('/inbound/deliveries', { route: route.id });
      return list.length === 1 && list;
    });
    await until('the post', () => postsOf(hook.requests).length > before);
    expect(postsOf(hook.requests).at(-1)?.headers['webhook-id']).to.equal(delivery.id);
  }).timeout(60_000);

  it('accepts a message of 20 MB and posts every byte of its attachment', async () => {
    const content = Buffer.alloc(14_000_000, 'postern ');
    const transport = createTransport({ ...postern.smtp, ignoreTLS: true });
    await transport.sendMail({
      from: 'ada@example.org',
      to: 'support-1@in.test',
      subject: 'large',
      text: 'x',
      attachments: [{ filename: 'large.bin', content }],
    });
    const [post] = await until('the post', () => postsOf(hook.requests).length === 1 && postsOf(hook.requests), 30_000);
    const { attachments } = eventsOf(post as never)[0].msg;
    const got = Buffer.from(attachments['large.bin'].content, 'base64');
    expect(createHash('sha256').update(got).digest('hex')).to.equal(createHash('sha256').update(content).digest('hex'));
  }).timeout(60_000);

  it('shows where a sample would go, and its payload', async () => {
    const test = await postern.api('/inbound/test-route', { address: 'support-7@in.test' });
    expect(JSON.stringify(test)).to.contain(route.id).and.to.contain('A sample message');
  });

  it('shows a second account nothing of the first', async () => {
    const stranger = createCaller(postern.base, 'not-a-key-of-anybody22');
    expect((await stranger.ask('/inbound/domains')).body).to.include({ name: 'Invalid_Key', code: -1 });
  });
});
