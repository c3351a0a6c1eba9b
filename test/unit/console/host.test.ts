import { expect } from 'chai';
import { HOST_OPERATIONS } from '../../../src/console/host/index.ts';
import { recordCommandActions } from '../../../src/journal/command-access.ts';
import { addTestPerson } from '../../support/console.ts';
import { type HostWorld, startHost } from '../../support/host-world.ts';
import { startKeepingNameServer } from '../../support/keeping-name-server.ts';
import { until } from '../../support/until.ts';

describe('host queries by operators', () => {
  let world: HostWorld;
  before(async () => {
    world = await startHost({ POSTERN_MAIL__RELAY: 'smtp://user:secret@relay.test:25' });
    await world.mainWaits(3);
    await world.secondWaits(2);
  });
  after(() => world.stop());

  it('are for operators only: others only learn that they are not allowed', async () => {
    for (const role of ['owner', 'helper', 'reader'] as const) {
      await addTestPerson(world.store, role, role, world.main);
      const browser = await world.enter();
      await browser.enter(role);
      for (const { path } of HOST_OPERATIONS) {
        const { status, body } = await browser.write(`/console/call${path}`);
        expect([status, body.name], `${role} ${path}`).to.deep.equal([403, 'Not_Allowed']);
      }
      const { body } = await browser.read('/console/me');
      expect(body.calls.filter((name: string) => name.startsWith('host/'))).to.deep.equal([]);
    }
    const { body } = await world.browser.read('/console/me');
    expect(body.calls).to.include.members(HOST_OPERATIONS.map(({ path }) => path.slice(1)));
  });

  it('are not part of the API: a key cannot call them', async () => {
    for (const { path } of HOST_OPERATIONS) {
      const { status, body } = await world.byKey(path);
      expect([status, body.name], path).to.deep.equal([404, 'Unknown_Operation']);
    }
  });

  it('reject invalid parameters as the API does, and need no account', async () => {
    const wrong = await world.ask('endpoints', { limit: 'many' });
    expect([wrong.status, wrong.body.name]).to.deep.equal([422, 'ValidationError']);
    expect(wrong.body.message).to.contain('limit');
    expect((await world.ask('no-such')).status).to.equal(404);
    expect(await world.host('endpoints', { limit: 1 })).to.have.nested.property('endpoints.length', 1);
  });

  it('show waiting mail by age, for all accounts', async () => {
    const { waiting, ages, rows, oldest_at: oldest } = await world.host('queue');
    expect([waiting, ages]).to.deep.equal([5, [5, 10, 20, 40, 80, 160]]);
    expect(rows.map((row: any) => [row.account.name, row.url, row.kind, row.waiting, row.ages[0]])).to.deep.equal([
      ['main', world.hooks.main.url, 'inbound', 3, 3],
      ['second', world.hooks.second.url, 'inbound', 2, 2],
    ]);
    expect(oldest).to.match(/^\d{4}-\d\d-\d\d /);
    const one = await world.host('queue', { limit: 1 });
    expect([one.rows.length, one.left_out, one.waiting]).to.deep.equal([1, 1, 5]);
    const byAccount = await world.host('queue', { by: 'account' });
    expect(byAccount.rows.map((row: any) => [row.account.id, row.url, row.breaker, row.waiting])).to.deep.equal([
      [world.main, null, null, 3],
      [world.second, null, null, 2],
    ]);
    const byUrl = await world.host('queue', { by: 'destination' });
    expect(byUrl.rows.map((row: any) => [row.account, row.url, row.breaker])).to.deep.equal([
      [null, world.hooks.main.url, 'up'],
      [null, world.hooks.second.url, 'up'],
    ]);
  });

  it('show the endpoints of all accounts with their last answer', async () => {
    const { total, endpoints } = await world.host('endpoints');
    expect(total).to.equal(2);
    expect(endpoints.map((one: any) => [one.account.name, one.waiting, one.last_status])).to.deep.equal([
      ['main', 3, 500],
      ['second', 2, 500],
    ]);
  });

  it('list accounts with the mail of the day', async () => {
    const seen = await until('the history has it', async () => {
      const { accounts } = await world.host('accounts');
      return accounts[0].day.received === 3 && accounts[1].day.received === 2 && accounts;
    });
    expect(seen.map((one: any) => [one.name, one.number, one.waiting])).to.deep.equal([
      ['main', 1, 3],
      ['second', 2, 2],
    ]);
    const first = await world.host('accounts', { limit: 1 });
    expect([first.accounts.length, first.next]).to.deep.equal([1, 1]);
    const rest = await world.host('accounts', { limit: 1, after: first.next });
    expect([rest.accounts[0].name, rest.next]).to.deep.equal(['second', null]);
  });

  it('list people and their sessions, without credentials', async () => {
    const { people } = await world.host('people');
    expect(people.map((one: any) => [one.name, one.role, one.account?.name ?? null, one.sessions])).to.deep.equal([
      ['helper', 'helper', 'main', 1],
      ['owner', 'owner', 'main', 1],
      ['reader', 'reader', 'main', 1],
    ]);
    const { sessions } = await world.host('sessions');
    expect(sessions.filter(({ own }: any) => own)).to.have.length(1);
    expect(new Set(sessions.map((one: any) => `${one.name} ${one.by}`))).to.include.keys(
      'operator link',
      'owner password',
    );
    const stored = await world.store.consoleSessions.many({});
    const shown = JSON.stringify([people, sessions]);
    for (const { id } of stored) expect(shown).to.not.contain(id);
    for (const { password } of await world.store.people.many({})) expect(shown).to.not.contain(password ?? '-');
  });

  it('list the activity in all accounts', async () => {
    const at = Date.now();
    for (const [account, what] of [
      [world.main, 'replayed'],
      [world.second, 'dropped'],
    ] as const)
      recordCommandActions(world.file, [{ at, by: 'ann', account, what, count: 2, detail: 'x' }]);
    const { actions } = await world.host('actions');
    expect(actions.map((one: any) => [one.account.name, one.what, one.count])).to.deep.equal([
      ['second', 'dropped', 2],
      ['main', 'replayed', 2],
    ]);
    const page = await world.host('actions', { limit: 1 });
    expect(page.actions[0].what).to.equal('dropped');
    expect((await world.host('actions', { limit: 1, before: page.next })).actions[0].what).to.equal('replayed');
    const own = await world.host('actions', { account: world.main });
    expect(own.actions.map(({ what }: any) => what)).to.deep.equal(['replayed']);
  });

  it('show the tasks with their schedule, and the result of the last run', async () => {
    const { tasks } = await world.host('tasks');
    const keepTime = tasks.find(({ name }: any) => name === 'keep-time');
    expect(keepTime).to.include({ per_host: true, running: false });
    expect(Date.parse(`${keepTime.next_at}Z`)).to.be.within(Date.now() - 1000, Date.now() + 3_600_000);
  });

  it('show every current setting with its origin, but no secret', async () => {
    const { settings } = await world.host('settings');
    const of = (path: string) => settings.find((one: any) => one.path === path);
    expect(of('hostname')).to.deep.equal({
      path: 'hostname',
      value: 'in.postern.test',
      origin: 'POSTERN_HOSTNAME',
    });
    expect(of('delivery.retry_hours').origin).to.equal('default');
    expect(of('mail.relay').value).to.equal('(set)');
    expect(JSON.stringify(settings)).to.not.match(/user:secret|a-key-for-the-tests/);
  });

  it('summarise the status in a sentence, with the findings that need attention', async () => {
    const all = await world.host('overview');
    expect(all).to.include({ hostname: 'in.postern.test', takes_mail: true, waiting: 5, endpoints_down: 0 });
    expect(all.text).to.match(/^All systems normal\. 5 deliveries waiting, oldest \d+ s\.$/);
    expect([all.state, all.needs]).to.deep.equal(['ok', []]);
  });

  it('plot the last hour, and reject unknown steps', async () => {
    const { step, times, series } = await world.host('series', { names: ['accepted', 'waiting', 'attempt_p95'] });
    expect(step).to.equal(10);
    expect(times.length).to.be.within(360, 361);
    expect(series.map(({ name, kind, unit }: any) => [name, kind, unit])).to.deep.equal([
      ['accepted', 'count', ''],
      ['waiting', 'level', ''],
      ['attempt_p95', 'quantile', 'ms'],
    ]);
    for (const { values } of series) expect(values).to.have.length(times.length);
    const month = await world.host('series', { names: ['accepted'], from: '2026-01-01' });
    expect(month.step).to.be.above(60);
    for (const params of [
      { names: [] },
      { names: ['no_such'] },
      { names: ['accepted'], step: 7 },
      { names: ['accepted'], step: 90 },
      { names: ['accepted'], from: '2026-01-01', step: 10 },
      { names: ['accepted'], from: '2026-01-01', step: 60 },
      { names: ['accepted'], from: '2100-01-01' },
    ])
      expect((await world.ask('series', params)).status, JSON.stringify(params)).to.equal(422);
  });
});

