import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { findLogDamage } from '../../../src/queue/disk/log-damage.ts';
import { openSpool } from '../../../src/queue/spool.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { freshSpool, put, spoolSettings } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';

const HEADER = 32;
const FRAME = 24 + 4096;

describe('the damage check of a write-ahead log', () => {
  let path: string;
  beforeEach(async () => {
    path = join(await tempDir(), 'log');
  });

  /**
   * The log of a database after so many transactions, each of three pages at least; a second round goes over the same
   * file from its begin.
   */
  async function logOf(transactions: number, second = 0): Promise<Buffer> {
    const file = join(await tempDir(), 'test.db');
    const db = new DatabaseSync(file);
    db.exec(
      'PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (key INTEGER PRIMARY KEY, bytes BLOB)',
    );
    const insert = db.prepare('INSERT INTO t (bytes) VALUES (?)');
    for (let n = 0; n < transactions; n++) insert.run(randomBytes(9000));
    if (second > 0) db.exec('PRAGMA wal_checkpoint(RESTART)');
    for (let n = 0; n < second; n++) insert.run(randomBytes(9000));
    const bytes = await readFile(`${file}-wal`);
    db.close();
    return bytes;
  }
  /** What is found after the bytes were changed. */
  async function found(bytes: Buffer): Promise<ReturnType<typeof findLogDamage>> {
    await writeFile(path, bytes);
    return findLogDamage(path);
  }
  const flip = (bytes: Buffer, at: number) => {
    bytes[at] = (bytes[at] ?? 0) ^ 4;
    return bytes;
  };
  const frames = (bytes: Buffer) => Math.floor((bytes.length - HEADER) / FRAME);

  it('accepts an undamaged log, and one restarted over an older one', async () => {
    expect(await found(await logOf(30))).to.equal(undefined);
    expect(await found(await logOf(30, 5))).to.equal(undefined);
    expect(await found(await logOf(1))).to.equal(undefined);
    for (const nothing of [Buffer.alloc(0), Buffer.alloc(20), Buffer.alloc(100_000), randomBytes(100_000)])
      expect(await found(nothing)).to.equal(undefined);
  });

  for (const [where, at] of [
    ['the page', 1000],
    ['its checksum', 17],
    ['the number of its page', 3],
    ['its salt', 9],
  ] as const) {
    it(`finds a changed bit of ${where} in the middle, and reports how much follows it`, async () => {
      const bytes = await logOf(30);
      const middle = Math.floor(frames(bytes) / 2);
      const damage = await found(flip(bytes, HEADER + middle * FRAME + at));
      expect(damage?.frame).to.equal(middle);
      expect(damage?.transactions).to.be.within(13, 16);
    });
  }

  it('finds it in the header, which makes SQLite drop the whole log', async () => {
    for (const at of [17, 25]) expect((await found(flip(await logOf(10), at)))?.frame, `byte ${at}`).to.equal(0);
  });

  it('recognises a torn end: less than two transactions follow it', async () => {
    const whole = await logOf(10);
    for (let back = 1; back <= 4; back++)
      expect(
        await found(flip(Buffer.from(whole), HEADER + (frames(whole) - back) * FRAME + 500)),
        `frame ${back} from the end`,
      ).to.equal(undefined);
    for (const cut of [1, 1000, FRAME - 1])
      expect(await found(Buffer.from(whole.subarray(0, whole.length - cut)))).to.equal(undefined);
    expect(await found(Buffer.concat([whole, randomBytes(50_000)]))).to.equal(undefined);
    // What two crashes left behind, one after the other: each the rest of a transaction, not bound together.
    const rest = (from: number) => whole.subarray(HEADER + from * FRAME, HEADER + (from + 3) * FRAME);
    expect(await found(Buffer.concat([whole, rest(9), rest(3), rest(15)]))).to.equal(undefined);
  });

  it('runs before SQLite truncates it: the queue continues with readable data, the log is kept, and the damage is reported', async () => {
    const { dir, spool, clock } = await freshSpool();
    const mails = [];
    for (let n = 0; n < 20; n++) mails.push(await put(spool, clock));
    // As a crash would leave it: the queue is open and its log long.
    const [file, wal] = await Promise.all([readFile(join(dir, 'spool.db')), readFile(join(dir, 'spool.db-wal'))]);
    const second = await tempDir();
    flip(wal, HEADER + Math.floor(frames(wal) / 2) * FRAME + 1000);
    await Promise.all([writeFile(join(second, 'spool.db'), file), writeFile(join(second, 'spool.db-wal'), wal)]);
    const log = createTestLog();
    const again = await openSpool(spoolSettings(second), {
      clock: createTestClock(),
      log,
      role: 'daemon',
      metrics: NO_METRICS,
    });
    const present = (await Promise.all(mails.map(({ message }) => again.message(message.id)))).filter(
      (one) => one,
    ).length;
    await put(again, clock);
    await again.close();
    expect(present).to.be.within(5, 15);
    const [line, ...others] = log.of('spool.fault');
    expect(others).to.deep.equal([]);
    expect(line?.level).to.equal('error');
    expect(line?.fields['transactions']).to.be.within(20 - present - 1, 20 - present + 1);
    expect(await readFile(String(line?.fields['aside']))).to.deep.equal(wal);
  });
});
