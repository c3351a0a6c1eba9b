import { createRequire } from 'node:module';
import { expect } from 'chai';
import { type ApiWorld, KEY, NO_RULES, startApi } from '../../support/api.ts';
import { faultsOf } from '../../support/contract/shapes.ts';
import { createStage, type Stage, startStages } from '../../support/contract/stage.ts';
import { ENTRIES } from '../../support/contract/table.ts';
import { callMandrill as call, createMandrill, leadMandrillTo } from '../../support/mandrill-client.ts';

// The other official Node client, CommonJS without types as well.
const require = createRequire(import.meta.url);

const RAW = 'From: a@b.example\r\nTo: box@new.example.com\r\nSubject: Hi\r\n\r\nText';
const HOOK = 'https://app.example.com/hooks/new';

describe('mandrill-api', () => {
  let world: ApiWorld;
  let letGo = () => {};
  beforeEach(async () => {
    world = await startApi();
    letGo = leadMandrillTo(world.port);
  });
  afterEach(async () => {
    letGo();
    await world.stop();
  });

  const client = (key = KEY) => createMandrill(key);

  it('gets answers, and hands errors to its error callback', async () => {
    expect(await call(client().users, 'ping2')).to.deep.equal({ PING: 'PONG!' });
    const failure = (inbound: any, method: string, params: object) =>
      call(inbound, method, params).then(
        () => {
          throw new Error('no error came');
        },
        (error: unknown) => error,
      );
    expect(await failure(client().inbound, 'routes', { domain: 'none.example.com' })).to.deep.equal({
      status: 'error',
      code: 8,
      name: 'Unknown_InboundDomain',
      message: 'Unknown Inbound Domain: none.example.com',
    });
    expect(await failure(client('wrong').inbound, 'domains', {})).to.include({
      code: -1,
      name: 'Invalid_Key',
      message: 'Invalid API key',
    });
    expect(await failure(client().inbound, 'addDomain', {})).to.include({
      code: -1,
      name: 'ValidationError',
      message: 'You must specify a domain value',
    });
  });
});

describe('@mailchimp/mailchimp_transactional', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  function client(key = KEY) {
    const made = require('@mailchimp/mailchimp_transactional')(key);
    made.basePath = `${world.base}/api/1.3`;
    return made;
  }

  it('adds a domain and a route, injects a message, reads and deletes, with and without .json', async () => {
    const { users, inbound } = client();
    expect(await users.ping()).to.equal('PONG!');
    expect(await inbound.addDomain({ domain: 'new.example.com' })).to.include({ domain: 'new.example.com' });
    const route = await inbound.addRoute({
      domain: 'new.example.com',
      pattern: 'box',
      url: HOOK,
      outputFormat: 'json',
    });
    expect(route).to.deep.equal({
      id: '1.2',
      pattern: 'box',
      url: HOOK,
      batch_events: 1,
      format: 'mandrill',
      raw: true,
      attachments: 'auto',
      link_over: 0,
      facts: false,
      has_password: false,
      order: 'none',
      ...NO_RULES,
    });
    expect(await inbound.sendRaw({ raw_message: RAW })).to.deep.equal([
      { email: 'box@new.example.com', pattern: 'box', url: HOOK },
    ]);
    expect(await inbound.routes({ domain: 'new.example.com' })).to.deep.equal([route]);
    expect(await inbound.deleteRoute({ id: route.id })).to.deep.equal(route);
    expect(await inbound.deleteDomain({ domain: 'new.example.com' })).to.include({ domain: 'new.example.com' });
  });

  it('rejects with an axios error that carries status and envelope', async () => {
    const failed = await client().inbound.deleteRoute({ id: '7.23' });
    expect(failed.isAxiosError).to.equal(true);
    expect(failed.response.status).to.equal(404);
    expect(failed.response.data).to.deep.equal({
      status: 'error',
      code: 22,
      name: 'Unknown_InboundRoute',
      message: 'No route exists with the id 7.23',
    });
    expect((await client('wrong').users.ping()).response.status).to.equal(401);
  });
});