describe('an endpoint that is down', () => {
  it('comes first in the overview, with its account', async () => {
    const world = await startHost();
    // Nothing listens there any more.
    await world.mainWaits(1);
    await world.hooks.main.stop();
    await world.mainGets(20);
    const {
      text,
      state,
      needs,
      endpoints_down: down,
    } = await until('it is down', async () => {
      const found = await world.host('overview');
      return found.endpoints_down > 0 && found;
    });
    expect([state, down]).to.deep.equal(['warning', 1]);
    expect(text).to.match(
      /^Accepting mail\. 1 endpoint down since \d{4}-\d\d-\d\d \d\d:\d\d UTC, \d+ deliveries waiting\.$/,
    );
    expect(needs[0]).to.deep.include({ what: 'endpoint', level: 'warning', url: world.hooks.main.url });
    expect(needs[0].account).to.deep.equal({ id: world.main, name: 'main' });
    expect(needs[0].text).to.match(/^Down \(.+\), \d+ deliveries waiting\.$/);
    const [row] = (await world.host('queue')).rows;
    expect([row.breaker, row.down_since !== null]).to.deep.equal(['down', true]);
    await world.stop();
  });
});

describe('mail in preparation', () => {
  it('is shown with the DNS query that it waits for, and counted by reason', async () => {
    const names = await startKeepingNameServer();
    const world = await startHost({
      POSTERN_DNS__SERVERS: names.server,
      POSTERN_DNS__TIMEOUT_MS: '60000',
      POSTERN_DNS__BUDGET_MS: '60000',
    });
    names.keep();
    await world.mainGets(2);
    const { preparing, by, total } = await until('both wait for an answer', async () => {
      const found = await world.host('preparing');
      return found.total === 2 && found.preparing.every(({ question }: any) => question !== null) && found;
    });
    expect(total).to.equal(2);
    expect(by.map(({ waits_for, count }: any) => [waits_for, count])).to.deep.equal([['verdicts', 2]]);
    expect(preparing[0]).to.deep.include({ account: { id: world.main, name: 'main' }, url: world.hooks.main.url });
    expect(preparing[0].question).to.match(/^[A-Z]+ .*sender\.test$/);
    expect((await world.host('preparing', { limit: 1 })).preparing).to.have.length(1);
    expect((await world.host('queue')).preparing).to.deep.equal({ total: 2, by });
    names.release();
    await until('it is delivered', async () => (await world.host('preparing')).total === 0);
    await world.stop();
    names.stop();
  });
});
