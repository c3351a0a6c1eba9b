import { expect } from 'chai';
import { mongoDriver } from '../../support/database.ts';
import { type Hosts, inSeconds, send, startHosts } from '../../support/hosts.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE, until } from '../../support/until.ts';

if (mongoDriver)
  describe('a scheduled message on one of two hosts', function () {
    this.timeout(60_000 * PATIENCE);
    let hosts: Hosts;
    before(async () => {
      hosts = await startHosts();
    });
    after(() => hosts?.stop());

    const arrives = async (subject: string, ms?: number) => {
      try {
        await until(`${subject} to arrive`, () => hosts.arrived().includes(subject), ms);
      } catch (error) {
        // A message that does not come waits somewhere, and its record says since when and for what.
        const waiting = JSON.stringify({ a: await hosts.a.queue(), b: await hosts.b.queue() });
        throw new Error(`${error instanceof Error ? error.message : error}; the queues: ${waiting}`);
      }
    };
    /** What was given a second before this is due: what A was given later, for a second too, has left. */
    const passed = async (what: string) => {
      await send(hosts.a, `${what} is over`, { send_at: inSeconds(1) });
      await arrives(`${what} is over`);
    };
    /** Everything that was due on B before this has been looked at when this has arrived. */
    const settled = async (subject: string) => {
      await send(hosts.b, subject);
      await arrives(subject);
    };

    it('is never sent after another host has cancelled it, however close its time is', async () => {
      const { a, b } = hosts;
      const id = await send(b, 'soon', { send_at: inSeconds(2) });
      const kept = await send(b, 'soon, not cancelled', { send_at: inSeconds(2) });
      expect((await a.api('/messages/cancel-scheduled', { id }))._id).to.equal(id);
      expect((await a.api('/messages/list-scheduled')).map(({ _id }: { _id: string }) => _id)).to.deep.equal([kept]);
      await arrives('soon, not cancelled');
      await settled('after soon');
      expect(hosts.arrived()).to.not.include('soon');
      expect((await b.ask('/messages/info', { id })).body.name, 'and is found no more').to.equal('Unknown_Message');
    });

    it('is never sent if it was cancelled while its host was down, even at its start', async () => {
      const { a, b } = hosts;
      const [id, kept] = [
        await send(b, 'down', { send_at: inSeconds(1) }),
        await send(b, 'down, not cancelled', { send_at: inSeconds(1) }),
      ];
      await b.down();
      expect((await a.api('/messages/cancel-scheduled', { id }))._id).to.equal(id);
      await passed('the time of what is down');
      await b.up();
      await arrives('down, not cancelled');
      await settled('after down');
      expect(hosts.arrived()).to.not.include('down');
      expect((await a.ask('/messages/cancel-scheduled', { id: kept })).body.message).to.match(/^It is too late/);
    });

    it('is sent once, and not before the time that another host was given', async () => {
      const { a, b } = hosts;
      const id = await send(b, 'moved', { send_at: inSeconds(1) });
      await a.api('/messages/reschedule', { id, send_at: inSeconds(5 * PATIENCE) });
      await passed('its first time');
      await settled('after its first time');
      expect(hosts.arrived()).to.not.include('moved');
      expect((await b.api('/messages/list-scheduled')).map(({ _id }: { _id: string }) => _id)).to.deep.equal([id]);
      await arrives('moved', 20_000 * PATIENCE);
      const late = await a.ask('/messages/reschedule', { id, send_at: inSeconds(60) });
      expect([late.status, late.body.name, late.body.message]).to.deep.equal([
        404,
        'Unknown_Message',
        `It is too late: the message ${id} is being sent, or was sent`,
      ]);
      await settled('after moved');
      expect(hosts.arrived().filter((subject) => subject === 'moved')).to.have.length(1);
    });

    it('is sent within a minute when another host was given an earlier time', async () => {
      const { a, b } = hosts;
      const id = await send(b, 'earlier', { send_at: inSeconds(3600) });
      await a.api('/messages/reschedule', { id, send_at: inSeconds(0) });
      await arrives('earlier', 65_000 * PATIENCE);
    });

    it('is continued by its own host after a kill, and is too late to cancel meanwhile', async () => {
      const dir = await tempDir();
      const killed = await hosts.spawn(dir);
      const id = await send(killed, 'killed', { send_at: inSeconds(1), message: { to: [{ email: 'hang@to.test' }] } });
      await until('the server to be asked', () => hosts.server.asked.includes('hang@to.test'));
      await killed.end('SIGKILL');
      expect((await hosts.a.ask('/messages/cancel-scheduled', { id })).body.message).to.match(/^It is too late/);
      const again = await hosts.spawn(dir);
      await arrives('killed');
      await again.end();
      expect(hosts.arrived().filter((subject) => subject === 'killed')).to.have.length(1);
    });

    it('waits while its host cannot check whether it was cancelled, and is not lost', async () => {
      const { a, b } = hosts;
      const [id] = [
        await send(b, 'away', { send_at: inSeconds(1) }),
        await send(b, 'away, not cancelled', { send_at: inSeconds(1) }),
      ];
      b.store.cut();
      await a.api('/messages/cancel-scheduled', { id });
      await passed('the time of what is away');
      expect((await b.ask('/users/ping')).status, 'B knows that the store is away').to.equal(503);
      expect(hosts.arrived().filter((subject) => subject.startsWith('away'))).to.deep.equal([]);
      b.store.mend();
      await arrives('away, not cancelled', 50_000 * PATIENCE);
      await settled('after away');
      expect(hosts.arrived()).to.not.include('away');
    });
  });
