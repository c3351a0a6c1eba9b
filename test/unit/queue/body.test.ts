import { createHash, randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { freshSpool, mail, put, settled } from '../../support/spool.ts';

const KIB = 1024;

describe('a message body', () => {
  it('stays in memory up to 256 KiB, in any chunks', async () => {
    const { spool } = await freshSpool();
    for (const [size, step] of [
      [0, 1],
      [1, 1],
      [5000, 7],
      [256 * KIB, 64 * KIB],
      [256 * KIB, 256 * KIB],
    ] as const) {
      const bytes = randomBytes(size);
      const writer = spool.body(`m${size}-${step}`);
      for (let at = 0; at < size; at += step) await writer.write(bytes.subarray(at, at + step));
      const body = await writer.finish();
      expect(body.kind === 'memory' && bytes.equals(body.bytes), `${size} in steps of ${step}`).to.equal(true);
    }
  });

  it('does not change with the buffer it was read from', async () => {
    const { spool } = await freshSpool();
    const writer = spool.body('m');
    const chunk = Buffer.from('first');
    await writer.write(chunk);
    chunk.fill('x');
    const body = await writer.finish();
    expect(body.kind === 'memory' && Buffer.from(body.bytes).toString()).to.equal('first');
  });

  it('becomes a file above that, with its length and SHA-256', async () => {
    const { spool, dir, clock } = await freshSpool();
    const bytes = randomBytes(3_000_001);
    const writer = spool.body('large');
    for (let at = 0; at < bytes.byteLength; at += 65_521) await writer.write(bytes.subarray(at, at + 65_521));
    expect(await readdir(join(dir, 'tmp'))).to.deep.equal(['large']);
    const body = await writer.finish();
    expect(body).to.deep.equal({
      kind: 'file',
      path: join(dir, 'blobs', 'large'),
      size: bytes.byteLength,
      sha256: createHash('sha256').update(bytes).digest('hex'),
    });
    expect(await readdir(join(dir, 'tmp'))).to.deep.equal([]);
    await put(spool, clock, { id: 'large', body });
    await writer.abort();
    const found = await spool.message('large');
    expect(found?.body.kind === 'file' && bytes.equals(await readFile(found.body.path))).to.equal(true);
  });

  it('leaves nothing behind when it is aborted, before or after its end', async () => {
    const { spool, dir } = await freshSpool();
    const early = spool.body('early');
    await early.write(randomBytes(600_000));
    await early.abort();
    const late = spool.body('late');
    await late.write(randomBytes(600_000));
    await late.finish();
    await late.abort();
    const small = spool.body('small');
    await small.abort();
    expect([await readdir(join(dir, 'tmp')), await readdir(join(dir, 'blobs'))]).to.deep.equal([[], []]);
  });

  it('is removed when its message is rejected', async () => {
    const { spool, dir, clock } = await freshSpool();
    await put(spool, clock, { id: 'twice' });
    const writer = spool.body('twice');
    await writer.write(randomBytes(600_000));
    const { message, deliveries } = mail(clock, { id: 'twice', body: await writer.finish() });
    expect(await spool.accept(message, deliveries)).to.equal('fault');
    expect(await readdir(join(dir, 'blobs'))).to.deep.equal([]);
  });

  it('is removed when its message is deleted', async () => {
    const { spool, dir, clock } = await freshSpool();
    const writer = spool.body('large');
    await writer.write(randomBytes(600_000));
    const { delivery } = await put(spool, clock, { id: 'large', body: await writer.finish() });
    await spool.settle(settled(clock, delivery));
    clock.jump(1);
    expect(await spool.purge({ deliveredBefore: clock.now(), deadBefore: 0, deliveredBytes: 1e9 })).to.equal(1);
    expect(await readdir(join(dir, 'blobs'))).to.deep.equal([]);
    expect(await spool.message('large')).to.equal(undefined);
  });

  it('takes bounded memory for any input', async () => {
    const { spool } = await freshSpool();
    const fresh = () => new Uint8Array(64 * KIB);
    const writer = spool.body('endless');
    await writer.write(fresh());
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    for (let i = 0; i < 800; i++) {
      await writer.write(fresh());
      most = Math.max(most, process.memoryUsage().arrayBuffers - before);
    }
    expect(most).to.be.lessThan(8 * KIB * KIB);
    await writer.abort();
  });
});
