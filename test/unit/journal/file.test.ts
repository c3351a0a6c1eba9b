import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { JournalAway } from '../../../src/journal/journal.ts';
import { refusal, startJournal, type TestJournal } from '../../support/journal.ts';
import { freshSpool, put, settled } from '../../support/spool.ts';
import { smallDisk, tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

/** What the log says of a file that was replaced. */
const replaced = ({ log }: TestJournal) =>
  log.of('journal.fault').filter(({ fields }) => String(fields['reason']).startsWith('a new file was created: '));

const counts = async ({ journal }: TestJournal) => {
  await journal.flush();
  return (await journal.history.refusals({}, 1000)).rows.length;
};

/** A stopped journal with this number of refusals. */
async function written(count = 3): Promise<string> {
  const one = await startJournal();
  for (let i = 0; i < count; i++) one.journal.note(refusal({ client: `192.0.2.${i % 250}` }));
  await one.journal.flush();
  await one.stop();
  return one.file;
}

/** Overwrites the middle of a file. */
function damage(file: string): void {
  const bytes = readFileSync(file);
  bytes.fill(0xa5, 8192, bytes.length);
  writeFileSync(file, bytes);
}

describe('the journal file', () => {
  for (const [what, spoil] of [
    [
      'no database',
      (file: string) => writeFileSync(file, 'This is no database, and it is longer than its header.'.repeat(100)),
    ],
    ['damaged', damage],
    [
      'of another version',
      (file: string) => {
        const db = new DatabaseSync(file);
        db.exec('PRAGMA user_version = 99');
        db.close();
      },
    ],
  ] as const) {
    it(`is set aside and replaced when it is ${what}`, async () => {
      const file = await written(500);
      spoil(file);
      const one = await startJournal({ file });
      one.journal.note(refusal());
      await until('a new file', async () => {
        await one.journal.history.refusals({ account: 'acme' }, 1000).catch(() => undefined);
        return replaced(one).length > 0;
      });
      one.journal.note(refusal());
      expect(await counts(one)).to.be.within(1, 2);
      expect(existsSync(`${file}.damaged`)).to.equal(true);
      expect(replaced(one)).to.have.length(1);
    });
  }

  it('replaces a folder that stands in its place, and leaves what is in it', async () => {
    const file = join(await tempDir(), 'journal.db');
    mkdirSync(file);
    writeFileSync(join(file, 'theirs'), 'x');
    const one = await startJournal({ file });
    one.journal.note(refusal());
    expect(await counts(one)).to.equal(1);
    expect(readFileSync(join(`${file}.damaged`, 'theirs'), 'utf8')).to.equal('x');
    expect(replaced(one)).to.have.length(1);
  });

  it('is recreated when it is damaged during use, without losing later entries', async () => {
    const one = await startJournal();
    for (let i = 0; i < 3000; i++)
      one.journal.note(refusal({ client: `198.51.${i % 100}.${i % 50}`, recipient: `${i}@example.com` }));
    await one.journal.flush();
    const other = new DatabaseSync(one.file);
    other.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    other.close();
    damage(one.file);
    await until('the damage to be noticed', async () => {
      one.journal.note(refusal());
      await one.journal.history.refusals({ words: ['@example.com'] }, 5000).catch(() => undefined);
      await one.journal.flush();
      return replaced(one).length > 0;
    });
    const before = await counts(one);
    one.journal.note(refusal({ client: '203.0.113.1' }));
    expect(await counts(one)).to.equal(before + 1);
    expect(replaced(one)).to.have.length(1);
  });

  for (const [how, gone] of [
    ['deleted', (file: string) => rmSync(file)],
    [
      'deleted with its log',
      (file: string) => ['', '-wal', '-shm'].forEach((suffix) => void rmSync(file + suffix, { force: true })),
    ],
    ['moved away', (file: string) => renameSync(file, `${file}.old`)],
  ] as const) {
    it(`is recreated when it is ${how} during use, with everything still on the queue`, async () => {
      const queue = await freshSpool();
      const one = await startJournal({}, { clock: queue.clock });
      const watched = one.watch(queue.spool);
      watched.start();
      const { delivery } = await put(watched.spool, queue.clock);
      const dead = await put(watched.spool, queue.clock);
      await watched.spool.settle(settled(queue.clock, dead.delivery, { state: 'dead' }));
      await one.journal.flush();
      const inode = statSync(one.file).ino;
      gone(one.file);
      one.journal.note(refusal());
      expect(await counts(one)).to.equal(1);
      expect(statSync(one.file).ino).to.not.equal(inode);
      const rows = await until('the mail of the queue', async () => {
        await queue.clock.advance(1000);
        const found = await one.mail();
        return found.length === 2 && found;
      });
      expect(rows.map(({ id, state }) => [id, state]).sort()).to.deep.equal(
        [
          [delivery.id, 'waiting'],
          [dead.delivery.id, 'dead'],
        ].sort(),
      );
      expect(await one.lost()).to.equal(0);
    });
  }

  it('delays nothing while another process holds it, counts lost entries, and continues', async () => {
    const queue = await freshSpool();
    const one = await startJournal({}, { clock: queue.clock });
    const watched = one.watch(queue.spool);
    watched.start();
    await until('the file', () => existsSync(one.file));
    await one.journal.ask('mailBounds');
    const holder = new DatabaseSync(one.file);
    holder.exec('BEGIN IMMEDIATE');
    const began = performance.now();
    const { delivery } = await put(watched.spool, queue.clock);
    await watched.spool.settle(settled(queue.clock, delivery));
    expect(performance.now() - began).to.be.below(2000);
    await one.journal.flush();
    expect(await one.lost()).to.equal(1);
    expect(one.log.of('journal.fault')).to.have.length(1);
    holder.exec('ROLLBACK');
    holder.close();
    one.journal.note(refusal());
    await one.journal.flush();
    expect(one.log.of('journal.resumed')).to.have.length(1);
    await until('what was lost to be filled in from the queue', async () => {
      await queue.clock.advance(1000);
      return (await one.mail()).some(({ id, state }) => id === delivery.id && state === 'delivered');
    });
  });

  it('is opened again after a failure, and up to 10,000 entries wait for it', async () => {
    const dir = join(await tempDir(), 'missing');
    const one = await startJournal({ file: join(dir, 'journal.db') });
    await until('the failure', () => one.log.of('journal.fault').length > 0);
    one.journal.note(refusal());
    await one.journal.flush();
    expect(await one.journal.history.mail({}, 1).catch((error) => error)).to.be.instanceOf(JournalAway);
    mkdirSync(dir);
    await one.clock.advance(10_000);
    await until('a thread that writes', async () => (await counts(one).catch(() => 0)) === 1);
    expect(one.log.of('journal.resumed')).to.have.length(1);
    expect(await one.lost()).to.equal(0);
  });

  it('gets another thread when its thread does not answer', async () => {
    const one = await startJournal();
    await one.journal.ask('mailBounds');
    const holder = new DatabaseSync(one.file);
    holder.exec('BEGIN IMMEDIATE');
    one.journal.note(refusal());
    const flushed = one.journal.flush();
    await new Promise((resolve) => setImmediate(resolve));
    await one.deadlines.advance(15_000);
    await flushed;
    expect(one.log.of('journal.fault').map(({ fields }) => fields['reason'])).to.deep.equal(['it does not answer']);
    expect(await one.lost()).to.equal(1);
    holder.exec('ROLLBACK');
    holder.close();
    one.journal.note(refusal());
    await until('another thread', async () => {
      await one.clock.advance(10_000);
      return (await counts(one).catch(() => 0)) === 1;
    });
  });

  it('logs a warning, not an error with an alert, if its thread does not answer or its file is locked', async () => {
    const one = await startJournal();
    await one.journal.ask('mailBounds');
    const holder = new DatabaseSync(one.file);
    for (const silent of [true, false]) {
      holder.exec('BEGIN IMMEDIATE');
      one.journal.note(refusal());
      const flushed = one.journal.flush();
      await new Promise((resolve) => setImmediate(resolve));
      if (silent) await one.deadlines.advance(15_000);
      await flushed;
      holder.exec('ROLLBACK');
      await until('it writes again', async () => {
        await one.clock.advance(10_000);
        one.journal.note(refusal());
        await one.journal.flush();
        return one.log.of('journal.resumed').length === (silent ? 1 : 2);
      });
    }
    holder.close();
    const said = one.log.of('journal.fault');
    expect(said.map(({ level, fields }) => [level, fields['reason']])).to.deep.equal([
      ['warn', 'it does not answer'],
      ['warn', 'database is locked'],
    ]);
    expect(said[0]?.fields['note']).to.match(/^this host is under load/);
  }).timeout(30_000);

  it('stops within seconds even if its thread does not answer', async () => {
    const one = await startJournal();
    await one.journal.ask('mailBounds');
    const holder = new DatabaseSync(one.file);
    holder.exec('BEGIN EXCLUSIVE');
    one.journal.note(refusal());
    const stopped = one.stop();
    await new Promise((resolve) => setImmediate(resolve));
    await one.deadlines.advance(5000);
    const began = performance.now();
    await stopped;
    expect(performance.now() - began).to.be.below(5000);
    holder.close();
  });

  it('is not written when the disk is full, counts lost entries, still answers queries, and continues once there is space', async function () {
    const disk = await smallDisk(8);
    if (disk === undefined) return this.skip();
    const one = await startJournal({ file: join(disk, 'journal.db') });
    one.journal.note(refusal());
    expect(await counts(one)).to.equal(1);
    const other = join(disk, 'other');
    try {
      writeFileSync(other, Buffer.alloc(8 * 1024 * 1024));
    } catch {
      // It is full now.
    }
    for (let i = 0; i < 200; i++) one.journal.note(refusal({ client: `198.51.100.${i}`, reply: 'x'.repeat(2000) }));
    await one.journal.flush();
    expect(await one.lost()).to.equal(200);
    expect(one.log.of('journal.fault')).to.have.length(1);
    expect(await counts(one)).to.equal(1);
    rmSync(other);
    one.journal.note(refusal());
    expect(await counts(one)).to.equal(2);
    expect(one.log.of('journal.resumed')).to.have.length(1);
  });

  it('leaves half of the space that the queue reserves on its disk', async function () {
    const disk = await smallDisk(16);
    if (disk === undefined) return this.skip();
    const room = { minFreePercent: 50, minFreeBytes: 0, maxMessageBytes: 0 };
    const one = await startJournal({ file: join(disk, 'journal.db'), room });
    one.journal.note(refusal());
    expect(await counts(one)).to.equal(1);
    writeFileSync(join(disk, 'other'), Buffer.alloc(13 * 1024 * 1024));
    one.journal.note(refusal());
    await one.journal.flush();
    expect(one.log.of('journal.fault').map(({ fields }) => fields['reason'])).to.deep.equal([
      'the disk is nearly full',
    ]);
    expect(await one.lost()).to.equal(1);
  });

  it('may be shared by two processes, for a takeover', async () => {
    const one = await startJournal();
    one.journal.note(refusal());
    await one.journal.flush();
    const other = await startJournal({ file: one.file });
    other.journal.note(refusal());
    await other.journal.flush();
    expect([await counts(one), await counts(other)]).to.deep.equal([2, 2]);
  });
});