// What the clients offer of the documented interface, called from beginning to end as a program would.

/** A call by group and method, as the client names them; it says whether the answer is the documented record. */
type Run = (group: string, method: string, params?: object) => Promise<any>;

/** The operation of a method: `timeSeries` of `tags` is `/tags/time-series`. */
const pathOf = (group: string, method: string) =>
  `/${group}/${method.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
const entryOf = new Map(ENTRIES.map((entry) => [entry.path, entry]));

function checked(group: string, method: string, answer: unknown): any {
  const entry = entryOf.get(pathOf(group, method));
  expect(entry && faultsOf(entry.returns, answer), pathOf(group, method)).to.deep.equal([]);
  return answer;
}

async function useTemplates(run: Run, stage: Stage): Promise<void> {
  const made = await run('templates', 'add', { name: 'Example Template' });
  expect(made)
    .to.include({ slug: 'example-template', publish_name: 'Example Template', code: null })
    .and.to.deep.include({ labels: [] });
  expect(made.published_at, 'publish defaults to true').to.be.a('string');
  expect(await run('templates', 'info', { name: 'Example Template' })).to.deep.equal(made);
  const changed = await run('templates', 'update', {
    name: 'Example Template',
    code: '<p><div mc:edit="editable">old</div></p>',
    subject: 'Hi',
    labels: ['example-label'],
    publish: false,
  });
  expect(changed).to.include({ subject: 'Hi', publish_subject: null });
  expect(
    await run('templates', 'update', { name: 'Example Template', publish: false }),
    'null leaves as it is',
  ).to.deep.include({ subject: 'Hi', labels: ['example-label'] });
  expect(await run('templates', 'publish', { name: 'Example Template' })).to.include({ publish_subject: 'Hi' });
  expect(await run('templates', 'list', { label: 'example-label' })).to.have.length(1);
  expect(await run('templates', 'list', { label: 'other' })).to.deep.equal([]);
  const content = [{ name: 'editable', content: '<div>content to inject *|MERGE1|*</div>' }];
  const { html } = await run('templates', 'render', {
    template_name: 'Example Template',
    template_content: content,
    merge_vars: [{ name: 'merge1', content: 'merge1 content' }],
  });
  expect(html).to.contain('<div>content to inject merge1 content</div>');
  expect(
    (await run('templates', 'render', { template_name: 'Example Template', template_content: content })).html,
  ).to.contain('*|MERGE1|*');
  expect(await run('templates', 'timeSeries', { name: 'Example Template' })).to.deep.equal([]);
  await stage.sent({ template: 'example-template' });
  expect(await run('templates', 'timeSeries', { name: 'Example Template' })).to.have.length(1);
  expect(await run('templates', 'delete', { name: 'Example Template' })).to.include({ name: 'Example Template' });
}

async function useLists(run: Run): Promise<void> {
  await run('subaccounts', 'add', { id: 'cust-123' });
  expect(await run('rejects', 'add', { email: 'Ann@Example.com', comment: 'asked' })).to.include({ added: true });
  expect(await run('rejects', 'add', { email: 'bob@example.com', subaccount: 'cust-123' })).to.include({ added: true });
  const [entry] = await run('rejects', 'list', { email: 'ann@example.com' });
  expect(entry).to.include({
    reason: 'custom',
    detail: 'asked',
    expires_at: null,
    expired: false,
    subaccount: null,
    sender: null,
  });
  expect(await run('rejects', 'list', { subaccount: 'cust-123' })).to.have.length(1);
  expect(await run('rejects', 'delete', { email: 'bob@example.com', subaccount: 'cust-123' })).to.deep.equal({
    email: 'bob@example.com',
    deleted: true,
    subaccount: 'cust-123',
  });
  expect(await run('whitelists', 'add', { email: 'ann@example.com' })).to.include({ added: true });
  expect(await run('rejects', 'list'), 'whitelisting takes the entry away').to.deep.equal([]);
  expect(await run('rejects', 'add', { email: 'ann@example.com' })).to.include({ added: false });
  expect(await run('whitelists', 'list')).to.have.length(1);
  expect(await run('whitelists', 'list', { email: 'ann@' })).to.have.length(1);
  expect(await run('whitelists', 'delete', { email: 'ann@example.com' })).to.include({ deleted: true });
  expect(await run('whitelists', 'list')).to.deep.equal([]);
}

async function useSubaccounts(run: Run): Promise<void> {
  expect(
    await run('subaccounts', 'add', { id: 'cust-9', name: 'ABC Widgets', notes: 'Free plan', custom_quota: 42 }),
  ).to.include({ id: 'cust-9', custom_quota: 42, status: 'active' });
  expect(await run('subaccounts', 'info', { id: 'cust-9' })).to.include({
    notes: 'Free plan',
    sent_hourly: 0,
    hourly_quota: 42,
  });
  expect(await run('subaccounts', 'update', { id: 'cust-9', name: 'XYZ' })).to.include({
    name: 'XYZ',
    custom_quota: 42,
  });
  expect(await run('subaccounts', 'list', { q: 'cust-9' })).to.have.length(1);
  expect(await run('subaccounts', 'list', { q: 'XY' })).to.have.length(1);
  expect(await run('subaccounts', 'list', { q: 'nobody' })).to.deep.equal([]);
  expect(await run('subaccounts', 'pause', { id: 'cust-9' })).to.include({ status: 'paused' });
  expect(await run('subaccounts', 'resume', { id: 'cust-9' })).to.include({ status: 'active' });
  expect(await run('subaccounts', 'delete', { id: 'cust-9' })).to.include({ id: 'cust-9' });
}

async function useSending(run: Run, stage: Stage): Promise<void> {
  await stage.sent({ sender: 'news@example.com', tag: 'welcome' }, ['send', 'open', 'open']);
  expect((await run('senders', 'list')).map((one: { address: string }) => one.address)).to.include('news@example.com');
  expect(await run('senders', 'info', { address: 'news@example.com' }))
    .to.include({ sent: 1, opens: 2 })
    .and.to.have.nested.property('stats.today.unique_opens', 1);
  expect(await run('senders', 'timeSeries', { address: 'news@example.com' })).to.have.length(1);
  expect(await run('senders', 'addDomain', { domain: 'example.com' })).to.include({
    domain: 'example.com',
    valid_signing: false,
  });
  expect((await run('senders', 'checkDomain', { domain: 'example.com' })).spf).to.include({ valid: false });
  expect(await run('senders', 'domains')).to.have.length(1);
  expect(await run('senders', 'verifyDomain', { domain: 'example.com', mailbox: 'postmaster' })).to.deep.equal({
    status: 'sent',
    domain: 'example.com',
    email: 'postmaster@example.com',
  });
  expect((await run('tags', 'list'))[0]).to.include({ tag: 'welcome', sent: 1, unique_opens: 1 });
  expect(await run('tags', 'info', { tag: 'welcome' })).to.have.nested.property('stats.last_90_days.opens', 2);
  expect(await run('tags', 'timeSeries', { tag: 'welcome' })).to.have.length(1);
  expect(await run('tags', 'allTimeSeries')).to.have.length(1);
  expect(await run('tags', 'delete', { tag: 'welcome' })).to.include({ tag: 'welcome' });
  expect(await run('tags', 'list')).to.deep.equal([]);
}

async function useIps(run: Run, stage: Stage): Promise<void> {
  const [ip] = [await stage.ip(), await stage.ip()];
  expect(await run('ips', 'list')).to.have.length(2);
  expect(await run('ips', 'info', { ip })).to.include({ ip, pool: 'Main Pool' });
  expect(await run('ips', 'startWarmup', { ip })).to.have.nested.property('warmup.warming_up', true);
  expect(await run('ips', 'cancelWarmup', { ip })).to.deep.include({
    warmup: { warming_up: false, start_at: null, end_at: null },
  });
  expect(await run('ips', 'createPool', { pool: 'Test Pool' })).to.deep.include({ name: 'Test Pool', ips: [] });
  expect(await run('ips', 'setPool', { ip, pool: 'Test Pool' })).to.include({ pool: 'Test Pool' });
  expect((await run('ips', 'poolInfo', { pool: 'Test Pool' })).ips).to.have.length(1);
  expect((await run('ips', 'listPools')).map((pool: { name: string }) => pool.name)).to.have.members([
    'Main Pool',
    'Test Pool',
  ]);
  expect(await run('ips', 'setPool', { ip, pool: 'Main Pool' })).to.include({ pool: 'Main Pool' });
  expect(await run('ips', 'deletePool', { pool: 'Test Pool' })).to.deep.equal({ pool: 'Test Pool', deleted: true });
  expect(await run('ips', 'checkCustomDns', { ip, domain: 'none.example.com' }))
    .to.include({ valid: false })
    .and.to.have.property('error')
    .that.is.a('string');
  expect(await run('ips', 'checkCustomDns', { ip, domain: 'm.pointed.example.com' })).to.deep.equal({
    valid: true,
    error: null,
  });
  expect(await run('ips', 'setCustomDns', { ip, domain: 'm.pointed.example.com' })).to.have.nested.property(
    'custom_dns.enabled',
  );
  expect(await run('ips', 'provision')).to.have.keys('requested_at');
  expect(await run('ips', 'delete', { ip })).to.deep.equal({ ip, deleted: true });
}

async function useHooks(run: Run): Promise<void> {
  const hook = await run('webhooks', 'add', {
    url: HOOK,
    description: 'My hook',
    events: ['send', 'open', 'blacklist'],
  });
  expect(hook).to.deep.include({
    url: HOOK,
    description: 'My hook',
    events: ['send', 'open', 'blacklist'],
    last_sent_at: null,
    batches_sent: 0,
    events_sent: 0,
    last_error: null,
  });
  expect(await run('webhooks', 'info', { id: hook.id })).to.deep.equal(hook);
  expect(await run('webhooks', 'list')).to.deep.equal([hook]);
  expect(await run('webhooks', 'update', { id: hook.id, url: `${HOOK}/2`, events: ['click'] })).to.deep.include({
    id: hook.id,
    url: `${HOOK}/2`,
    events: ['click'],
    description: 'My hook',
  });
  expect(await run('webhooks', 'delete', { id: hook.id })).to.include({ id: hook.id });
  expect(await run('webhooks', 'list')).to.deep.equal([]);
}

async function useExports(run: Run): Promise<void> {
  const job = await run('exports', 'activity', {
    tags: ['welcome'],
    states: ['sent'],
    date_from: '2026-01-01 00:00:00',
  });
  expect(job).to.include({ type: 'activity', state: 'waiting', finished_at: null, result_url: null });
  expect(await run('exports', 'info', { id: job.id })).to.deep.equal(job);
  expect(await run('exports', 'activity')).to.include({ type: 'activity', state: 'waiting' });
  expect(await run('exports', 'rejects')).to.include({ type: 'reject', state: 'waiting' });
  expect(await run('exports', 'whitelist', { notify_email: 'ann@example.com' })).to.include({
    type: 'whitelist',
    state: 'waiting',
  });
  expect(await run('exports', 'list')).to.have.length(4);
}

async function useInbound(run: Run): Promise<void> {
  expect(await run('inbound', 'addDomain', { domain: 'in.example.com' })).to.include({
    domain: 'in.example.com',
    valid_mx: false,
  });
  expect(await run('inbound', 'checkDomain', { domain: 'in.example.com' })).to.include({ domain: 'in.example.com' });
  expect(await run('inbound', 'domains')).to.have.length(1);
  const route = await run('inbound', 'addRoute', { domain: 'in.example.com', pattern: 'box', url: HOOK });
  expect(await run('inbound', 'updateRoute', { id: route.id })).to.deep.equal(route);
  expect(await run('inbound', 'routes', { domain: 'in.example.com' })).to.deep.equal([route]);
  expect(
    await run('inbound', 'sendRaw', { raw_message: RAW.replace('new.example.com', 'in.example.com') }),
  ).to.deep.equal([{ email: 'box@in.example.com', pattern: 'box', url: HOOK }]);
  expect(await run('inbound', 'deleteRoute', { id: route.id })).to.deep.equal(route);
  expect(await run('inbound', 'deleteDomain', { domain: 'in.example.com' })).to.include({ domain: 'in.example.com' });
}

const PARTS = {
  templates: useTemplates,
  lists: useLists,
  subaccounts: useSubaccounts,
  sending: useSending,
  ips: useIps,
  webhooks: useHooks,
  exports: useExports,
  inbound: useInbound,
};

/**
 * Sending and what comes of it, which is beyond the documented interface: by the names and parameters that both clients
 * have.
 */
async function useMessages(run: Run, world: ApiWorld): Promise<void> {
  const message = {
    html: '<p>Hi *|NAME|*</p>',
    subject: 'Hello',
    from_email: 'news@example.com',
    to: [{ email: 'ann@example.net', name: 'Ann', type: 'to' }, { email: 'not an address' }],
    merge_vars: [{ rcpt: 'ann@example.net', vars: [{ name: 'name', content: 'Ann' }] }],
    tags: ['welcome'],
  };
  const [sent, invalid] = await run('messages', 'send', { message, async: false });
  expect(sent).to.include({ email: 'ann@example.net', status: 'queued', reject_reason: null });
  expect(invalid).to.include({ email: 'not an address', status: 'invalid' });
  await run('templates', 'add', {
    name: 'Welcome',
    code: '<p mc:edit="main">x</p>',
    subject: 'Welcome',
    from_email: 'news@example.com',
  });
  const [templated] = await run('messages', 'sendTemplate', {
    template_name: 'Welcome',
    template_content: [{ name: 'main', content: 'Hello' }],
    message: { to: [{ email: 'bob@example.net' }] },
  });
  expect(templated).to.include({ email: 'bob@example.net', status: 'queued' });
  expect(
    await run('messages', 'sendRaw', {
      raw_message: 'From: news@example.com\r\nTo: carl@example.net\r\nSubject: Raw\r\n\r\nText',
    }),
  ).to.have.length(1);
  await world.clock.advance(1000);
  expect(
    (await run('messages', 'search', { query: 'ann@example.net', limit: 10 })).map((one: { _id: string }) => one._id),
  ).to.deep.equal([sent._id]);
  expect(await run('messages', 'search')).to.have.length(3);
  expect(await run('messages', 'searchTimeSeries', { query: 'tag:welcome' })).to.have.length(1);
  expect(await run('messages', 'info', { id: sent._id })).to.deep.include({
    _id: sent._id,
    email: 'ann@example.net',
    tags: ['welcome'],
    state: 'queued',
    smtp_events: [],
  });
  expect(await run('messages', 'content', { id: sent._id })).to.include({ html: '<p>Hi Ann</p>', subject: 'Hello' });
  expect(await run('messages', 'parse', { raw_message: 'Subject: s\r\n\r\nText' })).to.include({
    subject: 's',
    text: 'Text',
  });
  const [later] = await run('messages', 'send', { message, send_at: '2027-01-01 00:00:00' });
  expect(later.status).to.equal('scheduled');
  expect(await run('messages', 'listScheduled')).to.have.length(1);
  expect(await run('messages', 'listScheduled', { to: 'nobody@example.net' })).to.deep.equal([]);
  expect(await run('messages', 'reschedule', { id: later._id, send_at: '2027-02-01 00:00:00' })).to.include({
    _id: later._id,
    send_at: '2027-02-01 00:00:00',
  });
  expect(await run('messages', 'cancelScheduled', { id: later._id })).to.include({ _id: later._id });
  expect(await run('messages', 'listScheduled')).to.deep.equal([]);
}

describe('sending with the clients', () => {
  let world: ApiWorld;
  let letGo = () => {};
  before(async () => {
    world = await startStages();
  });
  after(async () => {
    letGo();
    await world.stop();
  });

  it('works with mandrill-api, every method of the group', async () => {
    const { key } = await createStage(world);
    letGo = leadMandrillTo(world.port);
    const client = createMandrill(key);
    const called = new Set<string>();
    await useMessages(
      (group, method, params = {}) =>
        new Promise((resolve, reject) => {
          if (group === 'messages') called.add(method);
          client[group][method]({ ...params }, resolve, (error: object) =>
            reject(new Error(`${group}.${method}: ${JSON.stringify(error)}`)),
          );
        }),
      world,
    );
    const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(client.messages)).filter(
      (name) => name !== 'constructor',
    );
    expect([...called]).to.have.members(methods);
  });

  it('works with @mailchimp/mailchimp_transactional', async () => {
    const { key } = await createStage(world);
    const client = require('@mailchimp/mailchimp_transactional')(key);
    client.basePath = `${world.base}/api/1.3`;
    await useMessages(async (group, method, params = {}) => {
      const answer = await client[group][method](params);
      if (answer.isAxiosError) throw new Error(`${group}.${method}: ${JSON.stringify(answer.response?.data)}`);
      return answer;
    }, world);
  });
});

describe('mandrill-api, all documented methods', () => {
  let world: ApiWorld;
  let letGo = () => {};
  const called = new Set<string>();
  before(async () => {
    world = await startStages();
    letGo = leadMandrillTo(world.port);
  });
  after(async () => {
    letGo();
    await world.stop();
  });

  for (const [name, use] of Object.entries(PARTS))
    it(`works with ${name}`, async () => {
      const stage = await createStage(world);
      const client = createMandrill(stage.key);
      const run: Run = (group, method, params = {}) =>
        new Promise((resolve, reject) => {
          called.add(pathOf(group, method));
          const failed = (error: object) => reject(new Error(`${group}.${method}: ${JSON.stringify(error)}`));
          client[group][method](
            { ...params },
            (answer: unknown) => {
              try {
                resolve(checked(group, method, answer));
              } catch (error) {
                reject(error);
              }
            },
            failed,
          );
        });
      await stage.sent();
      await use(run, stage);
    });

  it('calls every method of the documented interface', () => {
    const client = createMandrill('key');
    const methods = Object.keys(client)
      .filter((group) => typeof client[group] === 'object' && client[group] !== null)
      .flatMap((group) =>
        Object.getOwnPropertyNames(Object.getPrototypeOf(client[group])).map((method) => pathOf(group, method)),
      );
    const documented = methods.filter((path) => entryOf.has(path));
    expect(documented).to.have.length(ENTRIES.length);
    expect([...called]).to.have.members(documented);
  });
});

describe('@mailchimp/mailchimp_transactional, its documented methods', () => {
  let world: ApiWorld;
  before(async () => {
    world = await startStages();
  });
  after(() => world?.stop());

  // It calls whitelists allowlists, so the lists are left to the other client.
  for (const name of ['templates', 'subaccounts', 'sending', 'ips', 'webhooks', 'exports', 'inbound'] as const)
    it(`works with ${name}`, async () => {
      const stage = await createStage(world);
      const client = require('@mailchimp/mailchimp_transactional')(stage.key);
      client.basePath = `${world.base}/api/1.3`;
      const run: Run = async (group, method, params = {}) => {
        const answer = await client[group][method](params);
        if (answer.isAxiosError) throw new Error(`${group}.${method}: ${JSON.stringify(answer.response?.data)}`);
        return checked(group, method, answer);
      };
      await stage.sent();
      await PARTS[name](run, stage);
    });
});
