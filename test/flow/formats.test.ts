import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

describe('a route with a format', () => {
  let zone: Zone;
  let postern: TestDaemon;
  let hook: Receiver;
  before(async () => {
    zone = await startZone({
      'sender.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      '_dmarc.sender.test': { TXT: ['v=DMARC1; p=reject'] },
    });
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '20000',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
  });
  after(async () => {
    await postern?.stop();
    await zone?.stop();
  });
  beforeEach(async () => {
    hook = await startReceiver();
    // What a receiver of another vendor answers to a HEAD that it does not know.
    hook.answerHead({ status: 404 });
  });
  afterEach(() => hook.stop());

  const route = (pattern: string, rest: object) =>
    postern.api('/inbound/add-route', { domain: 'in.test', pattern, url: hook.url, ...rest });
  async function send(to: string) {
    const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
    await transport.sendMail({ from: 'zoe@sender.test', to, subject: 'Hello', text: 'plain' });
    transport.close();
  }
  const posts = () => hook.requests.filter(({ method }) => method === 'POST');
  const arrival = () => until('the post', () => posts()[0]);

  it('posts the message itself, with the password of the route and the verdicts', async () => {
    const added = await route('raw', { format: 'raw', password: 'secret' });
    expect(added).to.include({ format: 'raw', has_password: true });
    expect(JSON.stringify(added)).not.to.contain('secret');
    await send('raw@in.test');
    const { headers, body } = await arrival();
    expect(headers).to.include({
      'content-type': 'message/rfc822',
      authorization: `Basic ${Buffer.from('actionmailbox:secret').toString('base64')}`,
    });
    expect(headers).not.to.have.property('x-mandrill-signature');
    expect(body.toString()).to.match(
      /^Return-Path: <zoe@sender\.test>\r\nX-Original-To: raw@in\.test\r\nAuthentication-Results: [^;]+;\r\n\tspf=pass smtp\.mailfrom=sender\.test;/,
    );
    expect(body.toString()).to.contain('dmarc=pass header.from=sender.test');
  });

  it('names the sender', async () => {
    await route('json', { format: 'json' });
    await send('json@in.test');
    const { sender_auth: auth, envelope } = JSON.parse((await arrival()).body.toString());
    expect(auth).to.deep.include({ authenticated: true, domain: 'sender.test', by: 'dmarc' });
    expect(envelope).to.include({ from: 'zoe@sender.test', to: 'json@in.test', helo: 'sender.test', ip: '127.0.0.1' });
  });

  for (const [format, stop] of [
    ['postmark', 403],
    ['mailgun', 406],
  ] as const) {
    it(`ends a delivery of ${format} at the ${stop} of the service, and posts it again in another format`, async () => {
      const { id } = await route(format, { format });
      hook.answerOnce({ status: stop });
      await send(`${format}@in.test`);
      const dead = await until('the end', async () => {
        const [found] = await postern.api('/inbound/deliveries', { route: id });
        return found?.state === 'dead' && found;
      });
      expect(dead).to.include({ last_status: stop });
      expect(await postern.api('/inbound/payload', { id: dead.id })).to.have.any.keys(
        'OriginalRecipient',
        'content_type',
      );
      await postern.api('/inbound/update-route', { id, format: 'json' });
      await postern.api('/inbound/replay', { id: dead.id });
      await until('the second post', () => posts()[1]);
      expect(JSON.parse(posts()[1]?.body.toString() ?? '')).to.include({ event: 'inbound', subject: 'Hello' });
    });
  }

  it('is shown by test-route, in its format or in another', async () => {
    await route('shown', { format: 'cloudmailin' });
    const shown = await postern.api('/inbound/test-route', { address: 'shown@in.test' });
    expect(shown).to.include({ content_type: 'application/json' });
    expect(shown.payload.envelope).to.include({ to: 'shown@in.test' });
    const other = await postern.api('/inbound/test-route', { address: 'shown@in.test', format: 'mailgun' });
    expect(other.content_type).to.match(/^multipart\/form-data; boundary=/);
    expect(other.payload).to.contain('name="body-plain"');
  });
});
