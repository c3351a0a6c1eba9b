import { createHash, randomBytes } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createDiskSpace } from '../../../src/base/disk-space.ts';
import type { Body } from '../../../src/queue/delivery.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { freshSpool, given, mail, openOne, put, settled, spoolSettings } from '../../support/spool.ts';
import { missing } from '../../support/spool-process.ts';
import { smallDisk, tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

describe('disk space for new mail', () => {
  const settings = { minFreePercent: 10, minFreeBytes: 50, maxMessageBytes: 10, times: 1 };

  async function watched(total: number, free: number, overrides: Partial<typeof settings> = {}) {
    const disk = { total, free };
    const clock = createTestClock();
    const log = createTestLog();
    const room = createDiskSpace(
      'spool',
      { ...settings, ...overrides },
      { clock, log, look: async () => ({ ...disk }) },
    );
    await room.start();
    return { disk, clock, log, room };
  }

  it('is available only above the largest of the three limits', async () => {
    for (const [total, free, overrides, expected] of [
      [1000, 100, {}, true],
      [1000, 99, {}, false],
      [100, 50, {}, true],
      [100, 49, {}, false],
      [100, 60, { maxMessageBytes: 20 }, true],
      [100, 59, { maxMessageBytes: 20 }, false],
    ] as const) {
      const { room } = await watched(total, free, overrides);
      expect(room.has(), `${free} of ${total}`).to.equal(expected);
      room.stop();
    }
  });

  it('is checked every second, and each change is logged once', async () => {
    const { disk, clock, log, room } = await watched(1000, 500);
    disk.free = 10;
    expect(room.has()).to.equal(true);
    await clock.advance(5000);
    expect(room.has()).to.equal(false);
    disk.free = 500;
    await clock.advance(5000);
    expect(room.has()).to.equal(true);
    expect(log.lines.map(({ event }) => event)).to.deep.equal(['spool.full', 'spool.room']);
    room.stop();
  });

  it('is not available while the disk cannot be read', async () => {
    const { clock, room, disk, log } = await watched(1000, 500);
    Object.defineProperty(disk, 'free', {
      configurable: true,
      enumerable: true,
      get() {
        throw new Error('EIO');
      },
    });
    await clock.advance(3000);
    expect(room.has()).to.equal(false);
    Object.defineProperty(disk, 'free', { value: 500, enumerable: true });
    await clock.advance(1000);
    expect(room.has()).to.equal(true);
    expect(log.of('spool.fault')).to.have.length(1);
    room.stop();
  });

  it('is reserved by writers, so that together they do not exceed it', async () => {
    const { disk, clock, room } = await watched(1000, 500);
    const ends = Array.from({ length: 10 }, () => room.reserve(90));
    expect(ends.filter(Boolean)).to.have.length(4);
    expect(room.left()).to.equal(40);
    // They are on the disk, and still counted until the next look.
    for (const end of ends) end?.();
    expect(room.left()).to.be.at.most(40);
    disk.free = 140;
    await clock.advance(1000);
    expect(room.left()).to.equal(40);
    expect(room.reserve(41)).to.equal(undefined);
    expect(room.reserve(40)).to.be.a('function');
    room.stop();
  });

  it('is checked again before a second has passed when much was written', async () => {
    const { disk, room } = await watched(1000, 500);
    disk.free = 100;
    room.wrote(10);
    await room.look();
    disk.free = 90;
    room.wrote(200);
    await until('another look', () => room.disk()?.free === 90);
    expect(room.has()).to.equal(false);
    room.stop();
  });

  it('is unavailable below the limit times a given factor', async () => {
    const { room } = await watched(1000, 149, { times: 1.5 });
    expect(room.has()).to.equal(false);
    room.stop();
  });

  it('is not available in a spool whose limit is above the size of the disk', async () => {
    const dir = await tempDir();
    const log = createTestLog();
    const spool = await openOne(dir, { clock: createTestClock(), log }, { ...spoolSettings(dir), minFreeBytes: 1e18 });
    expect(spool.hasRoom()).to.equal(false);
    expect(log.of('spool.full')).to.have.length(1);
  });
});

describe('a full disk', function () {
  this.timeout(30_000);
  let dir = '';

  before(async function () {
    const disk = await smallDisk(24);
    if (disk === undefined) this.skip();
    else dir = disk;
  });

  const inline = (size: number): Body => ({ kind: 'memory', bytes: new Uint8Array(randomBytes(size)) });

  it('returns `full`, for small and large bodies, loses nothing, and accepts mail again once there is space', async () => {
    const filler = join(dir, 'filler');
    await writeFile(filler, Buffer.alloc(8 << 20));
    const opened = await freshSpool(join(dir, 'spool'));
    const first = await put(opened.spool, opened.clock);
    const accepted: { id: string; sha256: string }[] = [];
    const offer = async (size: number) => {
      const body = inline(size);
      const { message, deliveries } = mail(opened.clock, { body });
      const outcome = await opened.spool.accept(given(message), deliveries);
      if (outcome === 'accepted' && body.kind === 'memory')
        accepted.push({ id: message.id, sha256: createHash('sha256').update(body.bytes).digest('hex') });
      return outcome;
    };
    let outcome = 'accepted';
    for (let i = 0; i < 1000 && outcome === 'accepted'; i++) outcome = await offer(100_000);
    expect(outcome).to.equal('full');
    for (let i = 0; i < 1000 && (await offer(500)) === 'accepted'; i++);

    const writer = opened.spool.body('large');
    for (let i = 0; i < 40; i++) await writer.write(randomBytes(500_000));
    const failure = await writer.finish().then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).to.have.property('name', 'SpoolFull');

    let done = false;
    const settling = opened.spool.settle(settled(opened.clock, first.delivery)).then(() => {
      done = true;
    });
    await rm(filler);
    await until('the settlement', async () => {
      await opened.clock.advance(1000);
      return done;
    });
    await settling;
    expect(await offer(100_000)).to.equal('accepted');
    const spool = await opened.reopen();
    expect(await missing(spool, accepted)).to.deep.equal([]);
    expect(await spool.count({})).to.deep.equal({
      waiting: accepted.length,
      delivered: 1,
      dead: 0,
      dropped: 0,
      held: 0,
    });
  });
});
