import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { mongoDriver } from '../../support/database.ts';
import { eventsOf } from '../../support/events.ts';
import { type Hosts, send, startHosts } from '../../support/hosts.ts';
import type { How, Received } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

const COPIES = { POSTERN_QUEUE__COPIES: 'store' };
const DOWN: How = { status: 503 };

if (mongoDriver)
  describe('webhook events of a host that is lost with its disk', function () {
    this.timeout(240_000 * PATIENCE);
    let hosts: Hosts;
    /** Events of posts that were answered with 2xx, as often as they came. */
    let taken: { id: string; what: string; body: string }[];
    afterEach(() => hosts?.stop());

    async function start(env?: Readonly<Record<string, string>>): Promise<void> {
      hosts = await startHosts(env);
      taken = [];
      await hosts.a.api('/webhooks/add', { url: hosts.hook.url, events: ['send', 'blacklist'] });
    }

    /** Answers posts from now on, and notes the events of those that it accepts. */
    function answer(how: How | ((post: Received) => Promise<How>)): void {
      hosts.hook.answer(async (post) => {
        const chosen = typeof how === 'function' ? await how(post) : how;
        if (typeof chosen === 'object' && 'status' in chosen && chosen.status === 200) note(post);
        return chosen;
      });
    }

    function note(post: Received): void {
      for (const event of eventsOf(post))
        taken.push({
          id: event._id ?? `${event.type} ${event.reject?.email}`,
          what: event.msg?.subject ?? event.reject?.email,
          body: JSON.stringify(event),
        });
    }

    /** Whether hosts have all events that were recorded, this number, on their queues. */
    async function areQueued(count: number): Promise<boolean> {
      const events = await hosts.rows.messageEvents.many({});
      const rejects = await hosts.rows.rejects.many({});
      return events.length + rejects.length === count && [...events, ...rejects].every(({ unsent }) => unsent === null);
    }
    const names = () => [...new Set(taken.map(({ what }) => what))].toSorted();
    const adopt = () => hosts.cli('host', 'adopt', 'c.postern.test', '--by', 'b.postern.test', '--json');
    const listed = async () => (await hosts.cli('host', 'list', '--json')).json();
    const copies = async () => (await listed()).map(({ copies }: any) => copies);

    /** Lets a third host send mail and change a list, and loses it when the events are `so`. Returns what each is about. */
    async function lose(so: () => boolean | Promise<boolean>): Promise<string[]> {
      const dir = await tempDir();
      const lost = await hosts.spawn(dir);
      const about = Array.from({ length: 12 }, (_, n) => `event ${n}`);
      for (const subject of about) await send(lost, subject);
      await lost.api('/rejects/add', { email: 'no@in.test' });
      await until('all of the mail', () => about.every((subject) => hosts.arrived().includes(subject)));
      await until('the events', so);
      await lost.end('SIGKILL');
      await rm(join(dir, 'spool'), { recursive: true });
      return [...about, 'no@in.test'].toSorted();
    }

    it('are posted by the host that adopts it, if their endpoint was down', async () => {
      await start(COPIES);
      answer(DOWN);
      const about = await lose(() => areQueued(13));
      const lost = (await listed()).find(({ name }: any) => name === 'c.postern.test');
      expect(Number(lost.copies)).to.be.at.least(13);
      answer({ status: 200 });
      const adopted = await adopt();
      expect([adopted.code, adopted.json()[0]?.left], adopted.err).to.deep.equal([0, '0']);
      await until('all of them', () => names().length === 13, 60_000 * PATIENCE);
      expect(names()).to.deep.equal(about);
      expect(taken, 'each once').to.have.length(13);
      await until('the copies to leave the store', async () =>
        (await copies()).every((count: string) => count === '0'),
      );
    });

    it('are posted again with the same bytes, if it had posted them and waited for the answer', async () => {
      await start(COPIES);
      let isHung = true;
      answer(async (post) => {
        // The endpoint has taken them, but the host did not hear of it.
        if (isHung) note(post);
        return isHung ? 'hang' : { status: 200 };
      });
      // No more than four batches are in flight; the rest waits for one.
      const about = await lose(() => names().length > 0);
      const before = taken.splice(0);
      isHung = false;
      expect((await adopt()).code).to.equal(0);
      await until('all of them', () => names().length === 13, 60_000 * PATIENCE);
      expect(names()).to.deep.equal(about);
      const known = new Map(before.map(({ id, body }) => [id, body]));
      for (const { id, body } of taken) if (known.has(id)) expect(body).to.equal(known.get(id));
    });

    it('leave the store once they are delivered, and are not posted again', async () => {
      await start(COPIES);
      answer({ status: 200 });
      await lose(async () => names().length === 13 && (await copies()).every((count: string) => count === '0'));
      expect((await adopt()).code).to.equal(0);
      await hosts.b.api('/rejects/add', { email: 'after@in.test' });
      await until('what came after', () => names().includes('after@in.test'));
      expect(taken).to.have.length(14);
    });

    it('are lost without copies', async () => {
      await start();
      answer(DOWN);
      await lose(() => areQueued(13));
      answer({ status: 200 });
      expect((await adopt()).code).to.equal(0);
      await hosts.b.api('/rejects/add', { email: 'after@in.test' });
      await until('what came after', () => names().includes('after@in.test'));
      expect(names()).to.deep.equal(['after@in.test']);
    });

    it('are on the host that has them only, while it lives', async () => {
      await start(COPIES);
      answer(DOWN);
      for (let n = 0; n < 5; n++) await hosts.a.api('/rejects/add', { email: `no-${n}@in.test` });
      await until('the events at A', () => areQueued(5));
      expect(await hosts.b.queue('--kind', 'events')).to.have.length(0);
      answer({ status: 200 });
      await until('all of them', () => names().length === 5, 60_000 * PATIENCE);
      expect(taken).to.have.length(5);
    });
  });
