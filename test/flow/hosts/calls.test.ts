import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { mongoDriver } from '../../support/database.ts';
import { freePort } from '../../support/free-port.ts';
import { type Host, type Hosts, send, startHosts } from '../../support/hosts.ts';
import { message, sendMail } from '../../support/mail.ts';
import { PATIENCE, until } from '../../support/until.ts';

if (mongoDriver)
  describe('a call about a thing on another host', function () {
    this.timeout(60_000 * PATIENCE);
    let hosts: Hosts;
    before(async () => {
      const ports = { a: await freePort(), b: await freePort() };
      hosts = await startHosts({}, undefined, (name) => ({
        POSTERN_HTTP__LISTEN: `127.0.0.1:${ports[name]}`,
        POSTERN_HTTP__PEER_URL: `http://127.0.0.1:${ports[name]}`,
        POSTERN_JOURNAL__SUBJECTS: String(name === 'a'),
      }));
      await hosts.a.api('/inbound/add-domain', { domain: 'in.test' });
      await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: 'box', url: `${hosts.hook.url}` });
      await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: 'pull', url: 'pull:' });
    });
    after(() => hosts?.stop());

    const accepted = new Set<string>();
    /** Mail that a host accepted; answers the id of its delivery. */
    async function accept(host: Host, box: string): Promise<string> {
      await host.api('/inbound/send-raw', {
        raw_message: `From: a@sender.test\r\nSubject: for ${box}\r\n\r\nHello.`,
        to: [`${box}@in.test`],
      });
      const listed = await host.api('/inbound/deliveries', { domain: 'in.test' });
      const { id } = listed.find((one: any) => !accepted.has(one.id));
      accepted.add(id);
      return id;
    }

    /** The history knows a delivery a moment after the queue. */
    const isDelivered = async (id: string) => (await hosts.a.ask('/inbound/info', { id })).body.state === 'delivered';

    it('is answered by any host: content, payload, history, a trial', async () => {
      const id = await accept(hosts.a, 'box');
      await until('it is delivered', () => isDelivered(id));
      for (const path of ['/inbound/content', '/inbound/payload', '/inbound/info'])
        expect(await hosts.b.api(path, { id }), path).to.deep.equal(await hosts.a.api(path, { id }));
      expect(await hosts.b.api('/inbound/try', { id, url: hosts.hook.url })).to.include({ status: 200 });
    });

    it('acknowledges a lease of pulled mail on any host', async () => {
      const id = await accept(hosts.b, 'pull');
      const [mail] = await hosts.b.api('/inbound/pull');
      expect(await hosts.a.api('/inbound/ack', { lease: mail.lease })).to.deep.equal({ ended: 1, unknown: [] });
      await until('it is delivered', () => isDelivered(id));
    });

    it('hands out the pulled mail of all hosts on one, and ends leases of all in one call', async () => {
      const ids = [await accept(hosts.a, 'pull'), await accept(hosts.b, 'pull')];
      const pulled: any[] = [];
      await until('both are pulled', async () => {
        pulled.push(...(await hosts.a.api('/inbound/pull', { wait: 2 })));
        return pulled.length === 2;
      });
      expect(pulled.map((mail) => mail.id)).to.have.members(ids);
      const leases = pulled.map((mail) => mail.lease);
      const answer = await hosts.b.api('/inbound/ack', { leases: [...leases, 'unknown'] });
      expect(answer).to.deep.equal({ ended: 2, unknown: ['unknown'] });
      expect(await hosts.a.api('/inbound/pull')).to.deep.equal([]);
      expect((await hosts.a.ask('/inbound/nack', { leases })).body.name).to.equal('Unknown_Lease');
    });

    it('answers a pull that waits on one host with mail of another', async () => {
      const pulling = hosts.a.api('/inbound/pull', { wait: 20 });
      const id = await accept(hosts.b, 'pull');
      const [mail] = await pulling;
      expect(mail.id).to.equal(id);
      expect(Buffer.from(mail.body, 'base64').toString()).to.contain('for+pull');
      await hosts.b.api('/inbound/ack', { lease: mail.lease });
    });

    it('searches and lists the mail of all of them', async () => {
      const ids = [await accept(hosts.a, 'box'), await accept(hosts.b, 'box')];
      const found = async (host: Host) => (await host.api('/inbound/search', { query: 'to:box' })).mails;
      for (const host of [hosts.a, hosts.b]) {
        await until('both are found', async () => {
          const mails = (await found(host)).map((mail: any) => mail.id);
          return ids.every((id) => mails.includes(id));
        });
        const listed = (await host.api('/inbound/deliveries', { domain: 'in.test' })).map((one: any) => one.id);
        expect(listed).to.include.members(ids);
      }
      for (const id of ids) await until('it is delivered', () => isDelivered(id));
    });

    it('copies the mail of a watched route from all of them to a consumer of one', async () => {
      const [{ id: route }] = (await hosts.a.api('/inbound/routes', { domain: 'in.test' })).filter(
        (one: any) => one.pattern === 'box',
      );
      let { cursor } = await hosts.a.api('/inbound/tap', { id: route });
      const seen: string[] = [];
      /** Asks hosts in turn, with one cursor. */
      const watch = async (count: number) => {
        for (let n = 0; seen.length < count; n++) {
          const { api } = [hosts.a, hosts.b][n % 2] ?? hosts.a;
          const answer = await api('/inbound/tap', { id: route, cursor, wait: 5 });
          expect(answer.gap).to.equal(false);
          seen.push(...answer.messages.map((one: any) => one.id));
          for (const { body } of answer.messages) expect(Buffer.from(body, 'base64').toString()).to.contain('for+box');
          cursor = answer.cursor;
        }
      };
      const ids = [await accept(hosts.b, 'box'), await accept(hosts.a, 'box'), await accept(hosts.b, 'box')];
      await watch(3);
      // While a call waits.
      const waiting = watch(4);
      ids.push(await accept(hosts.b, 'box'));
      await waiting;
      expect(seen).to.have.members(ids);
      for (const id of ids) await until('it is delivered', () => isDelivered(id));
      await hosts.b.down();
      const without = await hosts.a.ask('/inbound/tap', { id: route, cursor });
      expect(without.body).to.deep.equal({ cursor, gap: false, messages: [] });
      await hosts.b.up();
      const back = await hosts.a.api('/inbound/tap', { id: route, cursor });
      expect(back).to.deep.include({ gap: true, messages: [] });
      expect(back.cursor).to.not.equal(cursor);
      expect((await hosts.a.ask('/inbound/tap', { id: 'nothing' })).body.name).to.equal('Unknown_InboundRoute');
    });

    it('counts what waits on all of them', async () => {
      const backlog = async ({ api }: Host) => (await api('/users/info')).backlog;
      expect([await backlog(hosts.a), await backlog(hosts.b)]).to.deep.equal([0, 0]);
      const ids = [await accept(hosts.a, 'pull'), await accept(hosts.b, 'pull'), await accept(hosts.b, 'pull')];
      expect([await backlog(hosts.a), await backlog(hosts.b)]).to.deep.equal([3, 3]);
      await hosts.a.api('/inbound/drop', { ids });
      expect([await backlog(hosts.a), await backlog(hosts.b)]).to.deep.equal([0, 0]);
    });

    it('sends a message again, once, from the host that has its content', async () => {
      const id = await send(hosts.b, 'again');
      await until('it arrives', () => hosts.arrived().includes('again'));
      const sent = await hosts.a.api('/messages/resend', { id });
      expect(sent).to.include({ status: 'queued', email: 'jo@to.test' });
      expect(sent._id).to.not.equal(id);
      await until('the next', () => hosts.arrived().length === 2);
      expect((await hosts.a.api('/messages/content', { id: sent._id })).subject).to.equal('again');
      await hosts.b.down();
      const { body } = await hosts.a.ask('/messages/resend', { id });
      expect(body).to.include({ name: 'Unknown_Message' });
      expect(body.message).to.match(/it may be on b\.postern\.test, which cannot be asked$/);
      await hosts.b.up();
    });

    it('pauses and resumes an endpoint on all of them within two seconds, also one that restarts meanwhile', async () => {
      const url = hosts.hook.url;
      hosts.hook.answer({ status: 500 });
      const id = await accept(hosts.b, 'box');
      const waits = async () => (await hosts.b.ask('/inbound/info', { id })).body.waits?.kind;
      await until('it has failed once', async () => (await waits()) === 'backoff');
      await hosts.a.api('/endpoints/pause', { url });
      await until('it is paused on the other host', async () => (await waits()) === 'paused', 2000 * PATIENCE);
      hosts.hook.answer({ status: 200 });
      const posts = hosts.hook.requests.length;
      await hosts.b.down();
      await hosts.b.up();
      expect(await waits()).to.equal('paused');
      expect((await hosts.b.api('/endpoints/info', { url })).paused).to.equal(true);
      expect(hosts.hook.requests.length).to.equal(posts);
      await hosts.b.api('/endpoints/resume', { url });
      await hosts.b.api('/endpoints/retry', { url });
      await accept(hosts.a, 'box');
      await until('both hosts post again', () => hosts.hook.requests.length === posts + 2, 2000 * PATIENCE);
    });

    it('changes the queues of all hosts from the command line of one, or that of one with --host', async () => {
      const run = (...argv: string[]) => hosts.cliIn(hosts.a.dir, ...argv);
      hosts.hook.answer({ status: 500 });
      const ids = [await accept(hosts.a, 'box'), await accept(hosts.b, 'box')];
      const both = ': 1 on a.postern.test, 1 on b.postern.test.\n';
      expect((await run('queue', 'flush', '--dry-run')).out).to.equal(`Would retry 2 deliveries${both}`);
      expect((await run('queue', 'retry', '--all', '--host', 'b.postern.test')).out).to.equal('Retrying 1 delivery.\n');
      expect((await run('queue', 'drop', ...ids)).out).to.equal(`Dropped 2 deliveries${both}`);
      const dropped = await hosts.a.api('/inbound/deliveries', { domain: 'in.test', state: 'dropped' });
      expect(dropped.map((one: any) => one.id)).to.include.members(ids);
      // The daemon gathers its entries for a moment.
      await until('each host to have noted it', async () => {
        const { actions } = await hosts.b.api('/actions/list');
        const noted = actions.filter((one: any) => one.what === 'dropped' && one.by === 'command line');
        return noted.map(({ count }: any) => count).join() === '1,1';
      });
      hosts.hook.answer({ status: 200 });
      // By an id that only the other host knows.
      const [replayed] = (await run('replay', ids[1] ?? '', '--json')).json();
      expect(replayed).to.deep.equal({
        ...{ count: 1, dry_run: false },
        hosts: [
          { name: 'a.postern.test', count: 0, error: null },
          { name: 'b.postern.test', count: 1, error: null },
        ],
      });
      await hosts.b.api('/endpoints/retry', { url: hosts.hook.url });
      await until('it is delivered', () => isDelivered(ids[1] ?? ''));
      expect((await run('queue', 'flush', '--host', 'c.postern.test')).err).to.contain(
        'no such host: c.postern.test (see: postern host list)',
      );
    });

    it('waits on the command line for the job of another host that changes more than a thousand', async () => {
      const url = 'pull:many';
      const { id: route } = await hosts.b.api('/inbound/add-route', { domain: 'in.test', pattern: 'many-*', url });
      const to = Array.from({ length: 1001 }, (_, n) => `many-${n}@in.test`);
      for (let at = 0; at < to.length; at += 500)
        await hosts.b.api('/inbound/send-raw', {
          raw_message: 'From: a@sender.test\r\n\r\nx',
          to: to.slice(at, at + 500),
        });
      const dropped = await hosts.cliIn(hosts.a.dir, 'queue', 'drop', '--route', route);
      expect(dropped).to.include({ code: 0, out: 'Dropped 1001 deliveries: 1001 on b.postern.test.\n' });
      expect((await hosts.a.api('/users/info')).backlog).to.equal(0);
      // Its history is read in several pages.
      const find = async () =>
        (await hosts.cliIn(hosts.a.dir, 'mail', 'find', 'to:many', '--limit', '2000', '--json')).json();
      await until('the history to know all of them', async () => (await find()).length === to.length);
      expect(new Set((await find()).map((one: any) => one.to))).to.deep.equal(new Set(to));
    });

    it('lists the queues and histories of all hosts on the command line, each by the settings of its host', async () => {
      const run = (...argv: string[]) => hosts.cliIn(hosts.a.dir, ...argv);
      const rows = async (...argv: string[]) => (await run(...argv, '--json')).json();
      await hosts.a.api('/inbound/add-route', { domain: 'in.test', pattern: 'list', url: 'pull:list' });
      const [first, second] = [await accept(hosts.a, 'list'), await accept(hosts.b, 'list')];
      const a = { host: 'a.postern.test', id: first, subject: 'for list' };
      const b = { host: 'b.postern.test', id: second, subject: null };
      const named = (all: any[]) => all.map(({ host, id, subject }) => ({ host, id, subject }));
      const listing = ['queue', 'list', '--url', 'pull:list'];
      expect(named(await rows(...listing))).to.deep.equal([b, a]);
      expect(named(await rows(...listing, '--limit', '1'))).to.deep.equal([b]);
      const [only, ...more] = await rows(...listing, '--host', 'b.postern.test');
      expect(more).to.deep.equal([]);
      expect(only).to.include({ id: second }).and.to.not.have.property('host');
      const { out } = await run(...listing);
      expect(out)
        .to.match(/^host +id +state /)
        .and.to.match(/\n2 waiting, /);

      const endpoints = (await rows('queue', 'endpoints')).filter((one: any) => one.url === 'pull:list');
      expect(endpoints.map(({ host, waiting }: any) => [host, waiting])).to.have.deep.members([
        ['a.postern.test', 1],
        ['b.postern.test', 1],
      ]);

      await until('both histories know it', async () => (await rows('mail', 'find', 'to:list')).length === 2);
      expect(named(await rows('mail', 'find', 'to:list'))).to.deep.equal([b, a]);
      const one = await run('mail', 'find', 'to:list', '--limit', '1');
      expect(one.out).to.match(/^host +id .*\nb\.postern\.test +.*\n\nMore rows match; see --limit\.\n$/);

      const to = 'nobody@in.test';
      for (const { smtp } of [hosts.b, hosts.a, hosts.b])
        expect(await sendMail(smtp, { from: 'ada@example.org', to }, message('x'))).to.match(/^550 /);
      const refused = async () => (await rows('mail', 'refused', to)).map(({ host }: any) => host);
      await until('the refusals are noted', async () => (await refused()).length === 3);
      expect(await refused()).to.deep.equal(['b.postern.test', 'a.postern.test', 'b.postern.test']);
      expect((await run('mail', 'refused', to)).out).to.match(/^host +age .*\n3 × /s);
      expect((await run('mail', 'find', to)).out).to.equal(
        'No matching mail.\n\n3 refusals match: postern mail refused\n',
      );
      await hosts.a.api('/inbound/drop', { ids: [first, second] });
    });

    it('shows on the command line mail that only another host has, and names that host', async () => {
      const run = (...argv: string[]) => hosts.cliIn(hosts.a.dir, ...argv);
      const id = await accept(hosts.b, 'pull');
      const facts = `host         b.postern.test\nid           ${id}\n`;
      const shown = await run('queue', 'show', id);
      expect(shown).to.include({ code: 0, err: '' });
      expect(shown.out.startsWith(facts), shown.out).to.equal(true);
      expect(shown.out).to.match(/\nwaits +Waiting to be pulled\n/);
      await until('its history knows it', async () => (await run('mail', 'show', id)).code === 0);
      const [story] = (await run('mail', 'show', id, '--json')).json();
      expect(story).to.include({ host: 'b.postern.test', id, waits: 'Waiting to be pulled', subject: null });
      expect(story.timeline).to.not.equal([]);
      expect((await run('mail', 'show', story.message_id)).out.startsWith(facts)).to.equal(true);
      expect(await run('queue', 'show', '--raw', id)).to.include({
        ...{ code: 1, out: '', err: `${id} is on b.postern.test; run the command there.\n` },
      });
      // What this host has is shown without asking others.
      const [own] = (await hosts.cliIn(hosts.b.dir, 'queue', 'show', id, '--json')).json();
      expect(own).to.include({ id }).and.to.not.have.property('host');
      expect(await run('queue', 'show', 'nothing')).to.include({
        ...{ code: 1, out: '', err: 'No delivery nothing in the queue of any host.\n' },
      });
      await hosts.a.api('/inbound/drop', { ids: [id] });
    });

    it('says on the command line which hosts did not answer, and exits 1 if one of them should', async () => {
      const run = (...argv: string[]) => hosts.cliIn(hosts.a.dir, ...argv);
      const id = await accept(hosts.a, 'pull');
      const silent = (why: string) => `b.postern.test ${why}; its mail is unchanged.\n`;
      const stopped = silent('does not run');
      const [row] = await hosts.rows.hosts.many({ name: 'b.postern.test' });
      await hosts.rows.hosts.change({ id: row?.id ?? '' }, { url: 'http://127.0.0.1:9' });
      const missed = await run('queue', 'drop', '--all', '--dry-run');
      expect(missed).to.include({
        code: 1,
        err: silent('does not answer'),
        out: 'Would drop 1 delivery: 1 on a.postern.test.\n',
      });
      const unlisted = (why: string) => `b.postern.test ${why}; its rows are not listed.\n`;
      const unfound = (why: string) => `No mail nothing was found; b.postern.test ${why} and may have it.\n`;
      const listed = await run('queue', 'list', '--json');
      expect(listed).to.include({ code: 1, err: unlisted('does not answer') });
      expect(listed.json().map((one: any) => [one.host, one.id])).to.deep.equal([['a.postern.test', id]]);
      expect(await run('mail', 'show', 'nothing')).to.include({ code: 1, err: unfound('does not answer') });
      expect(await run('mail', 'find', '--host', 'b.postern.test')).to.include({
        ...{ code: 1, out: '', err: unlisted('does not answer') },
      });
      await hosts.b.down();
      expect(await run('queue', 'endpoints')).to.include({ code: 0, err: unlisted('does not run') });
      expect(await run('mail', 'show', 'nothing')).to.include({ code: 1, err: unfound('does not run') });
      expect(await run('queue', 'drop', id)).to.include({
        ...{ code: 0, err: stopped, out: 'Dropped 1 delivery: 1 on a.postern.test.\n' },
      });
      expect(await run('queue', 'flush', '--host', 'b.postern.test')).to.include({ code: 1, err: stopped });
      await hosts.b.up();
      // Without the store only this host is known.
      const env = { POSTERN_DATA_DIR: hosts.a.dir, POSTERN_STORE__URL: 'mongodb://127.0.0.1:9/gone' };
      const alone = await postern(['queue', 'flush', '--dry-run'], env);
      expect(alone).to.include({ code: 75, out: 'Would retry 0 deliveries.\n' });
      expect(alone.err).to.match(/^The other hosts of the store were not asked: /);
      const some = await postern(['queue', 'list', '--state', 'dropped', '--limit', '1', '--json'], env);
      expect(some).to.include({ code: 75, err: alone.err });
      expect(some.json()).to.have.length(1);
      expect(some.json()[0]).to.not.have.property('host');
      const none = await postern(['queue', 'show', 'nothing'], env);
      expect(none).to.include({ code: 75, err: `No delivery nothing in the queue of this host.\n${alone.err}` });
      const named = { ...env, POSTERN_HOSTNAME: 'a.postern.test' };
      expect(await postern(['queue', 'flush', '--dry-run', '--host', 'a.postern.test'], named)).to.include({
        ...{ code: 0, err: '' },
      });
    });

    it('names the host that may have it, while that host is down', async () => {
      const id = await accept(hosts.b, 'box');
      await hosts.b.down();
      const { status, body } = await hosts.a.ask('/inbound/content', { id });
      expect({ status, name: body.name }).to.deep.equal({ status: 404, name: 'Unknown_Message' });
      expect(body.message).to.match(/it may be on b\.postern\.test, which cannot be asked$/);
      await hosts.b.up();
      expect((await hosts.a.api('/inbound/content', { id })).text).to.contain('Hello.');
    });
  });
