import { randomBytes } from 'node:crypto';
import { readFile, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createCopying } from '../../../src/inbound/copies/copying.ts';
import type { Delivery, Spool } from '../../../src/queue/delivery.ts';
import { createAdoption, tendCopiesTask } from '../../../src/sending/adoption.ts';
import { createCopies } from '../../../src/sending/copies.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { freshSpool, type MailOptions, mail, openOne, settled } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const ids = createIds(systemClock);
const TWO = ['jo@example.com', 'al@example.com'];
const LARGE = randomBytes(600_000);

describe('inbound mail that was damaged on the disk', () => {
  let store: Store;
  const running: { stop(): Promise<void> }[] = [];
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(async () => {
    for (const one of running.splice(0)) await one.stop();
    await store.close();
  });

  async function startHost({ mode = 'store' }: { mode?: 'none' | 'store' } = {}) {
    const opened = await freshSpool();
    const { dir, clock, log } = opened;
    const member = { id: () => 'a', epoch: () => 0, isLive: () => true };
    let isAway = false;
    const one: Store['copies']['one'] = (filter) =>
      isAway ? Promise.reject(new StoreAway('away')) : store.copies.one(filter);
    const mortal: Store = { ...store, copies: { ...store.copies, one } };
    const deps = { store: mortal, member, clock, ids, log };
    let spool: Spool = opened.spool;
    let copying = begin();
    const copies = createCopies({ mode }, deps);

    function begin() {
      const settings = { mode, withoutCopies: 'defer' as const, holdMs: 0, alone: false };
      const made = createCopying(settings, { ...deps, spool, metrics: NO_METRICS });
      running.push(made);
      return made;
    }
    /** Seconds pass until copies and queue are in step. */
    const inStep = () =>
      until('nothing to be due', async () => {
        await clock.advance(1000);
        return (await spool.copies.due(0, 100)).length === 0;
      });

    return {
      log,
      inStep,
      get spool() {
        return spool;
      },
      away: (is: boolean) => {
        isAway = is;
      },
      async accept(options: MailOptions = {}) {
        const { message, deliveries } = mail(clock, options);
        const bytes = message.body.kind === 'memory' ? Buffer.from(message.body.bytes) : LARGE;
        const accepted = copying.accepting.accept(message, deliveries);
        expect(await accepted).to.equal('accepted');
        const [first] = deliveries;
        if (!first) throw new Error('no delivery');
        return { id: message.id, first, deliveries, bytes };
      },
      async large() {
        const id = ids.message();
        const writer = spool.body(id);
        for (let at = 0; at < LARGE.length; at += 65_536)
          await writer.write(new Uint8Array(LARGE.subarray(at, at + 65_536)));
        return this.accept({ id, body: await writer.finish() });
      },
      settle: (delivery: Delivery) => spool.settle(settled(clock, delivery)),
      /** A stop, a change of the files, and a start. Returns what holds the copies against the queue an hour later. */
      async damage(sql: string, files: (blob: (name: string) => string) => Promise<void> = async () => {}) {
        await copying.stop();
        await spool.close();
        const db = new DatabaseSync(join(dir, 'spool.db'));
        db.exec(sql);
        db.close();
        await files((name) => join(dir, 'blobs', name));
        spool = await openOne(dir, { clock, log, copies: mode === 'store' });
        copying = begin();
        const more = { ...deps, spool, copies, others: {} };
        const adoption = createAdoption({ alone: false }, more);
        const later = { ...clock, now: () => clock.now() + 3_600_000 };
        await copying.start();
        return () => tendCopiesTask({ ...more, adoption, clock: later }).run();
      },
    };
  }

  type Host = Awaited<ReturnType<typeof startHost>>;

  /** What an attempt finds of it. */
  async function read({ spool }: Host, { id, messageId }: Delivery) {
    const found = await spool.message(messageId, id);
    if (!found) return undefined;
    const { message, body } = found;
    const bytes = body.kind === 'memory' ? body.bytes : await readFile(body.path);
    return { message, bytes: Buffer.from(bytes) };
  }

  for (const [what, sql] of [
    ['its body', "UPDATE messages SET bytes = CAST('hullo' AS BLOB) WHERE id = ?"],
    ['its trace', "UPDATE messages SET trace = 'Received: there' WHERE id = ?"],
    ['its id', "UPDATE messages SET id = 'm7' WHERE id = ?"],
    ['all of its row', 'DELETE FROM messages WHERE id = ?'],
  ] as const)
    it(`is restored from its copy, if ${what} was`, async () => {
      const host = await startHost();
      const { id, deliveries, bytes } = await host.accept({ recipients: TWO });
      const intact = await host.accept();
      await host.damage(sql.replace('?', `'${id}'`));
      for (const one of deliveries) {
        const found = await read(host, one);
        expect(found?.bytes.equals(bytes)).to.equal(true);
        expect(found?.message).to.deep.include({ id, trace: 'Received: from there\r\n' });
        expect((await host.spool.delivery(one.id))?.state).to.equal('waiting');
      }
      expect((await read(host, intact.first))?.bytes.equals(intact.bytes)).to.equal(true);
      expect(host.log.of('spool.restored')).to.have.length(1);
      expect(host.log.of('spool.fault')).to.deep.equal([]);
      // From then on it is like all mail.
      for (const one of [...deliveries, intact.first]) await host.settle(one);
      await host.inStep();
      expect(await store.copies.many({})).to.deep.equal([]);
    });

  it('is restored from its copy, if its large body was cut or removed', async () => {
    const host = await startHost();
    const [gone, cut, whole] = [await host.large(), await host.large(), await host.large()];
    await host.damage('', async (blob) => {
      await rm(blob(gone.id));
      await truncate(blob(cut.id), 1000);
    });
    for (const { first } of [gone, cut, whole]) expect((await read(host, first))?.bytes.equals(LARGE)).to.equal(true);
    const restored = host.log.of('spool.restored').map(({ fields }) => fields['message']);
    expect(restored).to.deep.equal([gone.id, cut.id]);
  });

  it('waits until it is known whether it has a copy', async () => {
    const host = await startHost();
    const { id, first, bytes } = await host.accept();
    await host.damage(`UPDATE messages SET trace = '' WHERE id = '${id}'`);
    host.away(true);
    expect(await read(host, first).catch((error: Error) => error.name)).to.equal('StoreAway');
    expect((await host.spool.delivery(first.id))?.state).to.equal('waiting');
    host.away(false);
    expect((await read(host, first))?.bytes.equals(bytes)).to.equal(true);
  });

  it('is given up if it has no copy', async () => {
    const host = await startHost({ mode: 'none' });
    const { id, first } = await host.accept();
    await host.damage(`UPDATE messages SET trace = '' WHERE id = '${id}'`);
    expect(await read(host, first)).to.equal(undefined);
    expect(await host.spool.delivery(first.id)).to.include({
      state: 'dead',
      lastError: 'message lost: its row was damaged on disk',
    });
  });

  for (const recipients of [TWO.slice(0, 1), TWO])
    it(`waits again within the hour, if the row of a delivery was damaged, of ${recipients.length}`, async () => {
      const host = await startHost();
      const { id, first, deliveries } = await host.accept({ recipients });
      const tend = await host.damage(`UPDATE deliveries SET recipient = 'eve@x.test' WHERE id = '${first.id}'`);
      const due = async () => (await host.spool.due('acme', first.url, Date.now() * 2, 10, [])).map((one) => one.id);
      expect(await due()).to.deep.equal(deliveries.slice(1).map((one) => one.id));
      expect((await host.spool.delivery(first.id))?.state).to.equal('dead');
      // The copy is what it can be restored from.
      await host.inStep();
      expect((await store.copies.one({ id }))?.deliveries.map((one) => one.recipient)).to.deep.equal(recipients);
      expect(await tend()).to.include({ taken: 1, removed: 0 });
      expect((await due()).toSorted()).to.deep.equal(deliveries.map((one) => one.id).toSorted());
      expect((await host.spool.delivery(first.id))?.recipient).to.equal('jo@example.com');
      expect(await tend(), 'once').to.equal(undefined);
      for (const one of deliveries) await host.settle(one);
      await host.inStep();
      expect(await store.copies.many({})).to.deep.equal([]);
    });
});
