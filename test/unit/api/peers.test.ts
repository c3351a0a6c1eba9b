import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { refusal, toEnvelope } from '../../../src/api/errors.ts';
import { systemClock, toTimestamp } from '../../../src/base/clock.ts';
import { tokenHash } from '../../../src/base/ids.ts';
import type { Log } from '../../../src/base/log.ts';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import { otherHosts } from '../../../src/examination/peers.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { createLinkedFiles, type LinkedFiles, linkTo } from '../../../src/webhooks/linked-files.ts';
import { ACCOUNT, KEY, OTHER_KEY, putDeadDelivery } from '../../support/api.ts';
import { createTestClock } from '../../support/clock.ts';
import { addTestPerson, type Browser, startConsole } from '../../support/console.ts';
import { exportRow } from '../../support/exports.ts';
import { freePort } from '../../support/free-port.ts';
import { createTestLog } from '../../support/log.ts';
import { putSubmitted } from '../../support/messages.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { tempDir } from '../../support/temp.ts';
import { TOKEN_SECRET } from '../../support/tracking.ts';
import { until } from '../../support/until.ts';

describe('hosts that share a store', function () {
  this.timeout(30_000);
  type World = Awaited<ReturnType<typeof startConsole>> & { readonly linked: LinkedFiles };
  let near: World;
  let far: World;
  let id: string;
  /** An operator at the console of `near`. */
  let operator: Browser;

  before(async () => {
    const file = join(await tempDir(), 'shared.db');
    const database = (log: Log) => openEmbedded({ file, timeoutMs: 5000, room: NO_FLOOR }, { log, clock: systemClock });
    const start = async (name: string) => {
      const linked = createLinkedFiles(await linkSettings(), {
        tokenSecret: { read: async () => TOKEN_SECRET },
        clock: createTestClock(),
        log: createTestLog(),
        growth: { left: () => Infinity, wrote: () => {} },
      });
      const metrics = createPrometheus({ clock: systemClock }, { ofProcess: false });
      metrics.gauge('postern_spool_waiting', () => [
        [{ endpoint: 'https://one.test' }, 3],
        [{ endpoint: 'https://two.test' }, 4],
      ]);
      metrics.gauge('postern_spool_oldest_waiting_seconds', () => [[{}, 60]]);
      metrics.gauge('postern_spool_deliveries', () => [[{ state: 'dead' }, 2]]);
      const world = await startConsole(
        {},
        {
          database,
          journal: true,
          seeding: name === 'near',
          settings: { hostname: `${name}.test` },
          deps: { metrics, member: { id: () => name, incarnation: `process of ${name}` }, linkedFiles: linked },
        },
      );
      return { ...world, linked };
    };
    near = await start('near');
    far = await start('far');
    operator = near.browser();
    await addTestPerson(near.store, 'ada', 'operator');
    await operator.enter('ada');
    id = await putDeadDelivery(far);
  });
  beforeEach(async () => {
    await setHost('near', { url: near.base });
    await setHost('far', { url: far.base });
  });
  after(async () => {
    await Promise.all([near, far].map((world) => world?.stop()));
  });

  async function linkSettings() {
    const base = await tempDir();
    const [dir, claimsDir] = [join(base, 'links'), join(base, 'claims')];
    return { dir, claimsDir, publicUrl: 'https://mail.test', keepMs: 3_600_000, mostBytes: 1_000_000 };
  }
  async function setHost(name: string, row: { url?: string; incarnation?: string | null }) {
    const [startedAt, seenAt] = [new Date(near.clock.now()), new Date(near.clock.now())];
    const whole = { name: `${name}.test`, url: '', incarnation: `process of ${name}`, beat: 1, version: '1', ...row };
    await near.store.hosts.remove({ id: name });
    await near.store.hosts.insert({ id: name, features: [], startedAt, seenAt, ...whole });
  }
  const message = async (path: string, params: object) => (await near.call(path, params)).body.message;

  it('show the content and the payload of mail on another of them', async () => {
    const content = await near.call('/inbound/content', { id });
    expect(content.status).to.equal(200);
    expect(content.body).to.deep.equal((await far.call('/inbound/content', { id })).body);
    expect(content.body.text).to.contain('Hello');
    expect((await near.call('/inbound/payload', { id })).body).to.include({ event: 'inbound', _id: id });
  });

  it('try mail of another of them, and pass on its errors', async () => {
    const url = 'https://staging.example.com/hooks/mail';
    expect((await near.call('/inbound/try', { id, url })).body).to.include({ status: 200 });
    expect(far.tried.length).to.equal(1);
    far.outside.answer = () => ({ kind: 'unanswered', error: 'forbidden address: port 25', durationMs: 0 }) as never;
    expect((await near.call('/inbound/try', { id, url })).body).to.include({ name: 'ValidationError', code: -2 });
  });

  it('answer that a thing is unknown if none of them has it', async () => {
    const { status, body } = await near.call('/inbound/content', { id: 'nothing' });
    expect(body).to.deep.equal((await far.call('/inbound/content', { id: 'nothing' })).body);
    expect({ status, name: body.name }).to.deep.equal({ status: 404, name: 'Unknown_Message' });
    expect(body.message).not.to.contain('may be on');
  });

  it('name the hosts that may have it but cannot be asked', async () => {
    const may = / it may be on far\.test, which cannot be asked$/;
    await setHost('far', { url: '' });
    expect(await message('/inbound/content', { id })).to.match(may);
    await setHost('far', { url: far.base, incarnation: null });
    expect(await message('/inbound/content', { id })).to.match(may);
    await setHost('far', { url: 'http://127.0.0.1:9' });
    expect(await message('/jobs/info', { id })).to.match(may);
    // Another host listens there now.
    await setHost('far', { url: near.base });
    expect(await message('/inbound/ack', { lease: id })).to.match(may);
    expect(near.log.of('api.peer_silent').length).to.equal(2);
  });

  it('search, list, count and change the mail of all of them, and name those that do not answer', async () => {
    const domain = 'inbound.example.com';
    const url = 'https://app.example.com/joined';
    await near.call('/inbound/add-route', { domain, pattern: 'joined', url });
    await far.routing.refresh();
    const ids: string[] = [];
    for (const world of [near, far, near, far, near]) {
      await Promise.all([near.clock.advance(1000), far.clock.advance(1000)]);
      const raw = `From: ann@example.com\r\nSubject: ${ids.length}\r\n\r\nHello`;
      await world.call('/inbound/send-raw', { raw_message: raw, to: [`joined@${domain}`] });
      const [first] = await world.spool.list({ url }, 1);
      ids.unshift(String(first?.id));
    }
    await Promise.all([near.journal.flush(), far.journal.flush()]);
    const query = 'to:joined';

    // Lists, from any of them.
    for (const world of [near, far]) {
      const found: string[] = [];
      for (let before: unknown; before !== null; ) {
        const { body } = await world.call('/inbound/search', { query, limit: 2, before });
        found.push(...body.mails.map((mail: any) => mail.id));
        before = body.next;
      }
      expect(found).to.deep.equal(ids);
      const { body: list } = await world.call('/inbound/deliveries', { domain, state: 'waiting', limit: 3 });
      expect(list.map((one: any) => one.id)).to.deep.equal(ids.slice(0, 3));
      const endpoints = (await world.call('/endpoints/list')).body.filter((one: any) => one.url === url);
      expect(endpoints.map((one: any) => one.waiting)).to.deep.equal([5]);
      expect((await world.call('/endpoints/info', { url })).body.waiting).to.equal(5);
      expect((await world.call('/inbound/causes', { query })).body.count).to.equal(5);
      const answer = await world.call('/inbound/search', { query });
      expect(answer.headers.get('postern-hosts-missing')).to.equal(null);
    }

    // Changes.
    const many = await near.call('/inbound/drop', { query: `${query} state:waiting`, at_most: 4 });
    expect(many.body.message).to.contain('5 deliveries match now (limit 4); nothing was dropped');
    expect((await near.call('/inbound/retry', { query, dry_run: true })).body).to.include({ matched: 5, retried: 0 });
    const dropped = await far.call('/inbound/drop', { query: `${query} state:waiting`, at_most: 5 });
    expect(dropped.body).to.deep.equal({ matched: 5, dropped: 5, job: null });
    const replayed = await near.call('/inbound/replay', { ids });
    expect(replayed.body).to.deep.equal({ matched: 5, forgotten: 0, replayed: 5, job: null });
    await Promise.all([near.journal.flush(), far.journal.flush()]);
    const actions = (await near.call('/actions/list', { limit: 10 })).body.actions;
    expect(actions.filter((one: any) => one.what === 'dropped').map((one: any) => one.count)).to.have.members([3, 2]);

    // A host that does not answer.
    await setHost('far', { url: '' });
    const part = await near.call('/inbound/search', { query });
    expect(part.body.mails.map((mail: any) => mail.id)).to.deep.equal([ids[0], ids[2], ids[4]]);
    expect(part.headers.get('postern-hosts-missing')).to.equal('far.test');
    expect(part.headers.get('access-control-expose-headers')).to.equal('Postern-Hosts-Missing');
    const list = await near.call('/endpoints/list');
    expect(list.headers.get('postern-hosts-missing')).to.equal('far.test');
    const few = await near.call('/inbound/drop', { url, state: 'waiting', at_most: 5 });
    expect(few.body).to.include({ matched: 3, dropped: 3 });
    expect(few.headers.get('postern-hosts-missing')).to.equal('far.test');
  });

  it('fetch archives of exports from the host that has them', async () => {
    const bytes = Buffer.alloc(300_000, 'zip');
    await mkdir(far.exportsDir, { recursive: true });
    await writeFile(join(far.exportsDir, 'far.zip'), bytes);
    const row = { state: 'complete', host: 'far.test', file: 'far.zip', tokenHash: tokenHash('the token') } as const;
    await far.store.exportJobs.insert(exportRow(ACCOUNT, '2026-01-05 11:00:00.00001', row));
    const answer = await fetch(`${near.base}/exports/the token`);
    expect(answer.status).to.equal(200);
    expect(answer.headers.get('content-type')).to.equal('application/zip');
    expect(answer.headers.get('content-disposition')).to.match(/^attachment; filename="/);
    expect(Buffer.from(await answer.arrayBuffer()).equals(bytes)).to.equal(true);
    const head = await fetch(`${near.base}/exports/the token`, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length')]).to.deep.equal([200, '300000']);
    await setHost('far', { url: '' });
    const away = await fetch(`${near.base}/exports/the token`);
    expect(away.status).to.equal(404);
    expect(await away.text()).to.contain('This archive is on the host far.test');
  });

  it('fetch attachments behind links from the host that has them, with ranges', async () => {
    const { reserve } = await far.linked.reserve(ACCOUNT, 100);
    const { url = '' } = (await linkTo(reserve, 'a.txt', () => [Buffer.from('0123456789')])) ?? {};
    const get = (headers = {}) => fetch(url.replace('https://mail.test', near.base), { headers });
    const whole = await get();
    expect([whole.status, await whole.text()]).to.deep.equal([200, '0123456789']);
    const part = await get({ range: 'bytes=2-4' });
    expect([part.status, await part.text()]).to.deep.equal([206, '234']);
    expect(part.headers.get('content-range')).to.equal('bytes 2-4/10');
    const same = await get({ 'if-none-match': whole.headers.get('etag') ?? '' });
    expect([same.status, await same.text()]).to.deep.equal([304, '']);
    expect((await get({ range: 'bytes=20-' })).status).to.equal(416);
    expect((await fetch(`${url.replace('https://mail.test', near.base).slice(0, -20)}`)).status).to.equal(404);
    await setHost('far', { url: '' });
    expect((await get()).status).to.equal(404);
  });

  it('are checked by postern doctor: whether each answers there, with the same secret', async () => {
    // As far as the check reads them.
    const settings = { hostname: 'near.test', store: { url: 'mongodb://db', url_file: '' }, http: { peer_url: '' } };
    const look = async () => {
      const store = { ...near.store, secrets: { ...near.store.secrets, one: async () => ({ secret: TOKEN_SECRET }) } };
      const found: string[] = [];
      for await (const { verdict, seen } of otherHosts.run({ settings, store, clock: near.clock } as never))
        found.push(`${verdict}: ${seen}`);
      return found;
    };
    const [first, second, ...rest] = await look();
    expect(first).to.contain('warning: http.peer_url is not set');
    expect([second, ...rest]).to.deep.equal([`ok: far.test answers at ${far.base}`]);
    await setHost('far', { url: 'http://127.0.0.1:9' });
    expect((await look())[1]).to.match(/^warning: far\.test does not answer at http:\/\/127\.0\.0\.1:9 \(.+\)$/);
    await setHost('far', { url: '' });
    expect((await look())[1]).to.equal('warning: far.test has no http.peer_url');
    await setHost('far', { incarnation: null });
    expect((await look())[1]).to.equal('warning: far.test does not run');
  });

  it('accept a cursor of one host for that host, and name those whose mail cannot be watched', async () => {
    const { body } = await near.call('/inbound/add-route', {
      domain: 'inbound.example.com',
      pattern: 'tapped',
      url: 'https://app.example.com/t',
    });
    const tap = (params: object) => near.call('/inbound/tap', { id: body.id, ...params });
    const first = await tap({});
    expect(first.body).to.deep.include({ gap: false, messages: [] });
    expect(first.headers.get('postern-hosts-missing')).to.equal(null);
    const [position] = /(?<=near:)\d+/.exec(first.body.cursor) ?? [];
    // As a host alone gives it.
    expect((await tap({ cursor: Number(position) })).body).to.deep.equal({ ...first.body, gap: true });
    expect((await tap({ cursor: first.body.cursor })).body).to.deep.equal(first.body);
    for (const cursor of ['x', 'near', {}]) expect((await tap({ cursor })).body.name).to.equal('ValidationError');
    await setHost('far', { url: '' });
    const part = await tap({ cursor: first.body.cursor });
    expect(part.body).to.deep.equal(first.body);
    expect(part.headers.get('postern-hosts-missing')).to.equal('far.test');
  });

  it('take cursors of a form that they have made only', async () => {
    for (const before of ['x', 'near', 'near:1;far:2', 'near:-1', `near:${'9'.repeat(16)}`, ',', ':1', {}, -1])
      expect((await near.call('/inbound/search', { before })).body.name, String(before)).to.equal('ValidationError');
    const unknown = await near.call('/inbound/search', { before: 'gone:5' });
    expect(unknown.body).to.deep.equal({ mails: [], next: null });
    expect(unknown.headers.get('postern-hosts-missing')).to.equal('far.test');
  });

  it('count a call for the limit of its account once, and never forward a forwarded one', async () => {
    const before = [near, far].map((world) => world.log.of('api.call').length);
    await near.call('/inbound/search', { query: 'once' });
    expect([near, far].map((world) => world.log.of('api.call').length)).to.deep.equal([
      (before[0] ?? 0) + 1,
      before[1],
    ]);
  });

  it('show an account nothing of another account in a list', async () => {
    for (const path of ['/inbound/search', '/inbound/deliveries', '/endpoints/list', '/actions/list'])
      expect(JSON.stringify((await near.call(path, { key: OTHER_KEY })).body), path).not.to.contain('joined');
  });

  it('show an account nothing of another account', async () => {
    const answer = await near.call('/inbound/content', { id, key: OTHER_KEY });
    expect(answer.body.name).to.equal('Unknown_Message');
  });

  it('name one whose version does not know a call, and continue to ask it others', async () => {
    let asked = 0;
    const older = createServer((_, response) => {
      asked++;
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify(toEnvelope(refusal('Unknown_Operation', 'There is no operation /users/info'))));
    });
    await once(older.listen(0, '127.0.0.1'), 'listening');
    try {
      const { port } = older.address() as AddressInfo;
      await setHost('far', { url: `http://127.0.0.1:${port}` });
      const silent = near.log.of('api.peer_silent').length;
      for (let calls = 1; calls <= 2; calls++) {
        const answer = await near.call('/users/info', {});
        expect([answer.status, answer.headers.get('postern-hosts-missing'), asked]).to.deep.equal([
          200,
          'far.test',
          calls,
        ]);
      }
      expect(near.log.of('api.peer_silent').length).to.equal(silent);
    } finally {
      older.closeAllConnections();
      older.close();
    }
  });

  it('send a message again at most once if an answer is lost, and pass over one that cannot be reached', async () => {
    const sent = '5c1e0d000000000000000000000000aa';
    await putSubmitted(far, ACCOUNT, sent, {});
    const queued = async () => (await far.spool.list({ kinds: ['outbound'] }, 10)).length;
    const silent = createServer((request) => request.socket.destroy());
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    const { port } = silent.address() as AddressInfo;
    try {
      // It is asked before the other.
      await near.store.hosts.remove({ id: 'far' });
      await setHost('earlier', { url: `http://127.0.0.1:${port}` });
      await setHost('far', { url: far.base });
      const lost = await near.call('/messages/resend', { id: sent });
      expect({ status: lost.status, name: lost.body.name }).to.deep.equal({ status: 500, name: 'GeneralError' });
      expect(lost.body.message).to.match(/^The answer of earlier\.test is lost\./);
      expect(await queued()).to.equal(1);
      await setHost('earlier', { url: `http://127.0.0.1:${await freePort()}` });
      await near.store.hosts.remove({ id: 'far' });
      await setHost('far', { url: far.base });
      expect((await near.call('/messages/resend', { id: sent })).body).to.include({ status: 'queued' });
      expect(await queued()).to.equal(2);
    } finally {
      await near.store.hosts.remove({ id: 'earlier' });
      silent.close();
    }
  });

  it('show operators how each of them stands, and which do not answer', async () => {
    const list = async () => (await operator.write('/console/call/host/hosts')).body.hosts;
    const [here, other, ...rest] = await list();
    expect(rest).to.deep.equal([]);
    expect(here).to.include({ name: 'mx.postern.test', here: true, state: 'running' });
    expect(other).to.include({ name: 'far.test', here: false, state: 'running', version: '1', waiting: 7, dead: 2 });
    const ago = toTimestamp(new Date(far.clock.now() - 60_000));
    expect(other.oldest_at).to.equal(ago);
    const unknown = { waiting: null, dead: null, oldest_at: null };
    await setHost('far', { url: '' });
    expect((await list())[1]).to.deep.include({ state: 'unanswered', ...unknown });
    await setHost('far', { incarnation: null });
    expect((await list())[1]).to.deep.include({ state: 'stopped', ...unknown });
  });

  describe('change the queues of all of them for an operator', () => {
    let tests = 0;
    let url: string;
    let query: string;
    const change = async (name: string, params: object) => {
      const { status, body } = await operator.write(`/console/call/host/${name}`, params);
      return { status, body };
    };
    const hosts = (here: number, there: number) => [
      { name: 'mx.postern.test', count: here, job: null, error: null },
      { name: 'far.test', count: there, job: null, error: null },
    ];
    const hostsWithout = (here: number, error: string) => [
      ...hosts(here, 0).slice(0, 1),
      { name: 'far.test', count: 0, job: null, error },
    ];
    const statesOf = async (world: World) => (await world.spool.list({ url }, 10)).map(({ state }) => state);
    /** Mail for the endpoint of this test: `count` deliveries. */
    async function mail(world: World, count: number): Promise<void> {
      const to = Array.from({ length: count }, (_, n) => `op${tests}-${n}@inbound.example.com`);
      for (let at = 0; at < count; at += 500)
        await world.call('/inbound/send-raw', {
          raw_message: 'From: ann@example.com\r\n\r\nx',
          to: to.slice(at, at + 500),
        });
    }
    beforeEach(async () => {
      tests++;
      url = `https://app.example.com/op${tests}`;
      query = `url:${url}`;
      await near.call('/inbound/add-route', { domain: 'inbound.example.com', pattern: `op${tests}-*`, url });
      await far.routing.refresh();
    });

    it('count on all, change at most the confirmed number in all, and say how many on which', async () => {
      await mail(near, 1);
      await mail(far, 2);
      const counted = { matched: 3, by_state: [{ state: 'waiting', count: 3 }], job: null, hosts: hosts(1, 2) };
      expect((await change('drop', { query, dry_run: true })).body).to.deep.equal({ ...counted, changed: 0 });
      const few = await change('drop', { query, at_most: 2 });
      expect([few.status, few.body.message]).to.deep.equal([
        422,
        'Validation error: {"at_most":"3 deliveries match now (limit 2); review and retry"}',
      ]);
      expect([await statesOf(near), await statesOf(far)]).to.deep.equal([['waiting'], ['waiting', 'waiting']]);
      expect((await change('retry', { query })).body).to.include({ matched: 3, changed: 3 });
      expect((await change('drop', { query, at_most: 3 })).body).to.deep.equal({ ...counted, changed: 3 });
      expect([await statesOf(near), await statesOf(far)]).to.deep.equal([['dropped'], ['dropped', 'dropped']]);
    });

    it('note the actor on each host, and on the called host the changes of the others', async () => {
      await mail(near, 1);
      await mail(far, 2);
      await change('drop', { query });
      const dropped = async (world: World, account: string) => {
        await world.journal.flush();
        const { rows } = await world.journal.history.actions(account, 50);
        return rows.filter(({ what, detail }) => what === 'dropped' && detail.endsWith(query));
      };
      const [own, theirs, asked] = [await dropped(near, ACCOUNT), await dropped(far, ACCOUNT), await dropped(near, '')];
      expect(own.map(({ by, count }) => [by, count])).to.deep.equal([['ada', 1]]);
      expect(theirs.map(({ by, count }) => [by, count])).to.deep.equal([['ada', 2]]);
      expect(asked.map(({ by, count, detail }) => [by, count, detail])).to.deep.equal([
        ['ada', 2, `on far.test: ${query}`],
      ]);
    });

    it('name one that does not answer, and change the others', async () => {
      await mail(near, 1);
      await mail(far, 2);
      for (const [row, why] of [
        [{ url: '' }, 'has no http.peer_url'],
        [{ incarnation: null }, 'does not run'],
        [{ url: 'http://127.0.0.1:9' }, 'does not answer'],
      ] as const) {
        await setHost('far', { url: far.base, ...row });
        expect((await change('drop', { query, dry_run: true })).body).to.deep.include({
          matched: 1,
          hosts: hostsWithout(1, `far.test ${why}; its mail is unchanged`),
        });
      }
      expect((await change('drop', { query, at_most: 1 })).body).to.deep.include({
        changed: 1,
        hosts: hostsWithout(1, 'far.test does not answer; its mail is unchanged'),
      });
      expect([await statesOf(near), await statesOf(far)]).to.deep.equal([['dropped'], ['waiting', 'waiting']]);
    });

    it('say that mail may have been changed if the answer to the change is lost', async () => {
      await mail(near, 1);
      const losing = createServer(async (request, response) => {
        const { call } = JSON.parse(Buffer.concat(await request.toArray()).toString());
        if (!call.dry_run) return void request.socket.destroy();
        response.writeHead(200, { 'postern-peer': 'far' });
        response.end(JSON.stringify({ matched: 2, by_state: [], changed: 0, job: null }));
      });
      await once(losing.listen(0, '127.0.0.1'), 'listening');
      try {
        await setHost('far', { url: `http://127.0.0.1:${(losing.address() as AddressInfo).port}` });
        expect((await change('drop', { query })).body).to.deep.include({
          ...{ matched: 3, changed: 1 },
          hosts: hostsWithout(1, 'far.test was asked, but its answer is lost; its mail may have been changed'),
        });
      } finally {
        losing.close();
      }
    });

    it('change more than a thousand on one of them in a job there, and follow it', async () => {
      await mail(near, 1);
      await mail(far, 1001);
      const { body } = await change('drop', { query });
      expect(body).to.include({ matched: 1002, changed: 1 });
      expect(body.hosts.map(({ count, job }: any) => [count, job])).to.deep.equal([
        [1, null],
        [1001, body.job],
      ]);
      const ended = await until('it has ended', async () => {
        const { body: found } = await change('job', { id: body.job });
        return found.state !== 'running' && found;
      });
      expect(ended).to.deep.equal({ id: body.job, state: 'done', done: 1001, of: 1001, error: null });
      expect((await change('job', { id: 'unknown' })).body.name).to.equal('Unknown_Job');
      await setHost('far', { url: '' });
      const { body: away } = await change('job', { id: body.job });
      expect(away.name).to.equal('Unknown_Job');
      expect(away.message).to.match(/it may be on far\.test, which cannot be asked$/);
    });

    it('pause and resume an endpoint for which only another host has mail, once, and name a host that was not asked', async () => {
      await mail(far, 2);
      const found = { matched: 1, waiting: 2, hosts: hosts(0, 2) };
      expect((await change('pause', { query, dry_run: true })).body).to.deep.equal({ ...found, changed: 0 });
      expect((await change('pause', { query, at_most: 1 })).body).to.deep.equal({ ...found, changed: 1 });
      const paused = async () => (await near.store.pauses.many({ of: ACCOUNT })).filter((row) => row.url === url);
      expect((await paused()).map(({ by }) => by)).to.deep.equal(['operator']);
      await setHost('far', { url: '' });
      expect((await change('resume', { query })).body).to.deep.include({
        ...{ matched: 1, changed: 1 },
        hosts: hostsWithout(0, 'far.test has no http.peer_url; endpoints that only it has mail for are left out'),
      });
      expect(await paused()).to.deep.equal([]);
    });
  });

  it('hide parts of URLs from roles that may not see them, wherever the mail is', async () => {
    const url = 'https://user:password@app.example.com/hook?key=token';
    const domain = 'inbound.example.com';
    await far.call('/inbound/add-route', { domain, pattern: 'hidden', url });
    const raw = 'From: ann@example.com\r\nSubject: x\r\n\r\nHello';
    await far.call('/inbound/send-raw', { raw_message: raw, to: [`hidden@${domain}`] });
    await far.journal.flush();
    const [mail] = (await far.call('/inbound/search', { query: 'to:hidden' })).body.mails;
    const helper = near.browser();
    await addTestPerson(near.store, 'hal', 'helper');
    await helper.enter('hal');
    const { status, body, text } = await helper.write('/console/call/inbound/info', { id: mail.id });
    expect(status, text).to.equal(200);
    expect(body.url).to.match(/^https:\/\/app\.example\.com\/hook\?hidden=/);
    expect(text).not.to.match(/password|token/);
  });

  it('accept only calls signed with the secret of the store, for this process, and for one thing', async () => {
    let calls = 0;
    const post = async (
      path: string,
      { of = 'far', secret = TOKEN_SECRET, account = ACCOUNT, sent = '', n = ++calls } = {},
    ) => {
      const call = { account, apiKey: null, person: null, params: { id } };
      const body = JSON.stringify({ from: 'another process', n, call });
      const text = `peer\nprocess of ${of}\n${path}\n${body}`;
      const signature = createHmac('sha256', secret).update(text).digest('hex');
      const headers = { 'postern-signature': signature };
      const response = await fetch(`${far.base}/peer/1.0${path}`, { method: 'POST', body: sent || body, headers });
      const answer: any = await response.json();
      return { status: response.status, name: answer.name };
    };
    const refused = { status: 401, name: 'Invalid_Key' };
    expect(await post('/inbound/content')).to.deep.equal({ status: 200, name: undefined });
    expect(await post('/inbound/content', { of: 'near' })).to.deep.equal(refused);
    expect(await post('/inbound/content', { secret: 'guessed' })).to.deep.equal(refused);
    expect(await post('/inbound/content', { account: 'nobody' })).to.deep.equal(refused);
    expect(await post('/inbound/content', { sent: `{"key":"${KEY}"}` })).to.deep.equal(refused);
    expect((await post('/keys/list')).name).to.equal('Unknown_Operation');
    expect((await post('/inbound/content', { sent: ' '.repeat(1_100_000) })).name).to.equal('ValidationError');
    // A call that somebody has seen and sends again.
    expect(await post('/inbound/content', { n: 1 })).to.deep.equal(refused);
    expect(await post('/inbound/content', { n: 50_000 })).to.deep.equal({ status: 200, name: undefined });
    expect(await post('/inbound/content', { n: 50_000 - 4096 })).to.deep.equal(refused);
    expect(await post('/inbound/content', { n: 50_000 - 4095 })).to.deep.equal({ status: 200, name: undefined });
    expect(await post('/inbound/content', { n: 50_000 - 4095 })).to.deep.equal(refused);
  });
});
