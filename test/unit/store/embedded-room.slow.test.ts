import { statfsSync } from 'node:fs';
import { readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { type Database, StoreAway, StoreFull } from '../../../src/store/driver/port.ts';
import { createAccount, createKey, keyHash, revokeKey } from '../../../src/store/rows/accounts.ts';

import { openStore } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { failure, note, notes } from '../../support/store-notes.ts';
import { smallDisk, tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

/** More than any disk has. */
const UNREACHABLE = { ...NO_FLOOR, minFreeBytes: 1e18 };
const MEGABYTE = 1024 ** 2;

describe('the embedded store on a disk that is nearly full', () => {
  let file: string;
  let log: ReturnType<typeof createTestLog>;
  const opened: Database[] = [];
  const open = async (room = NO_FLOOR) => {
    const database = await openEmbedded({ file, timeoutMs: 60_000, room }, { log, clock: systemClock });
    opened.push(database);
    return database;
  };
  beforeEach(async () => {
    file = join(await tempDir(), 'store.db');
    log = createTestLog();
  });
  afterEach(async () => {
    for (const database of opened.splice(0)) await database.close();
  });

  it('rejects additions and growth below the limit; it reads, deletes, and makes small changes', async () => {
    const before = await open();
    const full = await before.collection(notes);
    for (let n = 0; n < 3; n++) await full.insert(note(`n${n}`));
    await before.close();
    const rows = await (await open(UNREACHABLE)).collection(notes);
    expect(await failure(rows.insert(note('new'))))
      .to.be.instanceOf(StoreFull)
      .and.to.be.instanceOf(StoreAway);
    expect(await failure(rows.change({ id: 'n0' }, { body: 'x'.repeat(10_000) }))).to.be.instanceOf(StoreFull);
    expect(await rows.change({ id: 'n0' }, { body: 'small' })).to.include({ body: 'small' });
    expect(await rows.remove({ id: 'n1' })).to.include({ id: 'n1' });
    expect((await rows.many({}, { sort: 'id' })).map(({ id }) => id)).to.deep.equal(['n0', 'n2']);
    expect(log.of('store.full')).to.have.length(1);
    expect(log.of('store.away'), 'it is not away').to.deep.equal([]);
  });

  it('lets a key be revoked, a task take its lease, and the store prove that it is writable', async () => {
    const parts = { clock: createTestClock(), ids: createIds(createTestClock()) };
    const first = await openStore(await open());
    const account = await createAccount(first, 'main', parts);
    const key = await createKey(first, account.id, 'a', parts);
    await first.close();
    const store = await openStore(await open(UNREACHABLE));
    await revokeKey(store, keyHash(key), parts);
    expect(await store.keys.one({ id: keyHash(key) })).to.equal(undefined);
    expect(await store.leases.insert({ id: 'purge', holder: 'a', until: new Date(1), ranAt: new Date(0) })).to.equal(
      'inserted',
    );
    await store.ping();
    expect(
      await failure(
        store.of(account.id).inboundDomains.insert({
          id: 'a.test',
          domain: 'a.test',
          createdAt: new Date(0),
          validMx: false,
          testedAt: null,
        }),
      ),
    ).to.be.instanceOf(StoreFull);
  });

  it('returns the pages of deleted rows to the disk, in steps between other work', async () => {
    const rows = await (await open()).collection(notes);
    for (let n = 0; n < 40; n++) await rows.insert(note(`n${n}`, { body: 'x'.repeat(500_000) }));
    for (let n = 0; n < 38; n++) await rows.remove({ id: `n${n}` });
    const size = async () => (await stat(file)).size;
    await until('a smaller file', async () => (await size()) < 5 * MEGABYTE, 20_000);
    expect((await rows.many({})).map(({ body }) => body.length)).to.deep.equal([500_000, 500_000]);
  }).timeout(60_000);

  it('upgrades a file of a version that kept freed pages', async () => {
    const old = new DatabaseSync(file);
    old.exec(`PRAGMA journal_mode = WAL; CREATE TABLE notes ("id" TEXT PRIMARY KEY NOT NULL, "row" TEXT NOT NULL)`);
    const insert = old.prepare('INSERT INTO notes VALUES (?, ?)');
    for (let n = 0; n < 40; n++)
      insert.run(`n${n}`, JSON.stringify({ account: 'a', rank: n, body: 'x'.repeat(500_000) }));
    old.exec(`DELETE FROM notes WHERE id <> 'n7'; PRAGMA wal_checkpoint(TRUNCATE)`);
    expect(Object.values(old.prepare('PRAGMA auto_vacuum').get() ?? {})).to.deep.equal([0]);
    old.close();
    expect((await stat(file)).size).to.be.above(15 * MEGABYTE);
    const rows = await (await open()).collection(notes);
    expect((await rows.many({})).map(({ id, rank }) => [id, rank])).to.deep.equal([['n7', 7]]);
    expect((await stat(file)).size).to.be.below(2 * MEGABYTE);
    expect(log.of('store.connected')[0]?.fields).to.not.have.property('compacting');
    const seen = new DatabaseSync(file);
    expect(Object.values(seen.prepare('PRAGMA auto_vacuum').get() ?? {})).to.deep.equal([2]);
    seen.close();
  });

  it('works with such a file that another process holds, and logs that it was not upgraded', async () => {
    const other = new DatabaseSync(file);
    other.exec('PRAGMA journal_mode = WAL; CREATE TABLE other (a); BEGIN IMMEDIATE');
    const opening = openEmbedded({ file, timeoutMs: 2000, room: NO_FLOOR }, { log, clock: systemClock });
    await until('the file to be open', () => log.of('store.connected').length === 1);
    other.exec('COMMIT');
    other.close();
    const database = await opening;
    opened.push(database);
    expect(log.of('store.connected')[0]?.fields).to.have.property('compacting').that.contains('locked');
    expect(await (await database.collection(notes)).insert(note('1'))).to.equal('inserted');
  });
});

describe('the embedded store on a full disk', function () {
  this.timeout(60_000);
  let dir = '';

  before(async function () {
    const disk = await smallDisk(64);
    if (disk === undefined) this.skip();
    else dir = disk;
  });

  /** Takes what is left of the disk. */
  async function fill(name: string): Promise<void> {
    for (let n = 0, size = 1 << 20; size >= 4096; n++) {
      try {
        await writeFile(join(dir, `${name}${n}`), Buffer.alloc(size, 1), { flag: 'wx' });
      } catch {
        size >>= 1;
      }
    }
  }

  it('still deletes, during failing writes and after a start, and returns the space to the disk', async () => {
    const open = () =>
      openEmbedded(
        { file: join(dir, 'store.db'), timeoutMs: 30_000, room: NO_FLOOR },
        { log: createTestLog(), clock: systemClock },
      );
    const first = await open();
    const rows = await first.collection(notes);
    for (let n = 0; n < 100; n++) await rows.insert(note(`n${n}`, { body: 'x'.repeat(200_000) }));
    await first.close();
    await fill('filler');
    const second = await open();
    const found = await second.collection(notes);
    const large = note('large', { body: 'x'.repeat(8_000_000) });
    const [refused, removed] = await Promise.all([failure(found.insert(large)), found.remove({ id: 'n0' })]);
    expect(refused).to.be.instanceOf(StoreAway);
    expect(removed).to.include({ id: 'n0' });
    await fill('more');
    for (let n = 1; n < 60; n++) expect(await found.remove({ id: `n${n}` })).to.include({ id: `n${n}` });
    await until('a smaller file', async () => (await stat(join(dir, 'store.db'))).size < 12 * MEGABYTE, 20_000);
    expect(await found.insert(note('again', { body: 'x'.repeat(1_000_000) }))).to.equal('inserted');
    await second.close();
    const third = await open();
    expect(await (await third.collection(notes)).many({})).to.have.length(41);
    await third.close();
  });

  afterEach(async () => {
    for (const name of await readdir(dir)) await rm(join(dir, name), { recursive: true });
  });

  it('is never below the limit, however many rows arrive at once, and all of them can be removed', async () => {
    const floor = 16 * MEGABYTE;
    const database = await openEmbedded(
      { file: join(dir, 'floor', 'store.db'), timeoutMs: 30_000, room: { ...NO_FLOOR, minFreeBytes: floor } },
      { log: createTestLog(), clock: systemClock },
    );
    const rows = await database.collection(notes);
    const freeOf = () => {
      const { bavail, bsize } = statfsSync(dir);
      return bavail * bsize;
    };
    let lowest = freeOf();
    const watch = setInterval(() => {
      lowest = Math.min(lowest, freeOf());
    }, 1);
    const kept: string[] = [];
    await Promise.all(
      Array.from({ length: 200 }, async (_, n) => {
        const inserted = await rows.insert(note(`f${n}`, { body: 'x'.repeat(500_000) })).catch(() => undefined);
        if (inserted) kept.push(`f${n}`);
      }),
    );
    expect(kept.length).to.be.within(1, 199);
    for (const id of kept) expect(await rows.remove({ id })).to.include({ id });
    clearInterval(watch);
    await database.close();
    expect(lowest, 'bytes').to.be.above(floor);
  });
});
