import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { message, sendMail } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone, type ZoneNode } from '../support/zone.ts';

const DOMAIN = 'in.example.com';
const NO_RELAY = /^550 5\.7\.1/;

describe('the owner of an inbound domain, from the DNS to the webhook', () => {
  let zone: Zone;
  let hooks: { first: Receiver; second: Receiver };
  let postern: TestDaemon;
  let account: string;
  let second: Awaited<ReturnType<typeof addAccount>>;

  beforeEach(async () => {
    zone = await startZone({});
    hooks = { first: await startReceiver(), second: await startReceiver() };
  });
  afterEach(async () => {
    await postern.stop();
    await Promise.all([zone.stop(), hooks.first.stop(), hooks.second.stop()]);
  });

  async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    postern = await startDaemon({ POSTERN_DNS__SERVERS: zone.server, POSTERN_DNS__TIMEOUT_MS: '2000', ...env });
  }

  async function addSecond(): Promise<void> {
    second = await addAccount(postern);
    account = second.id;
  }

  const txt = (...values: string[]): Record<string, ZoneNode> => ({
    [`_postern-challenge.${DOMAIN}`]: { TXT: values },
  });
  const send = () => sendMail(postern.smtp, { from: 'ada@example.org', to: `someone@${DOMAIN}` }, message('hello'));
  const got = (hook: Receiver) => until('the post', () => postsOf(hook.requests)[0]);

  const shown = async ({ api }: Pick<TestDaemon, 'api'>) =>
    (await api('/inbound/domains')).map((row: any) => [row.domain, row.routed, row.verified_at]);

  it('is the first to add it, while there is one account', async () => {
    await start();
    const record = await postern.api('/inbound/add-domain', { domain: DOMAIN });
    expect(record).to.include({ routed: true, verified_at: null });
    await postern.api('/inbound/add-route', { domain: DOMAIN, pattern: '*', url: hooks.first.url });
    expect(await send()).to.match(/^250 /);
    expect(eventsOf(await got(hooks.first))[0]).to.have.nested.property('msg.email', `someone@${DOMAIN}`);
  });

  it('is unknown with two accounts and no TXT record, then the account whose record is published', async () => {
    await start();
    await addSecond();
    const claim = await postern.api('/inbound/add-domain', { domain: DOMAIN });
    await second.api('/inbound/add-domain', { domain: 'IN.Example.com.' });
    await second.api('/inbound/add-route', { domain: DOMAIN, pattern: '*', url: hooks.second.url });
    await postern.api('/inbound/add-route', { domain: DOMAIN, pattern: '*', url: hooks.first.url });
    expect(claim).to.include({ routed: false, verified_at: null, txt_name: `_postern-challenge.${DOMAIN}` });
    expect(await send()).to.match(NO_RELAY);

    const value = `postern-domain=${createHash('sha256').update(`${account} ${DOMAIN}`).digest('hex').slice(0, 32)}`;
    zone.set(txt('v=spf1 -all', value));
    // The record of the second does nothing for the first.
    expect(await postern.api('/inbound/check-domain', { domain: DOMAIN })).to.include({ routed: false });
    expect(await send()).to.match(NO_RELAY);
    const proven = await second.api('/inbound/check-domain', { domain: DOMAIN });
    expect(proven).to.include({ routed: true, txt_value: value });
    expect(proven.verified_at).to.match(/^\d{4}-/);
    expect(await send()).to.match(/^250 /);
    await got(hooks.second);
    expect(postsOf(hooks.first.requests)).to.deep.equal([]);
  });

  it('changes by a proof: the domain leaves an unproven account, whose routes return with its record', async () => {
    await start();
    const { txt_value: ours } = await postern.api('/inbound/add-domain', { domain: DOMAIN });
    const route = await postern.api('/inbound/add-route', { domain: DOMAIN, pattern: '*', url: hooks.first.url });
    await addSecond();
    expect(await send(), 'what was added before keeps its mail').to.match(/^250 /);
    await got(hooks.first);

    const { txt_value: theirs } = await second.api('/inbound/add-domain', { domain: DOMAIN });
    zone.set(txt(theirs));
    expect(await second.api('/inbound/check-domain', { domain: DOMAIN })).to.include({ routed: true });
    expect(postern.log.of('domain.taken')).to.have.length(1);
    expect(await send(), 'the winner has no route yet').to.match(/^550 5\.1\.1/);
    expect(await shown(postern)).to.deep.equal([[DOMAIN, false, null]]);
    expect(await postern.api('/inbound/routes', { domain: DOMAIN })).to.deep.equal([route]);

    // Who publishes both records has both accounts: the one that has the domain keeps it.
    zone.set(txt(theirs, ours));
    expect(await postern.api('/inbound/check-domain', { domain: DOMAIN })).to.include({ routed: false });
    zone.set(txt(ours));
    expect(await postern.api('/inbound/check-domain', { domain: DOMAIN })).to.include({ routed: true });
    expect(await send()).to.match(/^250 /);
    await until('the second post', () => postsOf(hooks.first.requests).length === 2);
    expect(await shown(second)).to.deep.equal([[DOMAIN, false, null]]);
  });

  it('stays while the DNS does not answer', async () => {
    await start({ POSTERN_DNS__TIMEOUT_MS: '200' });
    const { txt_value: ours } = await postern.api('/inbound/add-domain', { domain: DOMAIN });
    await addSecond();
    zone.set({ [`_postern-challenge.${DOMAIN}`]: { TXT: [ours], fails: 'servfail' } });
    expect(await second.api('/inbound/add-domain', { domain: DOMAIN })).to.include({ routed: false });
    expect(await second.api('/inbound/check-domain', { domain: DOMAIN })).to.include({ routed: false });
    expect(await postern.api('/inbound/check-domain', { domain: DOMAIN })).to.include({
      routed: true,
      verified_at: null,
    });
  });

  it('needs a record from the first account on if the operator requires it', async () => {
    await start({ POSTERN_INBOUND__OWNERSHIP: 'txt' });
    const { txt_value: value } = await postern.api('/inbound/add-domain', { domain: DOMAIN });
    await postern.api('/inbound/add-route', { domain: DOMAIN, pattern: '*', url: hooks.first.url });
    expect(await send()).to.match(NO_RELAY);
    zone.set(txt(value));
    await postern.api('/inbound/check-domain', { domain: DOMAIN });
    expect(await send()).to.match(/^250 /);
    await postern.api('/inbound/delete-domain', { domain: DOMAIN });
    expect(await send()).to.match(NO_RELAY);
    expect(await postern.api('/inbound/domains')).to.deep.equal([]);
    expect(
      await postern.api('/inbound/add-domain', { domain: DOMAIN }),
      'proven at once by the record that is there',
    ).to.include({ routed: true });
  });

  it('cannot be a second account without a proof; the error explains why', async () => {
    await start({ POSTERN_INBOUND__OWNERSHIP: 'first' });
    await postern.api('/inbound/add-domain', { domain: DOMAIN });
    await addSecond();
    const { status, body } = await second.ask('/inbound/add-domain', { domain: DOMAIN });
    expect({ status, message: body.message }).to.deep.equal({
      status: 422,
      message: 'Validation error: {"domain":"This domain is already in use"}',
    });
  });

  it('keeps an earlier domain with the name of the operator, with a warning at the start', async () => {
    await start({ POSTERN_HOSTNAME: 'mx.other.test' });
    await postern.api('/inbound/add-domain', { domain: 'mx.example.com' });
    await postern.stop();
    postern = await startDaemon(
      { POSTERN_DNS__SERVERS: zone.server, POSTERN_HOSTNAME: 'mx.example.com' },
      { dir: postern.dir },
    );
    expect(postern.log.of('domain.reserved')).to.have.length(1);
    expect(postern.log.of('domain.reserved')[0]?.fields).to.include({ domain: 'mx.example.com', reserved: 'ours' });
    expect(await postern.api('/inbound/domains')).to.have.length(1);
  });
});
