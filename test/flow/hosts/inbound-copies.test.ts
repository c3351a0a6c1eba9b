import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { mongoDriver } from '../../support/database.ts';
import { eventsOf, postsOf } from '../../support/events.ts';
import { freePort } from '../../support/free-port.ts';
import { type Hosts, operatorAt, startHosts } from '../../support/hosts.ts';
import { type HostPort, message, sendMail } from '../../support/mail.ts';
import type { How, Received } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

const COPIES = { POSTERN_QUEUE__COPIES: 'store' };
const OK: How = { status: 200 };
const DOWN: How = { status: 503 };
/** Slower than `queue.hold_ms`. */
const SLOW_MS = 600;

if (mongoDriver)
  describe('inbound mail of a host that is lost with its disk', function () {
    this.timeout(240_000 * PATIENCE);
    let hosts: Hosts;
    let isDown: boolean;
    /** What the endpoints took, by path: subject, and the id under which it came. */
    let taken: { readonly path: string; readonly subject: string; readonly id: string }[];
    /** What was answered 250. */
    let acknowledged: { readonly to: readonly string[]; readonly subject: string }[];
    beforeEach(() => {
      isDown = true;
      taken = [];
      acknowledged = [];
    });
    afterEach(() => hosts?.stop());

    const at = (port: number) => ({
      POSTERN_HTTP__LISTEN: `127.0.0.1:${port}`,
      POSTERN_HTTP__PEER_URL: `http://127.0.0.1:${port}`,
    });
    const url = (path: string) => hosts.hook.url.replace(/\/hook$/, path);
    const adopt = () => hosts.cli('host', 'adopt', 'c.postern.test', '--by', 'b.postern.test', '--json');
    const copies = async () =>
      (await (await hosts.cli('host', 'list', '--json')).json()).map(({ copies }: any) => Number(copies));
    const arrivals = (subject: string, path?: string) =>
      taken.filter((one) => one.subject === subject && (path === undefined || one.path === path));

    async function answer(request: Received): Promise<How> {
      const path = request.url;
      if (postsOf([request]).length === 0) return OK;
      if (path === '/down' && isDown) return DOWN;
      if (path === '/slow') await new Promise((resolve) => setTimeout(resolve, SLOW_MS));
      const id = String(request.headers['webhook-id']);
      for (const { msg } of eventsOf(request)) taken.push({ path, subject: msg.subject, id });
      return OK;
    }

    async function start(
      env: Readonly<Record<string, string>> = COPIES,
      ports?: Record<'a' | 'b', number>,
    ): Promise<void> {
      hosts = await startHosts(env, undefined, (name) => (ports ? at(ports[name]) : {}));
      hosts.hook.answer(answer);
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
      const add = (pattern: string, more: object) =>
        hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern, ...more });
      for (const name of ['quick', 'slow', 'down']) await add(name, { url: url(`/${name}`) });
      await add('held', { url: url('/held'), action: 'hold' });
      await add('both', { url: url('/quick'), also: [{ url: url('/down') }] });
      await add('pulled', { url: 'pull:' });
    }

    async function accept(to: HostPort, names: readonly string[], subject: string, text?: string): Promise<string> {
      const recipients = names.map((name) => `${name}@in.test`);
      const reply = await sendMail(to, { from: 'ada@example.org', to: recipients }, message(subject, text));
      if (reply.startsWith('250')) acknowledged.push({ to: names, subject });
      return reply;
    }

    /** Accepts mail on a third host, and loses it with its folder. */
    async function lose(): Promise<void> {
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      const all = (names: readonly string[], text?: string) =>
        Promise.all(Array.from({ length: 5 }, (_, n) => accept(lost.smtp, names, `${names.join(' and ')} ${n}`, text)));
      const replies = await Promise.all([
        all(['quick']),
        all(['slow']),
        all(['down']),
        all(['held']),
        all(['pulled']),
        all(['both']),
        all(['quick', 'down', 'held']),
        accept(lost.smtp, ['down'], 'large', `${'x'.repeat(70)}\r\n`.repeat(45_000)),
      ]);
      for (const reply of replies.flat()) expect(reply).to.match(/^250/);
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
    }

    /** Everything acknowledged reached each of its endpoints, under one id. */
    async function untilAllArrived(
      names: readonly string[] = ['quick', 'slow', 'down', 'both', 'held'],
    ): Promise<void> {
      for (const { to, subject } of acknowledged)
        for (const name of to)
          if (names.includes(name))
            for (const path of name === 'both' ? ['/quick', '/down'] : [`/${name}`])
              await until(`${subject} at ${path}`, () => arrivals(subject, path).length > 0, 60_000 * PATIENCE);
      for (const { path, subject } of taken)
        expect(new Set(arrivals(subject, path).map(({ id }) => id)).size, `${subject} at ${path}`).to.equal(1);
    }

    /** Pulls and acknowledges on B, until there are so many. */
    async function pull(count: number): Promise<void> {
      const subjects: string[] = [];
      await until('what is pulled', async () => {
        for (const { lease, body } of await hosts.b.api('/inbound/pull', { limit: 10 })) {
          const form = new URLSearchParams(Buffer.from(body, 'base64').toString());
          subjects.push(...JSON.parse(form.get('mandrill_events') ?? '[]').map(({ msg }: any) => msg.subject));
          await hosts.b.api('/inbound/ack', { lease });
        }
        return subjects.length >= count;
      });
      expect(new Set(subjects).size).to.equal(count);
    }

    async function release(): Promise<void> {
      const ids = (await hosts.b.queue('--state', 'held')).map(({ id }) => id);
      await hosts.b.api('/inbound/replay', { ids });
    }

    it('is delivered, held or pulled on the host that adopts it, under the same ids', async () => {
      await start();
      await lose();
      isDown = false;
      const adopted = await adopt();
      expect([adopted.code, adopted.json()[0]?.left], adopted.err).to.deep.equal([0, '0']);
      const held = await until('what is held', async () => {
        const found = await hosts.b.queue('--state', 'held');
        return found.length === 10 && found;
      });
      expect(held[0].last_error).to.match(/held by route/);
      expect(taken.filter(({ path }) => path === '/held')).to.deep.equal([]);
      await release();
      await pull(5);
      await untilAllArrived();
      await until('the copies to leave the store', async () => (await copies()).every((count: number) => count === 0));
    });

    it('is lost without copies', async () => {
      await start({});
      await lose();
      isDown = false;
      const before = taken.length;
      expect((await adopt()).code).to.equal(0);
      await accept(hosts.b.smtp, ['down'], 'after');
      await until('what came after it', () => arrivals('after').length === 1);
      const here = taken.slice(before).filter(({ path }) => path !== '/quick' && path !== '/slow');
      expect(here.map(({ subject }) => subject)).to.deep.equal(['after']);
      expect(await hosts.b.queue()).to.deep.equal([]);
    });

    it('is dropped by its host if that comes back after it was adopted, and is listed and counted once', async () => {
      const ports = { a: await freePort(), b: await freePort(), c: await freePort() };
      await start(COPIES, ports);
      const dir = await tempDir();
      const lost = await hosts.spawn(dir, at(ports.c));
      for (let n = 0; n < 5; n++) await accept(lost.smtp, ['down'], `down ${n}`);
      await accept(lost.smtp, ['held'], 'held');
      await until('its history', async () => (await lost.api('/inbound/search')).mails.length === 6);
      await lost.end('SIGKILL');
      expect((await adopt()).code).to.equal(0);
      const back = await hosts.spawn(dir, at(ports.c));
      const listed = async (...options: string[]) =>
        (await hosts.cliIn(dir, 'queue', 'list', '--json', ...options)).json();
      await until('it to drop what B has', async () => (await listed('--state', 'dropped')).length === 6);
      const states = (await listed()).map(({ host, state }: any) => `${host} ${state}`);
      const waiting = Array(5).fill('b.postern.test waiting');
      expect(states).to.have.members([...waiting, 'b.postern.test held']);
      await accept(back.smtp, ['down'], 'new');
      await until('its history', async () => (await back.api('/inbound/search', { query: 'new' })).mails.length === 1);
      for (const { api } of [hosts.a, hosts.b, back]) {
        const subjects: string[] = [];
        for (let before: unknown; before !== null; ) {
          const { mails, next } = await api('/inbound/search', { limit: 2, before });
          for (const { subject, state } of mails) subjects.push(`${subject} ${state}`);
          before = next;
        }
        const all = [...Array.from({ length: 5 }, (_, n) => `down ${n} waiting`), 'held held', 'new waiting'];
        expect(subjects).to.have.members(all);
        const states = (await api('/inbound/deliveries')).map(({ state }: any) => state);
        expect(states).to.have.members(all.map((one) => one.split(' ').at(-1)));
        // The history of the host that is back learns the reason a moment later.
        await until('each is counted once', async () => (await api('/inbound/causes')).count === all.length);
      }
      const operator = await operatorAt(hosts, hosts.a);
      const { body } = await operator.write('/console/call/host/accounts');
      expect(body.accounts[0].day.received).to.equal(7);
      const [dropped] = await listed('--state', 'dropped');
      expect(dropped.last_error).to.equal('another host has taken it over');
      isDown = false;
      await untilAllArrived(['down']);
      await until('the copies to leave the store', async () => (await copies()).toSorted().join() === '0,0,1');
      await back.end();
    });

    it('keeps what nobody has taken over when it comes back', async () => {
      await start();
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      for (let n = 0; n < 5; n++) await accept(lost.smtp, ['down'], `kept ${n}`);
      await accept(lost.smtp, ['pulled'], 'kept');
      await lost.end('SIGKILL');
      isDown = false;
      const back = await hosts.spawn(dir);
      await untilAllArrived(['down']);
      await until('only what waits to be pulled', async () => (await copies()).toSorted().join() === '0,0,1');
      await back.end();
    });
  });

