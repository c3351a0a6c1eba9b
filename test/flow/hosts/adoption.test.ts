import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { mongoDriver } from '../../support/database.ts';
import { type Hosts, inSeconds, RECORDS, send, startHosts } from '../../support/hosts.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

const COPIES = { POSTERN_QUEUE__COPIES: 'store' };
/** A destination whose name servers are down at first. */
const DOWN = { message: { to: [{ email: 'jo@down.test' }] } };
const RECOVERED = { MX: [{ exchange: 'mx.to.test', priority: 10 }] };

if (mongoDriver)
  describe('outgoing mail of a host that is lost with its disk', function () {
    this.timeout(240_000 * PATIENCE);
    let hosts: Hosts;
    afterEach(() => hosts?.stop());

    const times = (subject: string) => hosts.arrived().filter((one) => one === subject).length;
    const adopt = (...options: string[]) => hosts.cli('host', 'adopt', 'c.postern.test', ...options, '--json');
    const listed = async () => (await hosts.cli('host', 'list', '--json')).json();

    /** Accepts mail on a third host, and loses it with its folder. Returns the subjects. */
    async function lose(): Promise<string[]> {
      hosts.zone.set({ ...RECORDS, 'down.test': { fails: 'servfail' } });
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      const subjects: string[] = [];
      const accept = async (subject: string, more: Parameters<typeof send>[2]) => {
        await send(lost, subject, more);
        subjects.push(subject);
      };
      for (let n = 0; n < 10; n++) await accept(`scheduled ${n}`, { send_at: inSeconds(20) });
      for (let n = 0; n < 10; n++) await accept(`waits ${n}`, DOWN);
      await accept('large', { send_at: inSeconds(20), message: { text: 'é'.repeat(1_500_000) } });
      await accept('to many', {
        send_at: inSeconds(20),
        message: { to: Array.from({ length: 30 }, (_, n) => ({ email: `jo-${n}@to.test` })) },
      });
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
      return subjects;
    }

    it('is sent once by the host that adopts it, all of it', async () => {
      hosts = await startHosts(COPIES);
      const subjects = await lose();
      expect((await listed()).find(({ name }: any) => name === 'c.postern.test').copies).to.equal('51');
      hosts.zone.set({ ...RECORDS, 'down.test': RECOVERED });
      const adopted = await adopt('--by', 'b.postern.test');
      expect([adopted.code, adopted.json()[0]?.left], adopted.err).to.deep.equal([0, '0']);
      await until('all of it to arrive', () => hosts.arrived().length >= subjects.length + 29, 120_000 * PATIENCE);
      for (const subject of subjects) expect(times(subject), subject).to.equal(subject === 'to many' ? 30 : 1);
      await until('the copies to leave the store', async () =>
        (await listed()).every(({ copies }: any) => copies === '0'),
      );
      expect((await hosts.a.api('/messages/search', { query: 'large' }))[0].state).to.equal('sent');
      // The same from both hosts: recipients know duplicates by it.
      for (const { raw } of hosts.server.mails) expect(raw).to.match(/^Message-ID: <\w+@c\.postern\.test>\r$/m);
    });

    it('is lost without copies', async () => {
      hosts = await startHosts();
      await lose();
      expect((await listed()).find(({ name }: any) => name === 'c.postern.test').copies).to.equal('0');
      expect((await adopt('--by', 'b.postern.test')).code).to.equal(0);
      await send(hosts.b, 'after', { send_at: inSeconds(22) });
      await until('what came after it', () => times('after') === 1, 60_000 * PATIENCE);
      expect(hosts.arrived()).to.deep.equal(['after']);
    });

    it('is adopted by one of two hosts that are named at once', async () => {
      hosts = await startHosts(COPIES);
      await lose();
      const both = await Promise.all([adopt('--by', 'a.postern.test'), adopt('--by', 'b.postern.test')]);
      expect(both.map(({ code }) => code).toSorted((x, y) => x - y)).to.deep.equal([0, 69]);
      expect(both.map(({ err }) => err).join('')).to.match(/already takes over the mail of c\.postern\.test/);
      await until('all scheduled mail', () => hosts.arrived().length >= 41, 120_000 * PATIENCE);
      expect(new Set(hosts.arrived().filter((subject) => subject !== 'to many')).size).to.equal(11);
      expect(times('to many')).to.equal(30);
    });

    it('is adopted by a command that the store did not answer meanwhile', async () => {
      hosts = await startHosts(COPIES);
      await lose();
      const adopting = hosts.a.cli('host', 'adopt', 'c.postern.test', '--by', 'b.postern.test');
      const lost = async () => (await hosts.rows.hosts.many({})).find(({ name }) => name === 'c.postern.test');
      await until('the adopter to be named', async () => Boolean((await lost())?.adopter));
      hosts.a.store.cut();
      const host = (await lost())?.id ?? '';
      await until('all to be taken', async () => !(await hosts.rows.copies.one({ host })));
      hosts.a.store.mend();
      const { code, err } = await adopting;
      expect(code, err).to.equal(0);
    });

    it('is not sent again by a host that comes back after it was adopted', async () => {
      hosts = await startHosts(COPIES);
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      for (let n = 0; n < 10; n++) await send(lost, `back ${n}`, { send_at: inSeconds(20) });
      await lost.end('SIGKILL');
      expect((await adopt('--by', 'b.postern.test')).code).to.equal(0);
      const back = await hosts.spawn(dir);
      await send(back, 'new', { send_at: inSeconds(8) });
      await until('all of it, and what came after it', () => hosts.arrived().length >= 11, 60_000 * PATIENCE);
      await back.end();
      expect(hosts.arrived().toSorted()).to.deep.equal([...Array.from({ length: 10 }, (_, n) => `back ${n}`), 'new']);
    });

    it('is sent again if it is replayed by hand on a host that was adopted and came back', async () => {
      hosts = await startHosts(COPIES);
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      await send(lost, 'replayed', {});
      await until('it to be sent, and its copy to go', async () => {
        const host = (await listed()).find(({ name }: any) => name === 'c.postern.test');
        return times('replayed') === 1 && host.copies === '0';
      });
      await lost.end('SIGKILL');
      expect((await adopt('--by', 'b.postern.test')).code).to.equal(0);
      const back = await hosts.spawn(dir);
      const ran = await hosts.cliIn(dir, 'replay', '--kind', 'outbound', '--delivered', '--json');
      expect(ran.code, ran.err).to.equal(0);
      await until('it to arrive again', () => times('replayed') === 2, 60_000 * PATIENCE);
      await back.end();
    });

    it('is handed over by a host that goes, and sent once', async () => {
      hosts = await startHosts(COPIES);
      const dir = await tempDir();
      const goes = await hosts.spawn(dir);
      for (let n = 0; n < 10; n++) await send(goes, `drained ${n}`, { send_at: inSeconds(8) });
      await goes.end();
      const ran = await hosts.cliIn(dir, 'host', 'drain', '--by', 'b.postern.test', '--json');
      expect([ran.code, ran.json()[0]?.left], ran.err).to.deep.equal([0, '0']);
      await until('all of it', () => hosts.arrived().length >= 10, 60_000 * PATIENCE);
      expect(hosts.arrived().toSorted()).to.deep.equal(Array.from({ length: 10 }, (_, n) => `drained ${n}`));
    });

    it('waits while the store is away for longer than the lease, and is sent once after that', async () => {
      hosts = await startHosts(COPIES);
      const { b } = hosts;
      await send(b, 'away', { send_at: inSeconds(22) });
      await send(b, 'before', {});
      await until('what is sent before', () => times('before') === 1);
      b.store.cut();
      await send(hosts.a, 'time', { send_at: inSeconds(26) });
      await until('its time to pass', () => times('time') === 1, 60_000 * PATIENCE);
      expect(times('away')).to.equal(0);
      b.store.mend();
      await until('it to arrive', () => times('away') === 1, 60_000 * PATIENCE);
      await send(b, 'after', {});
      await until('what came after', () => times('after') === 1);
      expect(times('away')).to.equal(1);
    });

    it('is not adopted while its host runs', async () => {
      hosts = await startHosts(COPIES);
      const ran = await hosts.cli('host', 'adopt', 'a.postern.test', '--by', 'b.postern.test');
      expect(ran.code).to.equal(64);
      expect(ran.err).to.match(/a\.postern\.test is running\. To decommission it, stop it/);
    });
  });
