import { expect } from 'chai';
import { HOST_OPERATIONS } from '../../../src/console/host/index.ts';
import type { Browser } from '../../support/console.ts';
import { mongoDriver } from '../../support/database.ts';
import { freePort } from '../../support/free-port.ts';
import { type Host, type Hosts, operatorAt, startHosts } from '../../support/hosts.ts';
import { message } from '../../support/mail.ts';
import { PATIENCE, until } from '../../support/until.ts';

const A = 'a.postern.test';
const B = 'b.postern.test';
/** Figures are read every ten seconds. */
const SAMPLES_MS = 60_000;

if (mongoDriver)
  describe('an operator at the console of one host', function () {
    this.timeout(120_000 * PATIENCE);
    let hosts: Hosts;
    let browser: Browser;
    before(async () => {
      const ports = { a: await freePort(), b: await freePort() };
      hosts = await startHosts({}, undefined, (name) => ({
        POSTERN_HTTP__LISTEN: `127.0.0.1:${ports[name]}`,
        POSTERN_HTTP__PEER_URL: `http://127.0.0.1:${ports[name]}`,
        POSTERN_CONSOLE__ENABLED: String(name === 'a'),
      }));
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
      await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: 'box', url: hosts.hook.url });
      hosts.hook.answer({ status: 500 });
      browser = await operatorAt(hosts, hosts.a);
      await accept(hosts.a, 1);
      await accept(hosts.b, 2);
      // Paused, so that it does not fail so often that it is down.
      for (const [name, count] of [
        [A, 1],
        [B, 2],
      ] as const)
        await until('each was tried', async () => (await deferred(name)).length >= count);
      await hosts.a.api('/endpoints/pause', { url: hosts.hook.url });
    });
    after(() => hosts?.stop());

    async function accept({ api }: Host, count: number): Promise<void> {
      for (let n = 0; n < count; n++)
        await api('/inbound/send-raw', { raw_message: message('x'), to: ['box@in.test'], client_address: '192.0.2.1' });
    }
    const ask = (name: string, params: object = {}) => browser.write(`/console/call/host/${name}`, params);
    async function host(name: string, params: object = {}): Promise<any> {
      const { status, body, text } = await ask(name, params);
      if (status !== 200) throw new Error(`host/${name} answered ${status}: ${text}`);
      return HOST_OPERATIONS.find(({ path }) => path === `/host/${name}`)?.returns.parse(body);
    }
    const deferred = async (name: string) => (await host('log', { host: name, event: 'delivery.deferred' })).lines;
    const missing = async (name: string) => (await ask(name)).headers['postern-hosts-missing'];

    it('sees the waiting mail of all hosts, added up by endpoint, destination and account', async () => {
      for (const by of ['endpoint', 'destination', 'account']) {
        const { waiting, rows } = await host('queue', { by });
        expect([waiting, rows.map((row: any) => [row.waiting, row.ages[0], row.url])], by).to.deep.equal([
          3,
          [[3, 3, by === 'account' ? null : hosts.hook.url]],
        ]);
      }
      for (const [name, count] of [
        [A, 1],
        [B, 2],
      ] as const)
        expect((await host('queue', { host: name })).waiting, name).to.equal(count);
      await until('the endpoint to be paused on both', async () => {
        const { total, endpoints } = await host('endpoints');
        const found = endpoints.map((one: any) => `${one.host} ${one.waiting} ${one.paused_until !== null}`).join();
        return total === 2 && found === `${B} 2 true,${A} 1 true`;
      });
      expect((await host('endpoints', { host: B })).endpoints[0]).to.not.have.property('host');
    });

    it('sees the mail of an account on all hosts', async () => {
      const figures = async (params: object = {}) => {
        const [{ waiting, day }] = (await host('accounts', params)).accounts;
        return [waiting, day.received];
      };
      await until('both histories have it', async () => (await figures()).join() === '3,3');
      expect(await figures({ host: B })).to.deep.equal([2, 2]);
    });

    it('sees in one sentence how all hosts are, and what needs attention on which', async () => {
      expect((await host('overview')).text).to.match(/^All systems normal\. 3 deliveries waiting, oldest \d+ s\.$/);
      expect(await host('overview', { host: B })).to.include({ hostname: B, waiting: 2 });
      const [row] = await hosts.rows.hosts.many({ name: B });
      await hosts.rows.hosts.change({ id: row?.id ?? '' }, { url: 'http://127.0.0.1:9' });
      const { state, needs } = await host('overview');
      const silent = { host: B, what: 'host', level: 'warning', text: `${B} does not answer.` };
      expect([state, needs]).to.deep.equal(['warning', [{ ...silent, account: null, url: null, since: null }]]);
      expect(await missing('overview')).to.equal(B);
      await hosts.rows.hosts.change({ id: row?.id ?? '' }, { url: row?.url ?? '' });
    });

    it('sees the activity on all hosts in one order, page by page, each once', async () => {
      for (const name of [B, A, B]) await host('run-task', { task: 'keep-time', host: name });
      const list = async (limit: number, before?: unknown) => host('actions', { limit, before });
      const isPoke = ({ what }: any) => what === 'task started';
      const all = await until('both have noted it', async () => {
        const found = (await list(50)).actions;
        return found.filter(isPoke).length === 3 && found;
      });
      // Whole seconds, and each host has its own.
      expect(all.filter(isPoke).map((one: any) => one.host)).to.have.members([B, A, B]);
      expect(all.filter(isPoke).map((one: any) => [one.by, one.account, one.detail])[0]).to.deep.equal([
        'operator',
        null,
        'keep-time',
      ]);
      const paged: unknown[] = [];
      for (let before: unknown; before !== null; ) {
        const page = await list(2, before);
        paged.push(...page.actions);
        before = page.next;
      }
      expect(paged).to.deep.equal(all);
      const own = (await host('actions', { host: B })).actions;
      expect(own.filter(isPoke)).to.have.length(2);
      expect(own[0]).to.not.have.property('host');
    });

    it('sees the settings, tasks, log and listeners of any host, also if its console is off', async () => {
      const nameOf = ({ settings }: any) => settings.find((one: any) => one.path === 'hostname').value;
      expect([nameOf(await host('settings')), nameOf(await host('settings', { host: B }))]).to.deep.equal([A, B]);
      const portOf = ({ listeners }: any) => listeners.find((one: any) => one.name === 'http').addresses[0].port;
      expect(String(portOf(await host('listeners', { host: B })))).to.equal(new URL(hosts.b.base).port);
      const tasks = (await host('tasks', { host: B })).tasks;
      expect(tasks.find((one: any) => one.name === 'keep-time').last_result).to.equal('done');
      const begun = await host('examine', { host: B });
      await until('its examination to end', async () => {
        const { state, checks } = await host('examine', { host: B, id: begun.id });
        return state === 'done' && checks.some(({ text }: any) => text.includes(B));
      });
      expect((await ask('examine', { id: begun.id })).body.name).to.equal('Unknown_Job');
      const wrong = await ask('log', { host: B, limit: 'many' });
      expect([wrong.status, wrong.body.name]).to.deep.equal([422, 'ValidationError']);
      const none = await ask('tasks', { host: 'c.postern.test' });
      expect([none.status, none.body.message]).to.deep.equal([
        422,
        'Validation error: {"host":"There is no host c.postern.test"}',
      ]);
    });

    it('sees sums of the figures of all hosts', async () => {
      const most = async (params: object = {}) => {
        const { series, times } = await host('series', { names: ['waiting', 'accepted', 'memory'], ...params });
        const [waiting, accepted, memory] = series.map(({ values }: any) =>
          values.filter((one: unknown) => one !== null),
        );
        expect(series[0].values).to.have.length(times.length);
        const sum = accepted.reduce((all: number, one: number) => all + one, 0);
        return { waiting: Math.max(...waiting), accepted: sum, memory: Math.max(...memory) };
      };
      await until('the figures of both', async () => (await most()).waiting === 3, SAMPLES_MS * PATIENCE);
      expect((await most({ host: B })).waiting).to.equal(2);
    });

    it('needs the console: a host answers others by their signature only', async () => {
      const call = { from: 'x', n: 1, call: { by: 'x', params: {} } };
      for (const path of ['settings', 'run-task', 'queue/part']) {
        const url = `${hosts.b.base}/peer/1.0/host/${path}`;
        const { status } = await fetch(url, { method: 'POST', body: JSON.stringify(call) });
        expect(status, path).to.equal(401);
      }
    });

    it('is told which host does not answer, and sees the others', async () => {
      await hosts.b.down();
      for (const name of ['queue', 'endpoints', 'preparing', 'accounts', 'actions', 'overview'])
        expect(await missing(name), name).to.equal(B);
      expect((await host('queue')).waiting).to.equal(1);
      const { status, body } = await ask('settings', { host: B });
      expect([status, body.name, body.message]).to.deep.equal([504, 'GeneralError', `${B} does not run`]);
      // It was stopped: nobody need do anything.
      expect((await host('overview')).needs).to.deep.equal([]);
      expect(await missing('tasks')).to.equal(undefined);
      await hosts.b.up();
      expect(await missing('queue')).to.equal(undefined);
    });

    it('sees an endpoint that is gone on several hosts once, with what waits on all of them', async () => {
      const { url } = hosts.hook;
      hosts.hook.answer({ status: 410 });
      await hosts.a.api('/endpoints/resume', { url });
      const found = await until('it is gone on both', async () => {
        await host('retry', { query: '*' });
        const isGone =
          (await host('endpoints')).endpoints.filter(({ breaker }: any) => breaker === 'gone').length === 2;
        return isGone && (await host('overview'));
      });
      expect(found.needs).to.have.length(1);
      expect(found.needs[0]).to.include({
        ...{ what: 'endpoint', url },
        text: 'Gone (HTTP 410), 3 deliveries waiting.',
      });
      expect(found.text).to.match(/^Accepting mail\. 1 endpoint down since .{16} UTC, 3 deliveries waiting\.$/);
      expect((await host('queue')).rows[0]).to.include({ waiting: 3, breaker: 'gone' });
    });
  });
