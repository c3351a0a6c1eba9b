import { expect } from 'chai';
import { messageChangesOf } from '../../../src/events/apply.ts';
import { createUrlCounting } from '../../../src/events/counting.ts';
import { retestTrackingDomainsTask } from '../../../src/sending/domains/tracking-domains.ts';
import type { MessageEventRow, SentMessageRow } from '../../../src/store/rows/messages.ts';
import { ACCOUNT, type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { changingResolver } from '../../support/senders.ts';
import type { ZoneRecords } from '../../support/zone.ts';

const HOST = { 'mx.postern.test': {}, 'postern.test': { A: ['192.0.2.9'] } };
const DOMAIN = 'links.example.com';

describe('a tracking domain', () => {
  let world: ApiWorld;
  let zone: ZoneRecords;
  beforeEach(async () => {
    zone = { ...HOST };
    world = await startApi({ deps: { resolver: changingResolver(() => zone) } });
  });
  afterEach(() => world.stop());

  const record = async (path: string, params: object = { domain: DOMAIN }) => (await world.call(path, params)).body;
  const verify = () => world.store.senderDomains.change({ id: `${ACCOUNT} example.com` }, { verifiedAt: new Date(0) });

  it('is tested when it is added: by its CNAME, or by our addresses', async () => {
    expect((await record('/urls/add-tracking-domain')).cname).to.deep.include({
      valid: false,
      error: `The domain ${DOMAIN} does not exist.`,
    });
    zone = { ...HOST, [DOMAIN]: { CNAME: 'elsewhere.example.net' } };
    expect((await record('/urls/check-tracking-domain')).cname.error).to.equal(
      `The domain ${DOMAIN} is an alias of elsewhere.example.net; it must be an alias of postern.test.`,
    );
    zone = { ...HOST, [DOMAIN]: { A: ['192.0.2.10'] } };
    expect((await record('/urls/check-tracking-domain')).cname.error).to.equal(
      `The domain ${DOMAIN} has no CNAME record; it must be an alias of postern.test.`,
    );
    zone = { ...HOST, [DOMAIN]: { A: ['192.0.2.9'] } };
    expect((await record('/urls/check-tracking-domain')).cname).to.deep.include({ valid: true, error: null });
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test.' } };
    expect((await record('/urls/check-tracking-domain')).cname.valid).to.equal(true);
  });

  it('cannot be a name of the operator: not its hosts, nor those of the console and displayed mail', async () => {
    await world.stop();
    world = await startApi({
      env: {
        POSTERN_CONSOLE__URL: 'https://console.example.com',
        POSTERN_CONSOLE__MAIL_ORIGIN: 'https://view.example.net',
      },
    });
    for (const domain of ['console.example.com', 'View.example.net', 'mx.postern.test', 'app.postern.test']) {
      const { status, body } = await world.call('/urls/add-tracking-domain', { domain });
      expect([status, body.name], domain).to.deep.equal([422, 'ValidationError']);
      expect(body.message).to.contain('belongs to the operator');
    }
    const below = await world.call('/urls/add-tracking-domain', { domain: 'track.example.com' });
    expect(below.status).to.equal(200);
  });

  it('is usable once its record is older than every cache and the account owns it', async () => {
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test' } };
    expect(await record('/urls/add-tracking-domain')).to.deep.include({
      valid_tracking: false,
      cname: { valid: true, valid_after: null, error: null },
    });
    await verify();
    expect((await record('/urls/check-tracking-domain')).valid_tracking).to.equal(true);
    zone = { ...HOST };
    expect((await record('/urls/check-tracking-domain')).valid_tracking).to.equal(false);
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test' } };
    const again = await record('/urls/check-tracking-domain');
    expect(again.valid_tracking).to.equal(false);
    expect(again.cname.valid_after).to.be.a('string');
    await world.clock.advance(7 * 24 * 3_600_000);
    expect(
      (await record('/urls/tracking-domains', {})).find(({ domain }: any) => domain === DOMAIN).valid_tracking,
    ).to.equal(true);
  });

  it('keeps the last result while the DNS does not answer', async () => {
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test' } };
    await record('/urls/add-tracking-domain');
    zone = { ...HOST, [DOMAIN]: { fails: 'timeout' } };
    expect((await record('/urls/check-tracking-domain')).cname.valid).to.equal(true);
  });

  it('is tested again by a task when it is due', async () => {
    await record('/urls/add-tracking-domain');
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test' }, 'track.example.com': { CNAME: 'postern.test' } };
    const task = retestTrackingDomainsTask({
      store: world.store,
      trackingDomainTests: world.senders.trackingDomains,
      clock: world.clock,
    });
    await world.clock.advance(3_600_001);
    expect(await task.run()).to.deep.equal({ tested: 2, changed: 2 });
    expect(await task.run()).to.equal(undefined);
  });

  it('is removed while in use only with a confirmation', async () => {
    zone = { ...HOST, [DOMAIN]: { CNAME: 'postern.test' } };
    await verify();
    await record('/urls/add-tracking-domain');
    expect((await record('/urls/delete-tracking-domain')).name).to.equal('Invalid_Verified_TrackingDomain');
    expect((await record('/urls/delete-tracking-domain', { domain: DOMAIN, confirm: true })).domain).to.equal(DOMAIN);
    expect((await record('/urls/check-tracking-domain')).name).to.equal('Unknown_TrackingDomain');
  });
});

describe('/senders/delete-domain', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  it('removes a verified domain only with a confirmation, and its links are invalid afterwards', async () => {
    await world.call('/senders/verify-domain', { domain: 'example.com', mailbox: 'postmaster' });
    await world.store.senderDomains.change({ id: `${ACCOUNT} example.com` }, { verifiedAt: new Date(0) });
    expect((await world.call('/senders/delete-domain', { domain: 'example.com' })).body).to.include({
      code: 28,
      name: 'Invalid_Verified_Domain',
      message: 'Cannot delete verified domain "example.com" via API without confirm',
    });
    expect((await world.call('/senders/delete-domain', { domain: 'Example.COM', confirm: true })).body.domain).to.equal(
      'example.com',
    );
    expect((await world.call('/senders/domains')).body).to.deep.equal([]);
    expect((await world.call('/senders/delete-domain', { domain: 'example.com' })).status).to.equal(404);
  });
});

