import { randomBytes } from 'node:crypto';
import { readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import type { Delivery, Spool } from '../../../src/queue/delivery.ts';
import { createAdoption, tendCopiesTask } from '../../../src/sending/adoption.ts';
import { createCopies } from '../../../src/sending/copies.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestLog } from '../../support/log.ts';
import { PLAIN_OUTGOING } from '../../support/messages.ts';
import { freshSpool, openOne } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';

const ids = createIds(systemClock);
const ENVELOPE = { mailFrom: '', client: { address: null, helo: null, tls: null }, outgoing: PLAIN_OUTGOING };
const SMALL = Buffer.from('hello');
const LARGE = randomBytes(600_000);

describe('outgoing mail that was damaged on the disk', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  async function startHost({ mode = 'store' }: { mode?: 'none' | 'store' } = {}) {
    const opened = await freshSpool();
    const { clock } = opened;
    const log = createTestLog();
    let away = false;
    const member = { id: () => 'a', epoch: () => 0, isLive: () => true };
    const mortal: Store = {
      ...store,
      copies: {
        ...store.copies,
        one: (filter) => (away ? Promise.reject(new StoreAway('away')) : store.copies.one(filter)),
      },
    };
    const copies = createCopies({ mode }, { store: mortal, member, clock, log });
    let spool = opened.spool;
    return {
      dir: opened.dir,
      log,
      get spool(): Spool {
        return spool;
      },
      away: (is: boolean) => {
        away = is;
      },
      async accept(message: string, bytes: Buffer, recipients = 1): Promise<Delivery[]> {
        const deliveries = Array.from({ length: recipients }, (_, n) => ({
          id: `${message}-${n}`,
          messageId: message,
          account: 'acme',
          kind: 'outbound' as const,
          url: 'smtp://to.test',
          routeId: '',
          pattern: '',
          recipient: `jo-${n}@to.test`,
        }));
        const copiedIn = copies.epochForNew();
        const envelope = { ...ENVELOPE, ...(copiedIn !== undefined && { copiedIn }) };
        const given = { id: message, receivedAt: clock.now(), envelope, trace: 'Received: here\r\n' };
        await copies.write({ ...given, bytes: new Uint8Array(bytes) }, deliveries);
        const writer = spool.body(message);
        for (let at = 0; at < bytes.length; at += 65_536)
          await writer.write(new Uint8Array(bytes.subarray(at, at + 65_536)));
        await spool.accept({ ...given, body: await writer.finish() }, deliveries);
        return deliveries;
      },
      /** A stop, a change of the files, and a start. Returns what holds the copies against the queue an hour later. */
      async damage(sql: string, files: (blob: (name: string) => string) => Promise<void> = async () => {}) {
        await spool.close();
        const db = new DatabaseSync(join(opened.dir, 'spool.db'));
        db.exec(sql);
        db.close();
        await files((name) => join(opened.dir, 'blobs', name));
        spool = await openOne(opened.dir, { clock, log, copies: mode === 'store' });
        const deps = { store: mortal, spool, copies, others: {}, member, clock };
        const adoption = createAdoption({ alone: false }, { ...deps, ids, log });
        const later = { ...clock, now: () => clock.now() + 3_600_000 };
        return () => tendCopiesTask({ ...deps, adoption, clock: later }).run();
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
    ['its body', "UPDATE messages SET bytes = CAST('hullo' AS BLOB) WHERE id = 'm1'"],
    [
      'its sender',
      `UPDATE messages SET envelope = replace(envelope, '"mailFrom":""', '"mailFrom":"x"') WHERE id = 'm1'`,
    ],
    ['its trace', "UPDATE messages SET trace = 'Received: there' WHERE id = 'm1'"],
    ['its size', "UPDATE messages SET size = 4 WHERE id = 'm1'"],
    ['the number of its deliveries', "UPDATE messages SET deliveries = 1 WHERE id = 'm1'"],
    ['its id', "UPDATE messages SET id = 'm7' WHERE id = 'm1'"],
    ['all of its row', "DELETE FROM messages WHERE id = 'm1'"],
  ] as const)
    it(`is restored from its copy, if ${what} was`, async () => {
      const host = await startHost();
      const [first, ...others] = await host.accept('m1', SMALL, 3);
      const [intact] = await host.accept('m2', SMALL);
      if (!first || !intact) throw new Error('no mail');
      await host.damage(sql);
      const found = await read(host, first);
      expect(found?.bytes.toString()).to.equal('hello');
      expect(found?.message).to.deep.include({
        id: 'm1',
        envelope: { ...ENVELOPE, copiedIn: 0 },
        trace: 'Received: here\r\n',
      });
      // From the disk from now on, for all of its deliveries.
      await store.copies.remove({ id: 'm1-0' });
      for (const one of [first, ...others, intact]) {
        expect((await read(host, one))?.bytes.toString()).to.equal('hello');
        expect((await host.spool.delivery(one.id))?.state).to.equal('waiting');
      }
      expect(host.log.of('spool.restored')).to.have.length(1);
      expect(host.log.of('spool.fault')).to.deep.equal([]);
      expect(host.spool.backlog('acme')).to.equal(4);
    });

  it('is restored from its copy, if its large body was changed, cut or removed', async () => {
    const host = await startHost();
    const names = ['gone', 'cut', 'changed', 'whole'];
    const mails = (await Promise.all(names.map((name) => host.accept(name, LARGE)))).flat();
    await host.damage('', async (blob) => {
      await rm(blob('gone'));
      await truncate(blob('cut'), 1000);
      const bytes = await readFile(blob('changed'));
      bytes[150_000] = (bytes[150_000] ?? 0) ^ 1;
      await writeFile(blob('changed'), bytes);
    });
    for (const one of mails) expect((await read(host, one))?.bytes.equals(LARGE), one.id).to.equal(true);
    expect(host.log.of('spool.restored').map(({ fields }) => fields['message'])).to.deep.equal([
      'gone',
      'cut',
      'changed',
    ]);
    expect(host.spool.backlog('acme')).to.equal(4);
  });

  it('waits until it is known whether it has a copy', async () => {
    const host = await startHost();
    const [one] = await host.accept('m1', SMALL);
    if (!one) throw new Error('no mail');
    await host.damage("UPDATE messages SET trace = '' WHERE id = 'm1'");
    host.away(true);
    expect(await read(host, one).catch((error: Error) => error.name)).to.equal('StoreAway');
    expect(await host.spool.message('m1'), 'for whoever only looks').to.equal(undefined);
    expect((await host.spool.delivery(one.id))?.state).to.equal('waiting');
    host.away(false);
    expect((await read(host, one))?.bytes.toString()).to.equal('hello');
  });

  it('is given up if it has no copy', async () => {
    const host = await startHost({ mode: 'none' });
    const [one] = await host.accept('m1', SMALL);
    if (!one) throw new Error('no mail');
    await host.damage("UPDATE messages SET trace = '' WHERE id = 'm1'");
    expect(await read(host, one)).to.equal(undefined);
    expect(await host.spool.delivery(one.id)).to.include({
      state: 'dead',
      lastError: 'message lost: its row was damaged on disk',
    });
    expect(host.log.of('spool.restored')).to.deep.equal([]);
  });

  it('waits again within the hour, if the row of a delivery was damaged', async () => {
    const host = await startHost();
    const [first, second] = await host.accept('m1', SMALL, 2);
    if (!first || !second) throw new Error('no mail');
    const tend = await host.damage("UPDATE deliveries SET recipient = 'eve@to.test' WHERE id = 'm1-0'");
    const due = () => host.spool.due('acme', first.url, Date.now() * 2, 10, []);
    expect((await due()).map(({ id }) => id)).to.deep.equal([second.id]);
    expect((await host.spool.delivery(first.id))?.state).to.equal('dead');
    expect(await tend()).to.include({ taken: 1, removed: 0 });
    expect((await due()).map(({ id, recipient }) => [id, recipient])).to.deep.equal([
      [first.id, 'jo-0@to.test'],
      [second.id, 'jo-1@to.test'],
    ]);
    expect(host.spool.backlog('acme')).to.equal(2);
    expect(await tend(), 'once').to.equal(undefined);
  });
});
