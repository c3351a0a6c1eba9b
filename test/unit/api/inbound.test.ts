import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, KEY, NO_RULES, OTHER_KEY, startApi } from '../../support/api.ts';
import { put } from '../../support/spool.ts';

const NOW = '2026-01-05 12:00:00';

/** What the DNS of these tests says. */
const mxError = (name: string) => `The MX records of ${name} point to mail.example.net, not to mx.postern.test`;

/** What every record tells: how the account of the examples proves the domain. */
const proof = (domain: string) => ({
  txt_name: `_postern-challenge.${domain}`,
  txt_value: `postern-domain=${createHash('sha256').update(`${ACCOUNT} ${domain}`).digest('hex').slice(0, 32)}`,
});
const record = (domain: string, created_at: string, valid_mx = false, name = domain) => ({
  domain,
  created_at,
  valid_mx,
  routed: true,
  verified_at: null,
  ...proof(name),
  mx_hosts: ['mx.postern.test'],
  // The one that the examples begin with was never looked up.
  mx_error: valid_mx || created_at !== NOW ? null : mxError(name),
  tested_at: created_at === NOW ? NOW : null,
});
const DOMAIN = record('inbound.example.com', '2026-01-05 11:00:00');
const CHECKED = { ...DOMAIN, valid_mx: true, tested_at: NOW };
const ROUTE = {
  id: '1.1',
  pattern: 'mailbox-*',
  url: 'https://app.example.com/hooks/mail',
  batch_events: 1,
  format: 'mandrill',
  raw: true,
  attachments: 'auto',
  link_over: 0,
  facts: false,
  has_password: false,
  order: 'none',
  ...NO_RULES,
};

const fault = (code: number, name: string, message: string) => ({ status: 'error', code, name, message });
const invalid = (faults: object) => fault(-2, 'ValidationError', `Validation error: ${JSON.stringify(faults)}`);
const unknownDomain = (domain: string) => fault(8, 'Unknown_InboundDomain', `Unknown Inbound Domain: ${domain}`);
const unknownRoute = (id: string) => fault(22, 'Unknown_InboundRoute', `No route exists with the id ${id}`);

