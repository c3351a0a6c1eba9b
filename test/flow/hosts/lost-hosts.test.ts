import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Clock } from '../../../src/base/clock.ts';
import { mongoDriver } from '../../support/database.ts';
import { createFastClock } from '../../support/fast-clock.ts';
import { type Host, type Hosts, inSeconds, type More, RECORDS, send, startHosts } from '../../support/hosts.ts';
import { lacks } from '../../support/mongo-server.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

/** The hosts that watch have five seconds in one. */
const FASTER = 5;
const DAY_MS = 86_400_000;
const LONG_MS = 60_000 * PATIENCE;
/** A destination whose name servers are down at first. */
const DOWN = { message: { to: [{ email: 'jo@down.test' }] } };
const RECOVERED = { ...RECORDS, 'down.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] } };

function createClock(wrongMs: number): Clock {
  return { ...createFastClock(FASTER), now: () => Date.now() + wrongMs };
}

const server = mongoDriver;

if (server)
  describe('a host that is lost, with others that take over its mail by themselves', function () {
    this.timeout(240_000 * PATIENCE);
    let hosts: Hosts;
    afterEach(() => hosts?.stop());

    async function start({ wrongMs = 0, afterS = 60, later = [] as readonly ('a' | 'b')[] } = {}): Promise<void> {
      const after = (name: 'a' | 'b') => ({
        POSTERN_HOSTS__ADOPT_AFTER_S: String(later.includes(name) ? 2 * afterS : afterS),
      });
      // By a clock that is faster.
      const patient = { POSTERN_DNS__TIMEOUT_MS: '30000', POSTERN_STORE__TIMEOUT_MS: '25000' };
      const env = { POSTERN_QUEUE__COPIES: 'store', ...patient };
      hosts = await startHosts(env, undefined, after, (name) => createClock(name === 'a' ? wrongMs : -wrongMs));
      hosts.zone.set({ ...RECORDS, 'down.test': { fails: 'servfail' } });
    }

    const recover = () => hosts.zone.set(RECOVERED);
    const named = (count: number) => Array.from({ length: count }, (_, n) => `mail ${n}`);
    async function accept(host: Pick<Host, 'api'>, subjects: readonly string[], more: More = DOWN): Promise<void> {
      for (const subject of subjects) await send(host, subject, more);
    }
    const row = async (name: string) =>
      (await hosts.rows.hosts.many({})).find((one) => one.name === `${name}.postern.test`);
    const adopterOf = async (name: string) => {
      const adopter = (await row(name))?.adopter;
      return adopter && (await hosts.rows.hosts.one({ id: adopter }))?.name;
    };
    const untilAdopted = (name: string, by: string) =>
      until(`${by} to adopt ${name}`, async () => (await adopterOf(name)) === `${by}.postern.test`, LONG_MS);
    const adoptions = () =>
      [hosts.a, hosts.b].flatMap(({ log }) => log.of('host.lost')).map(({ fields }) => fields['name']);
    const untilNoCopies = () =>
      until('no copy to be left', async () => (await hosts.rows.copies.many({}, { limit: 1 })).length === 0, LONG_MS);

    /** What was accepted, and something newer through each host, has arrived once. */
    async function expectEachOnce(
      subjects: readonly string[],
      through: readonly Pick<Host, 'api' | 'ask'>[],
    ): Promise<void> {
      await until('all of it', () => new Set(hosts.arrived()).size >= subjects.length, LONG_MS);
      for (const [n, host] of through.entries()) {
        await until('the host to reach the store', async () => (await host.ask('/users/info')).status === 200, LONG_MS);
        await send(host, `new ${n}`, DOWN);
      }
      const all = [...subjects, ...through.map((_, n) => `new ${n}`)];
      await until('what is newer', () => new Set(hosts.arrived()).size >= all.length, LONG_MS);
      await untilNoCopies();
      expect(hosts.arrived().toSorted()).to.deep.equal(all.toSorted());
    }

    /** Cuts a host off from the store when it has taken over so many rows. */
    function cutAfter(host: Host, changes: number): void {
      let seen = 0;
      host.store.failNext(({ name, collection }) => {
        if (name !== 'findAndModify' || collection !== 'copies' || ++seen <= changes) return false;
        host.store.cut();
        return true;
      }, 'command lost');
    }

    it('is adopted once while it is cut off from the store, and drops what the other has when it returns, by clocks two days apart', async () => {
      await start({ wrongMs: DAY_MS, later: ['a'] });
      const { a, b } = hosts;
      await accept(a, named(5));
      a.store.cut();
      // Not before: attempts in flight may go on.
      await untilAdopted('a', 'b');
      recover();
      expect(b.log.of('host.lost')[0]?.fields).to.include({ name: 'a.postern.test' });
      await until('b to send it', () => hosts.arrived().length === 5, LONG_MS);
      const [listed] = (await (await hosts.cli('host', 'list', '--json')).json()).filter(({ copies }: any) => copies);
      expect(listed).to.include({ name: 'a.postern.test', state: 'silent', adopter: (await row('b'))?.id });
      expect(listed.adopted_at).to.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
      a.store.mend();
      await until('a to be back', async () => (await row('a'))?.incarnation !== null, LONG_MS);
      await expectEachOnce(named(5), [a, b]);
      expect(await a.queue('--state', 'waiting')).to.deep.equal([]);
    });

    it('keeps its mail if it returns in time', async () => {
      // Most of it is left for the return: a busy machine takes its time to connect again.
      await start({ afterS: 600 });
      const { a, b } = hosts;
      await accept(a, named(5));
      a.store.cut();
      const beats = async () => (await row('b'))?.beat ?? 0;
      const before = await beats();
      await until('its beats to be missed', async () => (await beats()) > before + 20, LONG_MS);
      a.store.mend();
      recover();
      await expectEachOnce(named(5), [a, b]);
      expect(adoptions()).to.deep.equal([]);
    });

    const atomically = lacks(server.kind, 'atomic changes') ? it.skip : it;
    atomically('is adopted by one of two that find it lost at the same time', async () => {
      await start();
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      await accept(lost, named(10));
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
      recover();
      await expectEachOnce(named(10), [hosts.a, hosts.b]);
      expect(adoptions()).to.deep.equal(['c.postern.test']);
    });

    it('is adopted by the next, if its adopter is cut off midway, and nothing is sent again when that returns', async () => {
      await start({ later: ['a'] });
      const { a, b } = hosts;
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      await accept(lost, named(20));
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
      cutAfter(b, 7);
      await untilAdopted('c', 'b');
      await untilAdopted('c', 'a');
      await untilAdopted('b', 'a');
      recover();
      await until('a to send it', () => new Set(hosts.arrived()).size === 20, LONG_MS);
      b.store.mend();
      await until('b to be back', async () => (await row('b'))?.incarnation !== null, LONG_MS);
      await expectEachOnce(named(20), [a, b]);
    });

    it('keeps what is still its own, if it returns while it is being adopted', async () => {
      await start({ later: ['a'] });
      const { b } = hosts;
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      await accept(lost, named(20), { send_at: inSeconds(40) });
      await lost.end('SIGKILL');
      cutAfter(b, 7);
      await untilAdopted('c', 'b');
      const own = (await row('b'))?.id ?? '';
      await until(
        'b to have a part',
        async () => (await hosts.rows.copies.many({ host: own }, { limit: 1 })).length > 0,
      );
      const back = await hosts.spawn(dir);
      b.store.mend();
      recover();
      await expectEachOnce(named(20), [back, b]);
      await back.end();
    });
  });