if (mongoDriver)
  describe('inbound mail and its copies', function () {
    this.timeout(240_000 * PATIENCE);
    let hosts: Hosts;
    let isDown = true;
    afterEach(() => hosts?.stop());

    async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
      isDown = true;
      // A busy machine is no slow endpoint.
      hosts = await startHosts({ ...COPIES, POSTERN_QUEUE__HOLD_MS: '10000', ...env });
      hosts.hook.answer(({ url }) => (url === '/down' && isDown ? DOWN : OK));
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
      for (const name of ['quick', 'down']) {
        const url = hosts.hook.url.replace(/\/hook$/, `/${name}`);
        await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: name, url });
      }
    }

    const accept = (name: string, subject: string) =>
      sendMail(hosts.a.smtp, { from: 'ada@example.org', to: `${name}@in.test` }, message(subject));
    const posts = (path: string) => postsOf(hosts.hook.requests).filter((request) => request.url === path);
    const inserts = () =>
      hosts.a.store.commands.filter(({ name, collection }) => name === 'insert' && collection === 'copies').length;
    const copies = async () =>
      (await (await hosts.cli('host', 'list', '--json')).json()).reduce(
        (sum: number, row: any) => sum + Number(row.copies),
        0,
      );
    const waiting = async () => (await hosts.a.queue('--state', 'waiting')).length;
    const untilNone = () => until('no copy to be left', async () => (await copies()) === 0);

    it('need none if the endpoint is quick', async () => {
      await start();
      for (let n = 0; n < 30; n++) await accept('quick', `warm ${n}`);
      const before = inserts();
      for (let n = 0; n < 30; n++) expect(await accept('quick', `quick ${n}`)).to.match(/^250/);
      expect(inserts() - before).to.be.below(10);
      await untilNone();
    });

    it('go in few commands for many messages', async () => {
      await start();
      await Promise.all(Array.from({ length: 40 }, (_, n) => accept('down', `down ${n}`)));
      expect(await copies()).to.equal(40);
      expect(inserts()).to.be.below(30);
      isDown = false;
      await hosts.a.api('/inbound/retry', { url: hosts.hook.url.replace(/\/hook$/, '/down'), limit: 100 });
      await untilNone();
    });

    for (const fault of ['command lost', 'answer lost', 'not primary'] as const)
      it(`are written once, and acknowledged, also if the ${fault}`, async () => {
        await start();
        await accept('down', 'first');
        hosts.a.store.failNext(({ name, collection }) => name === 'insert' && collection === 'copies', fault);
        expect(await accept('down', fault)).to.match(/^250/);
        expect(await copies()).to.equal(2);
      });

    it('are made later while the store is away, if mail is accepted without', async () => {
      await start({ POSTERN_STORE__TIMEOUT_MS: '1000' });
      await accept('down', 'before');
      hosts.a.store.cut();
      for (let n = 0; n < 3; n++) expect(await accept('down', `away ${n}`)).to.match(/^250/);
      hosts.a.store.mend();
      await until('all copies', async () => (await copies()) === 4);
      isDown = false;
      await hosts.a.down();
      await hosts.a.up();
      await untilNone();
      expect(posts('/down').length).to.be.at.least(4);
    });

    it('are not, if it is deferred: nothing of what gets a 451 is posted or kept', async () => {
      await start({ POSTERN_STORE__TIMEOUT_MS: '1000', POSTERN_QUEUE__WITHOUT_COPIES: 'defer' });
      for (let n = 0; n < 12; n++) await accept('quick', `warm ${n}`);
      await accept('down', 'before');
      hosts.a.store.cut();
      for (let n = 0; n < 3; n++) expect(await accept('down', `away ${n}`)).to.match(/^451 4\.3\.0/);
      expect(await accept('quick', 'quick')).to.match(/^250/);
      expect(await waiting()).to.equal(1);
      hosts.a.store.mend();
      const tried = posts('/down').length;
      isDown = false;
      await until('mail to be accepted again', async () => (await accept('down', 'after')).startsWith('250'));
      await hosts.a.down();
      await hosts.a.up();
      await untilNone();
      const subjects = posts('/down').slice(tried).flatMap(eventsOf);
      expect(subjects.map(({ msg }) => msg.subject))
        .to.include('before')
        .and.not.include('away 0');
    });
  });