describe('the Inbound group', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  async function answers(path: string, params: object, status: number, body: unknown) {
    const answer = await world.call(`/inbound/${path}`, params);
    expect({ status: answer.status, body: answer.body }, `${path} ${JSON.stringify(params)}`).to.deep.equal({
      status,
      body,
    });
  }

  const refusedRoute = (pattern: string, url: string, faults: object) =>
    ['add-route', { domain: 'inbound.example.com', pattern, url }, 422, invalid(faults)] as const;

  // From the interface description, line by line: path, parameters, status, answer.
  const table: readonly (readonly [string, object, number, unknown])[] = [
    ['domains', {}, 200, [DOMAIN]],
    ['add-domain', { domain: 'new.example.com' }, 200, record('new.example.com', NOW)],
    ['add-domain', { domain: '<b>new.example.com</b>' }, 200, record('new.example.com', NOW)],
    ['add-domain', { domain: '  New.Example.COM ' }, 200, record('New.Example.COM', NOW, false, 'new.example.com')],
    ['add-domain', { domain: 'bücher.example' }, 200, record('bücher.example', NOW, false, 'xn--bcher-kva.example')],
    ['add-domain', { domain: 'INBOUND.example.com' }, 200, DOMAIN],
    ['add-domain', { domain: '' }, 422, invalid({ domain: 'Please enter a value' })],
    ['add-domain', { domain: '<script>' }, 422, invalid({ domain: 'Please enter a value' })],
    ['add-domain', { domain: 'localhost' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['add-domain', { domain: '192.0.2.1' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['add-domain', { domain: 'a..b.example' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['add-domain', { domain: 'a b.example' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['add-domain', { domain: 'exam\r\nple.com' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['add-domain', { domain: 'x'.repeat(300) + '.example' }, 422, invalid({ domain: 'Not a valid domain name' })],
    ['check-domain', { domain: 'inbound.example.com' }, 200, CHECKED],
    ['check-domain', { domain: 'Inbound.Example.Com.' }, 200, CHECKED],
    ['check-domain', { domain: 'nowhere.example.com' }, 404, unknownDomain('nowhere.example.com')],
    ['delete-domain', { domain: 'inbound.example.com' }, 200, DOMAIN],
    ['delete-domain', { domain: 'not a domain' }, 404, unknownDomain('not a domain')],
    ['routes', { domain: 'inbound.example.com' }, 200, [ROUTE]],
    ['routes', { domain: 'nowhere.example.com' }, 404, unknownDomain('nowhere.example.com')],
    [
      'add-route',
      { domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/x?y=1' },
      200,
      {
        id: '1.2',
        pattern: '*',
        url: 'http://a.example/x?y=1',
        batch_events: 1,
        format: 'mandrill',
        raw: true,
        attachments: 'auto',
        link_over: 0,
        facts: false,
        has_password: false,
        order: 'none',
        ...NO_RULES,
      },
    ],
    [
      'add-route',
      { domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/', batch_events: 100 },
      200,
      {
        id: '1.2',
        pattern: '*',
        url: 'http://a.example/',
        batch_events: 100,
        format: 'mandrill',
        raw: true,
        attachments: 'auto',
        link_over: 0,
        facts: false,
        has_password: false,
        order: 'none',
        ...NO_RULES,
      },
    ],
    [
      'add-route',
      { domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/', batch_events: 101 },
      422,
      invalid({ batch_events: 'Please enter at most 100' }),
    ],
    [
      'add-route',
      { domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/', batch_events: 'many' },
      422,
      invalid({ batch_events: 'Please enter a number' }),
    ],
    refusedRoute('a@b', 'http://a.example/', {
      pattern: 'Only the part before the @ is matched: please enter a pattern without @',
    }),
    refusedRoute('a\nb', 'http://a.example/', {
      pattern: 'Please enter a pattern without spaces and control characters',
    }),
    refusedRoute('x'.repeat(256), 'http://a.example/', { pattern: 'Please enter at most 255 characters' }),
    refusedRoute('', '', { pattern: 'Please enter a value', url: 'Please enter a value' }),
    refusedRoute('*', 'ftp://a.example/', { url: 'Not a valid http or https URL' }),
    refusedRoute('*', 'javascript:alert(1)', { url: 'Not a valid http or https URL' }),
    refusedRoute('*', 'http://a.example/#x', { url: 'Please enter a URL without a fragment (#)' }),
    refusedRoute('*', 'https://gone.example/', { url: "We can't verify that the URL exists. Cause: nothing is there" }),
    [
      'add-route',
      { domain: 'nowhere.example.com', pattern: '*', url: 'http://a.example/' },
      404,
      unknownDomain('nowhere.example.com'),
    ],
    ['update-route', { id: '1.1', pattern: null, url: null, batch_events: null }, 200, ROUTE],
    ['update-route', { id: '1.1', batch_events: 20 }, 200, { ...ROUTE, batch_events: 20 }],
    ['update-route', { id: '1.1', batch_events: 0 }, 422, invalid({ batch_events: 'Please enter at least 1' })],
    ['update-route', { id: '1.1', batch_events: 2.5 }, 422, invalid({ batch_events: 'Please enter a whole number' })],
    ['update-route', { id: '1.1', pattern: 'sales' }, 200, { ...ROUTE, pattern: 'sales' }],
    ['update-route', { id: '1.1', url: 'https://b.example/' }, 200, { ...ROUTE, url: 'https://b.example/' }],
    [
      'update-route',
      { id: '1.1', url: 'https://gone.example/' },
      422,
      invalid({ url: "We can't verify that the URL exists. Cause: nothing is there" }),
    ],
    ['update-route', { id: '7.23', pattern: 'x' }, 404, unknownRoute('7.23')],
    ['delete-route', { id: '1.1' }, 200, ROUTE],
    ['delete-route', { id: 'x' }, 404, unknownRoute('x')],
  ];
  for (const [path, params, status, body] of table) {
    it(`${path} ${JSON.stringify(params).slice(0, 90)} answers ${status}`, async () => {
      world.missingUrls.add('https://gone.example/');
      await answers(path, params, status, body);
    });
  }

  const OURS = 'This name belongs to the operator of this service';
  const SUFFIX = 'This is a public suffix: others register their domains under it';
  const FREE = 'This domain belongs to a provider of free mail';
  const reserved: readonly (readonly [string, string])[] = [
    ['mx.postern.test', OURS],
    ['MX.Postern.TEST.', OURS],
    ['bounces.mx.postern.test', OURS],
    ['spf.mx.postern.test', OURS],
    ['a.b.mx.postern.test', OURS],
    ['mx２.postern.test', OURS],
    ['spf.mx2.postern.test', OURS],
    ['zurück.postern.test', OURS],
    ['xn--zurck-mva.POSTERN.test', OURS],
    ['app.postern.test', OURS],
    ['include.example.org', OURS],
    ['console.example.org', OURS],
    ['Mail-View.example.net', OURS],
    ['<b>mx.postern.test</b>', OURS],
    ['co.uk', SUFFIX],
    ['CO.UK.', SUFFIX],
    ['co。uk', SUFFIX],
    ['公司.cn', SUFFIX],
    ['xn--55qx5d.cn', SUFFIX],
    ['github.io', SUFFIX],
    ['any.ck', SUFFIX],
    ['gmail.com', FREE],
    ['GMail.com.', FREE],
    ['mx.gmail.com', FREE],
    ['hotmail.co.uk', FREE],
  ];
  it('rejects a domain that is ours, a public suffix, or that of a provider of free mail', async () => {
    await world.stop();
    world = await startApi({
      env: {
        POSTERN_INBOUND__MX_HOSTS: 'mx2.postern.test',
        POSTERN_OUTBOUND__RETURN_DOMAIN: 'zurück.postern.test',
        POSTERN_CONSOLE__URL: 'https://console.example.org',
        POSTERN_CONSOLE__MAIL_ORIGIN: 'https://mail-view.example.net:8443',
        POSTERN_SENDERS__SPF_INCLUDE: 'include.example.org',
      },
    });
    for (const [domain, why] of reserved) await answers('add-domain', { domain }, 422, invalid({ domain: why }));
    expect(await world.store.inboundDomains.many({})).to.have.length(1);
  });

  it('accepts a domain like those if no other account has it', async () => {
    await world.stop();
    world = await startApi({ env: { POSTERN_SENDERS__SPF_INCLUDE: 'include.example.org' } });
    for (const domain of [
      'postern.test',
      'xmx.postern.test',
      'below.app.postern.test',
      'below.include.example.org',
      'example.co.uk',
      'me.github.io',
      'notgmail.com',
      'www.ck',
    ])
      expect((await world.call('/inbound/add-domain', { domain })).status, domain).to.equal(200);
  });

  it('checks the MX of a domain when it is added', async () => {
    await world.stop();
    world = await startApi({ zone: { 'new.example.com': { MX: [{ exchange: 'mx.postern.test', priority: 5 }] } } });
    await answers('add-domain', { domain: 'new.example.com' }, 200, record('new.example.com', NOW, true));
    await answers('domains', {}, 200, [DOMAIN, record('new.example.com', NOW, true)]);
  });

  it('applies changes at once to routing: a new domain, and a new, changed or deleted route', async () => {
    const lookup = (mailbox: string, domain = 'new.example.com') => world.routing.lookup(mailbox, domain);
    expect(lookup('a').kind).to.equal('not-ours');
    await world.call('/inbound/add-domain', { domain: 'new.example.com' });
    expect(lookup('a').kind).to.equal('no-route');
    const { body } = await world.call('/inbound/add-route', {
      domain: 'new.example.com',
      pattern: 'a',
      url: 'http://a.example/1',
    });
    expect(lookup('a'))
      .to.deep.include({ kind: 'matched' })
      .and.to.have.nested.property('match.url', 'http://a.example/1');
    await world.call('/inbound/update-route', { id: body.id, pattern: 'b', url: 'http://a.example/2' });
    expect(lookup('a').kind).to.equal('no-route');
    expect(lookup('b')).to.have.nested.property('match.url', 'http://a.example/2');
    await world.call('/inbound/delete-route', { id: body.id });
    expect(lookup('b').kind).to.equal('no-route');
    await world.call('/inbound/delete-domain', { domain: 'new.example.com' });
    expect(lookup('b').kind).to.equal('not-ours');
  });

  it('notifies other hosts of every change by the revision', async () => {
    const revision = async () => (await world.store.revisions.one({ id: 'routing' }))?.count ?? 0;
    const before = await revision();
    await world.call('/inbound/add-domain', { domain: 'new.example.com' });
    const { body } = await world.call('/inbound/add-route', {
      domain: 'new.example.com',
      pattern: 'a',
      url: 'http://a.example/1',
    });
    await world.call('/inbound/update-route', { id: body.id, pattern: 'b' });
    await world.call('/inbound/delete-route', { id: body.id });
    await world.call('/inbound/delete-domain', { domain: 'new.example.com' });
    expect(await revision()).to.equal(before + 5);
  });

  it('sends waiting mail to the new URL of a route, but not after a change of the pattern only', async () => {
    const url = 'https://app.example.com/hooks/mail';
    for (const routeId of ['1.1', '1.9']) await put(world.spool, world.clock, { account: ACCOUNT, routeId, url });
    const urls = async () => (await world.spool.list({}, 10)).map((one) => [one.routeId, one.url]);
    await world.call('/inbound/update-route', { id: '1.1', pattern: 'b' });
    expect(await urls()).to.have.deep.members([
      ['1.1', url],
      ['1.9', url],
    ]);
    await world.call('/inbound/update-route', { id: '1.1', url: 'http://b.example/' });
    expect(await urls()).to.have.deep.members([
      ['1.1', 'http://b.example/'],
      ['1.9', url],
    ]);
  });

  it('deletes the routes of a domain with it', async () => {
    await world.call('/inbound/add-route', { domain: 'inbound.example.com', pattern: 'a', url: 'http://a.example/1' });
    await world.call('/inbound/delete-domain', { domain: 'inbound.example.com' });
    await world.call('/inbound/add-domain', { domain: 'inbound.example.com' });
    await answers('routes', { domain: 'inbound.example.com' }, 200, []);
    expect(await world.store.inboundRoutes.many({})).to.deep.equal([]);
  });

  it('never reuses a route id', async () => {
    const add = async (pattern: string) =>
      (await world.call('/inbound/add-route', { domain: 'inbound.example.com', pattern, url: 'http://a.example/1' }))
        .body.id;
    const first = await add('a');
    await world.call('/inbound/delete-route', { id: first });
    expect([first, await add('a'), await add('b')]).to.deep.equal(['1.2', '1.3', '1.4']);
  });

  it('allows one route per pattern: a second one would never get mail', async () => {
    const add = (pattern: string) =>
      world.call('/inbound/add-route', { domain: 'inbound.example.com', pattern, url: 'http://a.example/1' });
    const { id } = (await add('Support-*')).body;
    const { id: other } = (await add('sales')).body;
    const twice = await add('support-*');
    expect([twice.status, twice.body.name]).to.deep.equal([422, 'ValidationError']);
    expect(twice.body.message).to.contain(`Route ${id} already has this pattern`);
    const changed = await world.call('/inbound/update-route', { id: other, pattern: 'SUPPORT-*' });
    expect(changed.body.message).to.contain(`Route ${id} already has this pattern`);
    for (const pattern of ['SALES', 'sales'])
      expect((await world.call('/inbound/update-route', { id: other, pattern })).status, pattern).to.equal(200);
  });

  it('gives a domain to one account only, even for concurrent requests in different case', async () => {
    const both = await Promise.all(
      [KEY, OTHER_KEY].map((key, i) =>
        world.call('/inbound/add-domain', { key, domain: i ? 'XN--BCHER-KVA.example' : 'bücher.example' }),
      ),
    );
    expect(both.map((one) => one.status).sort()).to.deep.equal([200, 422]);
    expect(both.find((one) => one.status === 422)?.body).to.deep.equal(
      invalid({ domain: 'This domain is already in use' }),
    );
  });

  it('keeps the last MX result while the DNS does not answer', async () => {
    await world.stop();
    world = await startApi({ zone: { 'inbound.example.com': { fails: 'timeout' } } });
    await answers('check-domain', { domain: 'inbound.example.com' }, 200, DOMAIN);
    await world.store.inboundDomains.change({ id: 'inbound.example.com' }, { validMx: true });
    await answers('check-domain', { domain: 'inbound.example.com' }, 200, { ...DOMAIN, valid_mx: true });
  });

  it('accepts an MX that names another of our hosts, and rejects others', async () => {
    await world.stop();
    world = await startApi({
      settings: { mxHosts: ['mx2.postern.test'] },
      zone: {
        'inbound.example.com': { MX: [{ exchange: 'MX2.postern.test', priority: 5 }] },
        'elsewhere.example.com': { MX: [{ exchange: 'mx.example.net', priority: 1 }] },
      },
    });
    const hosts = { mx_hosts: ['mx.postern.test', 'mx2.postern.test'] };
    await answers('check-domain', { domain: 'inbound.example.com' }, 200, { ...CHECKED, ...hosts });
    await world.call('/inbound/add-domain', { domain: 'elsewhere.example.com' });
    await answers('check-domain', { domain: 'elsewhere.example.com' }, 200, {
      ...record('elsewhere.example.com', NOW),
      ...hosts,
      mx_error:
        'The MX records of elsewhere.example.com point to mx.example.net, not to mx.postern.test or mx2.postern.test',
    });
  });
});
