import { expect } from 'chai';
import { type HostWorld, startHost } from '../../support/host-world.ts';
import { until } from '../../support/until.ts';

describe('host changes by operators', () => {
  let world: HostWorld;
  beforeEach(async () => {
    world = await startHost();
    await world.mainWaits(3);
    await world.secondWaits(2);
  });
  afterEach(() => world.stop());

  const statesOf = async (api: typeof world.api) =>
    (await api('/inbound/deliveries', { limit: 100 })).map(({ state }: { state: string }) => state).sort();
  const posts = (hook: 'main' | 'second') =>
    world.hooks[hook].requests.filter(({ method }) => method === 'POST').length;
  /** A store with one host. */
  const onHost = (count: number) => [{ name: 'in.postern.test', count, job: null, error: null }];
  const actions = () =>
    until('it is noted', async () => {
      const { actions } = await world.host('actions');
      return (
        actions.length > 0 && actions.map((one: any) => [one.by, one.account?.name, one.what, one.count, one.detail])
      );
    });

  it('drops the results of a query, after showing the count', async () => {
    const query = `account:${world.main} state:waiting`;
    expect(await world.host('drop', { query, dry_run: true })).to.deep.equal({
      ...{ matched: 3, by_state: [{ state: 'waiting', count: 3 }], changed: 0, job: null, hosts: onHost(3) },
    });
    expect(await statesOf(world.api)).to.deep.equal(['waiting', 'waiting', 'waiting']);
    expect(await world.host('drop', { query, at_most: 3 })).to.deep.equal({
      ...{ matched: 3, by_state: [{ state: 'waiting', count: 3 }], changed: 3, job: null, hosts: onHost(3) },
    });
    expect(await statesOf(world.api)).to.deep.equal(['dropped', 'dropped', 'dropped']);
    expect(await statesOf(world.secondApi)).to.deep.equal(['waiting', 'waiting']);
    expect(await actions()).to.deep.equal([['operator', 'main', 'dropped', 3, query]]);
    expect((await world.host('queue')).waiting).to.equal(2);
  });

  it('drops nothing if more match than confirmed', async () => {
    const { status, body } = await world.ask('drop', { query: '*', at_most: 4 });
    expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
    expect(body.message).to.contain('5 deliveries match now');
    expect((await world.host('queue')).waiting).to.equal(5);
  });

  it('changes everything only on request with a star, and explains an invalid query', async () => {
    for (const [query, words] of [
      ['  ', 'Enter a filter'],
      ['bob', 'Word 1: plain words are not supported here; use '],
      ['account:x frob:y', String.raw`Word 2: unknown filter \"frob:\"`],
      ['kind:letters', 'takes inbound'],
      ['state:delivered', 'takes waiting, dead'],
      ['account:x account:y', 'can be given once'],
      ['after:soon', 'takes a time'],
    ] as const) {
      const { status, body } = await world.ask('drop', { query });
      expect([status, body.name], query).to.deep.equal([422, 'ValidationError']);
      expect(body.message, query).to.contain(words);
    }
    expect((await world.ask('retry', { query: 'state:dead' })).status).to.equal(422);
    expect((await world.ask('drop', {})).body.name).to.equal('ValidationError');
    expect((await world.host('queue')).waiting).to.equal(5);
    expect(await world.host('drop', { query: '*' })).to.include({ matched: 5, changed: 5 });
    expect(await world.host('queue')).to.deep.include({ waiting: 0, rows: [], oldest_at: null });
    expect((await actions()).map(([, account, , count]: any) => [account, count])).to.have.deep.members([
      ['main', 3],
      ['second', 2],
    ]);
  });

  it('selects by whole values of each field', async () => {
    const count = async (query: string) => (await world.host('drop', { query, dry_run: true })).matched;
    const [{ id }] = await world.api('/inbound/deliveries', { limit: 1 });
    expect(await count(`url:${world.hooks.second.url}`)).to.equal(2);
    expect(await count('to:box-1@in.test')).to.equal(1);
    expect(await count('to:box-1')).to.equal(0);
    expect(await count(`id:${id}`)).to.equal(1);
    expect(await count('kind:inbound kind:events')).to.equal(5);
    expect(await count('kind:outbound')).to.equal(0);
    expect(await count('route:1.1')).to.equal(3);
    expect(await count('after:1h')).to.equal(5);
    expect(await count('before:1h')).to.equal(0);
    expect(await count('account:nobody')).to.equal(0);
  });

  it('retries waiting mail now, for all accounts', async () => {
    const before = posts('second');
    world.hooks.second.answer({ status: 200 });
    expect(await world.host('retry', { query: `url:${world.hooks.second.url}` })).to.include({
      matched: 2,
      changed: 2,
    });
    await until('it is delivered', async () =>
      (await statesOf(world.secondApi)).every((state: string) => state === 'delivered'),
    );
    expect(posts('second')).to.equal(before + 2);
    expect(await actions()).to.deep.equal([['operator', 'second', 'retried', 2, `url:${world.hooks.second.url}`]]);
  });

  it('pauses and resumes endpoints, without touching others', async () => {
    const query = `account:${world.main}`;
    expect(await world.host('pause', { query, dry_run: true })).to.deep.equal({
      matched: 1,
      changed: 0,
      waiting: 3,
      hosts: onHost(3),
    });
    expect(await world.host('pause', { query })).to.deep.equal({
      matched: 1,
      changed: 1,
      waiting: 3,
      hosts: onHost(3),
    });
    const paused = async () =>
      (await world.host('endpoints')).endpoints.map((one: any) => [one.account.name, one.paused_until !== null]).sort();
    expect(await paused()).to.deep.equal([
      ['main', true],
      ['second', false],
    ]);
    const before = posts('main');
    world.hooks.main.answer({ status: 200 });
    await world.host('retry', { query: '*' });
    await until('the other is tried', () => posts('second') >= 4);
    expect(posts('main')).to.equal(before);
    expect(await world.host('resume', { query: '*' })).to.deep.equal({
      ...{ matched: 1, changed: 1, waiting: 3, hosts: onHost(3) },
    });
    await until('it goes on', async () => (await statesOf(world.api)).every((state: string) => state === 'delivered'));
    expect((await world.ask('pause', { query: 'to:box-1@in.test' })).body.message).to.contain(
      'account:, url: and kind:',
    );
    expect((await world.ask('pause', { query, until: '2020-01-01 00:00:00' })).status).to.equal(422);
    expect(await world.host('pause', { query: 'account:nobody' })).to.deep.equal({
      ...{ matched: 0, changed: 0, waiting: 0, hosts: onHost(0) },
    });
  });

  it('pauses and resumes nothing if more match than confirmed', async () => {
    for (const name of ['pause', 'resume', 'pause']) {
      if (name === 'resume') await world.host('pause', { query: '*', at_most: 2 });
      const { status, body } = await world.ask(name, { query: '*', at_most: 1 });
      expect([status, body.message], name).to.deep.equal([
        422,
        'Validation error: {"at_most":"2 endpoints match now (limit 1); review and retry"}',
      ]);
    }
    const { endpoints } = await world.host('endpoints');
    expect(endpoints.map(({ paused_until: until }: any) => until !== null)).to.deep.equal([true, true]);
  });

  it('keeps an endpoint paused against its account, and notifies the account', async () => {
    const { url } = world.hooks.main;
    await world.api('/endpoints/pause', { url });
    expect(await world.api('/endpoints/info', { url })).to.include({ paused: true, paused_by: 'account' });
    await world.host('pause', { query: `url:${url}`, at_most: 1 });
    const { paused_by: by, paused_until: end } = await world.api('/endpoints/info', { url });
    expect(by).to.equal('operator');
    for (const path of ['/endpoints/resume', '/endpoints/pause']) {
      const { status, body } = await world.byKey(path, { url });
      expect([status, body.name, body.message], path).to.deep.equal([
        409,
        'Endpoint_Held',
        `The operator of this service has paused this endpoint until ${end} UTC, and only the operator can change that`,
      ]);
    }
    expect(await world.api('/endpoints/info', { url })).to.include({ paused_by: 'operator', paused_until: end });
    await world.host('resume', { query: `url:${url}` });
    expect(await world.api('/endpoints/info', { url })).to.include({ paused: false, paused_by: null });
    expect(await world.api('/endpoints/pause', { url })).to.include({ paused_by: 'account' });
  });

  it('changes more than a thousand in a job with progress', async () => {
    await world.mainGets(1100);
    const { matched, changed, job } = await world.host('drop', { query: `account:${world.main}` });
    expect([matched > 1000, changed]).to.deep.equal([true, 0]);
    const ended = await until('it has ended', async () => {
      const found = await world.host('job', { id: job });
      return found.state !== 'running' && found;
    });
    expect(ended).to.include({ state: 'done', of: matched, error: null });
    expect(ended.done).to.be.within(1000, matched);
    expect((await world.host('queue', { by: 'account' })).rows.map((one: any) => one.account.name)).to.deep.equal([
      'second',
    ]);
    expect((await world.ask('job', { id: 'x' })).body.name).to.equal('Unknown_Job');
    // The job belongs to no account, so an account does not find it.
    expect((await world.byKey('/jobs/info', { id: job })).body.name).to.equal('Unknown_Job');
    expect(await actions()).to.have.nested.property('[0][2]', 'dropped');
  });

  it('runs a task now, and records the actor', async () => {
    expect(await world.host('run-task', { task: 'keep-time' })).to.deep.equal({ task: 'keep-time' });
    const ran = await until('it has run', async () => {
      const { tasks } = await world.host('tasks');
      const one = tasks.find(({ name }: any) => name === 'keep-time');
      return one.last_at !== null && one;
    });
    expect(ran).to.include({ last_result: 'done', running: false });
    expect(await actions()).to.deep.equal([['operator', undefined, 'task started', 1, 'keep-time']]);
    const wrong = await world.ask('run-task', { task: 'format-disk' });
    expect([wrong.status, wrong.body.message.includes('keep-time')]).to.deep.equal([422, true]);
    // What is done to the host is shown to no account.
    const own = (await world.api('/actions/list')).actions;
    expect(own.map(({ what }: any) => what)).to.deep.equal(['route added', 'domain added']);
  });

  it('shows the latest warnings and errors by event', async () => {
    const { lines, events } = await until('what was deferred is in the log', async () => {
      const log = await world.host('log');
      return log.events.some(({ event, count }: any) => event === 'delivery.deferred' && count >= 5) && log;
    });
    expect(lines.every(({ level }: any) => level === 'warn' || level === 'error')).to.equal(true);
    const deferred = lines.find(({ event }: any) => event === 'delivery.deferred');
    expect(deferred.fields).to.include({ status: 500, kind: 'inbound' });
    expect(events.find(({ event }: any) => event === 'delivery.deferred').level).to.equal('warn');
    const own = await world.host('log', { event: 'delivery.deferred', limit: 2 });
    expect(own.lines.map(({ event }: any) => event)).to.deep.equal(['delivery.deferred', 'delivery.deferred']);
    const rest = await world.host('log', { event: 'delivery.deferred', before: own.next });
    expect(rest.lines[0].n).to.be.below(own.lines[1].n);
    expect((await world.host('log', { level: 'error' })).lines.every(({ level }: any) => level === 'error')).to.equal(
      true,
    );
    expect((await world.ask('log', { event: 'no.such' })).status).to.equal(422);
  });
});