describe('link statistics', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  it('count every event once, even if applied again or interrupted anywhere', async () => {
    const at = new Date('2026-01-05T10:00:00Z');
    const url = 'https://shop.example.com/?a=1';
    const event = (id: string, kind: 'send' | 'click', more: Partial<MessageEventRow> = {}): MessageEventRow => ({
      id,
      account: ACCOUNT,
      message: 'm',
      kind,
      at,
      appliedAt: null,
      detail: kind === 'click' ? { url } : {},
      unsent: null,
      unsentSince: at,
      ...more,
    });
    let message: SentMessageRow = {
      id: 'm',
      account: ACCOUNT,
      createdAt: at,
      sender: 'a@example.com',
      email: 'b@example.com',
      subject: '',
      tags: [],
      template: null,
      subaccount: null,
      metadata: {},
      apiKey: null,
      state: 'queued',
      opens: 0,
      clicks: 0,
      openDetail: [],
      clickDetail: [],
      diag: null,
      bounceDescription: null,
      version: 0,
    };
    const events = [
      event('e1', 'send', { links: [url, 'https://other.example.com/'] }),
      event('e2', 'click'),
      event('e3', 'click'),
      event('e4', 'click', { detail: { url: `https://x.example/${'y'.repeat(2001)}` } }),
    ];
    for (const one of events) await world.store.messageEvents.insert(one);
    const count = createUrlCounting({ store: world.store });
    for (const one of events) {
      message = { ...message, ...messageChangesOf(one, message) };
      for (let times = 0; times < 3; times++) await count(one, message);
    }
    const { body } = await world.call('/urls/search', { q: 'shop.example.com' });
    expect(body).to.deep.equal([{ url, sent: 1, clicks: 2, unique_clicks: 1 }]);
    expect((await world.call('/urls/time-series', { url })).body).to.deep.equal([
      { time: '2026-01-05 10:00:00', sent: 1, clicks: 2, unique_clicks: 1 },
    ]);
    expect((await world.call('/urls/list')).body.map(({ url }: any) => url)).to.deep.equal([
      'https://www.example.com/offers',
      url,
      'https://other.example.com/',
    ]);
  });
});

describe('metadata fields', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  it('have unique names per account', async () => {
    expect((await world.call('/metadata/add', { name: 'group_id' })).body).to.include({
      name: 'ValidationError',
      message: 'Validation error: {"name":"A metadata field with this name already exists"}',
    });
    expect((await world.call('/metadata/add', { name: 'a\nb' })).status).to.equal(422);
    const two = await Promise.all(
      [1, 2].map(() => world.call('/metadata/add', { name: 'order', view_template: '{{value}}' })),
    );
    expect(two.map(({ status }) => status).sort()).to.deep.equal([200, 422]);
    expect((await world.call('/metadata/list')).body.map(({ name }: any) => name)).to.deep.equal(['group_id', 'order']);
    expect((await world.call('/metadata/list', { key: KEY })).body[1]).to.deep.equal({
      name: 'order',
      state: 'active',
      view_template: '{{value}}',
    });
  });

  it('keep their template when an update names none', async () => {
    expect(
      (await world.call('/metadata/update', { name: 'group_id', view_template: null })).body.view_template,
    ).to.match(/^<a href/);
  });
});
