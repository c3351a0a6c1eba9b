import { expect } from 'chai';
import { createTransport } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { postsOf } from '../support/events.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const RECORDS = { 'any.in.example.org': { MX: [{ priority: 10, exchange: 'in.postern.test' }] } };

describe('a wildcard inbound domain', () => {
  let zone: Zone;
  let postern: TestDaemon;
  let hook: Receiver;
  let other: { api: TestDaemon['api']; ask: TestDaemon['ask'] };
  before(async () => {
    zone = await startZone(RECORDS);
    hook = await startReceiver();
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1/32',
      POSTERN_INBOUND__OWNERSHIP: 'first',
    });
    other = await addAccount(postern);
    const added = await postern.api('/inbound/add-domain', { domain: '*.IN.example.org' });
    expect(added).to.include({ domain: '*.IN.example.org', valid_mx: true, routed: true });
    await postern.api('/inbound/add-route', { domain: '*.in.example.org', pattern: '*', url: hook.url });
  });
  after(async () => {
    await postern?.stop();
    await Promise.all([zone?.stop(), hook?.stop()]);
  });

  /** What the server says to a recipient, and sends the mail if it takes it. */
  async function send(to: string): Promise<string> {
    const transport = createTransport({ ...postern.smtp, name: 'sender.test', ignoreTLS: true });
    try {
      return (await transport.sendMail({ from: 'zoe@sender.test', to, subject: to, text: 'x' })).response;
    } catch (error) {
      return error instanceof Error && 'response' in error ? String(error.response) : String(error);
    } finally {
      transport.close();
    }
  }
  const got = (to: string) =>
    until(`the post for ${to}`, () =>
      postsOf(hook.requests).find(({ body }) => body.toString().includes(encodeURIComponent(to))),
    );

  it('accepts mail to names of any depth below it, and not to the name itself or to one that only ends like it', async () => {
    for (const to of ['ann@a.in.example.org', 'ann@B.c.IN.example.org']) {
      expect(await send(to), to).to.match(/^250 /);
      await got(to);
    }
    for (const to of ['ann@in.example.org', 'ann@xin.example.org', 'ann@example.org'])
      expect(await send(to), to).to.match(/^550 5\.7\.1/);
  });

  it('yields to a domain below it, and gets its mail again when that is removed', async () => {
    await postern.api('/inbound/add-domain', { domain: 'own.in.example.org' });
    expect(await send('ann@own.in.example.org')).to.match(/^550 5\.1\.1/);
    await postern.api('/inbound/delete-domain', { domain: 'own.in.example.org' });
    expect(await send('ann@own.in.example.org')).to.match(/^250 /);
  });

  it('is shown by test-route and try-route, by an address or by the domain and a mailbox', async () => {
    for (const params of [{ address: 'x@deep.er.in.example.org' }, { domain: '*.in.example.org', mailbox: 'x' }]) {
      const { route, routes } = await postern.api('/inbound/test-route', params);
      expect(route.pattern).to.equal('*');
      expect(routes.map(({ result }: any) => result)).to.deep.equal(['hit']);
    }
    const [route] = await postern.api('/inbound/routes', { domain: '*.in.example.org' });
    expect((await postern.api('/inbound/try-route', { id: route.id })).email).to.equal('sample@any.in.example.org');
    const tried = await postern.api('/inbound/try-route', { id: route.id, address: 'bo@x.in.example.org' });
    expect(tried).to.include({ status: 200, email: 'bo@x.in.example.org' });
  });

  it('makes reply addresses below it, each valid for its own name only', async () => {
    const asked = { mailbox: 'help', data: 'ticket 1' };
    const refused = await postern.ask('/inbound/reply-address', { ...asked, domain: '*.in.example.org' });
    expect(refused.body.message).to.contain('any.in.example.org');
    const { email } = await postern.api('/inbound/reply-address', { ...asked, domain: 't1.in.example.org' });
    expect(await send(email)).to.match(/^250 /);
    const { body } = await got(email);
    expect(JSON.parse(new URLSearchParams(body.toString()).get('mandrill_events') ?? '')[0].msg.reply_data).to.equal(
      'ticket 1',
    );
    expect(await send(email.replace('@t1.', '@t2.'))).to.match(/^550 5\.1\.1/);
  });

  it('is protected from another account: a name below it needs a proof, even if the wildcard has none', async () => {
    const below = await other.api('/inbound/add-domain', { domain: 'grab.in.example.org' });
    expect(below).to.include({ routed: false, txt_name: '_postern-challenge.grab.in.example.org' });
    await other.api('/inbound/add-route', { domain: 'grab.in.example.org', pattern: '*', url: hook.url });
    await send('ann@grab.in.example.org');
    const { body } = await got('ann@grab.in.example.org');
    const events = JSON.parse(new URLSearchParams(body.toString()).get('mandrill_events') ?? '');
    const mine = await postern.api('/inbound/deliveries', { id: events[0]._id });
    expect(mine).to.have.length(1);
    const test = await other.ask('/inbound/test-route', { address: 'ann@grab.in.example.org' });
    expect(test.body.route ?? null).to.equal(null);
    expect((await other.ask('/inbound/test-route', { address: 'x@a.in.example.org' })).body.name).to.equal(
      'Unknown_InboundDomain',
    );
    zone.set({ ...RECORDS, '_postern-challenge.grab.in.example.org': { TXT: [below.txt_value] } });
    expect((await other.api('/inbound/check-domain', { domain: 'grab.in.example.org' })).routed).to.equal(true);
  });

  it('cannot include the domain of another account without a proof', async () => {
    await postern.api('/inbound/add-domain', { domain: 'whole.example.org' });
    expect(await other.api('/inbound/add-domain', { domain: '*.whole.example.org' })).to.include({ routed: false });
    expect(await postern.api('/inbound/add-domain', { domain: '*.whole.example.org' })).to.include({ routed: true });
  });

  it('is proven at its parent name', async () => {
    const added = await other.api('/inbound/add-domain', { domain: '*.sub.in.example.org' });
    expect(added).to.include({ routed: false, txt_name: '_postern-challenge.sub.in.example.org' });
  });

  it('is rejected if it would cover names of others or of this service', async () => {
    for (const domain of [
      '*.org',
      '*.co.uk',
      '*.gmail.com',
      '*.postern.test',
      '*.',
      '*',
      '*.*.example.org',
      'a.*.example.org',
    ]) {
      const { status, body } = await postern.ask('/inbound/add-domain', { domain });
      expect([status, body.name], domain).to.deep.equal([422, 'ValidationError']);
    }
  });
});
