import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createLinkedFiles, expireLinksTask, LINKS_PATH, linkTo } from '../../../src/webhooks/linked-files.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { medians } from '../../support/medians.ts';
import { tempDir } from '../../support/temp.ts';

const HOUR = 3_600_000;

describe('linked files', () => {
  async function world({ keepMs = HOUR, mostBytes = 1_000_000, left = () => Infinity } = {}) {
    const base = await tempDir();
    const dir = join(base, 'links');
    const claimsDir = join(base, 'link-claims');
    const clock = createTestClock();
    const log = createTestLog();
    const tokenSecret = { read: async () => 'a secret of this service' };
    const settings = { dir, claimsDir, publicUrl: 'https://mail.test', keepMs, mostBytes };
    const growth = { left, wrote: () => {} };
    const files = createLinkedFiles(settings, { tokenSecret, clock, log, growth });
    /** Links a text for an account; undefined if there is no room. */
    const tryLink = async (account: string, text: string, name = 'a.txt') => {
      const { reserve, end } = await files.reserve(account, text.length);
      const linked = await linkTo(reserve, name, () => [Buffer.from(text.slice(0, 2)), Buffer.from(text.slice(2))]);
      end(linked?.added ?? 0);
      return linked?.url;
    };
    const link = async (text: string, name?: string) => (await tryLink('a', text, name)) ?? 'no room';
    const tokenOf = (url: string) => url.slice(`https://mail.test${LINKS_PATH}`.length).split('/')[0] ?? '';
    return { dir, claimsDir, clock, log, files, link, tryLink, tokenOf, keepMs };
  }

  it('are found by their link until it expires', async () => {
    const { clock, files, link, tokenOf } = await world();
    const token = tokenOf(await link('content'));
    const opened = await files.open(token);
    if (opened.kind !== 'file') throw new Error(opened.kind);
    expect([opened.size, (await opened.file.readFile()).toString()]).to.deep.equal([7, 'content']);
    await opened.file.close();
    await clock.advance(HOUR + 1000);
    expect((await files.open(token)).kind).to.equal('expired');
  });

  it('are not found by 10,000 guesses, of the whole seal or of one character of a valid one', async () => {
    const { files, link, tokenOf } = await world();
    const token = tokenOf(await link('content'));
    const [until36 = '', hash = ''] = token.split('-');
    const seal = token.slice(until36.length + hash.length + 2);
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const near = [...seal].flatMap((own, at) =>
      [...letters]
        .filter((letter) => letter !== own)
        .map((letter) => `${seal.slice(0, at)}${letter}${seal.slice(at + 1)}`),
    );
    const random = Array.from({ length: 10_000 - near.length }, () => randomBytes(32).toString('base64url'));
    let found = 0;
    for (const guess of [...near, ...random]) {
      const opened = await files.open(`${until36}-${hash}-${guess}`);
      if (opened.kind !== 'unknown') found++;
    }
    expect([near.length, found]).to.deep.equal([43 * 63, 0]);
  });

  it('reveal nothing by timing: neither whether the file exists nor how much of the seal is right', async () => {
    const { files, link, tokenOf } = await world();
    const token = tokenOf(await link('content'));
    const [until36 = '', hash = ''] = token.split('-');
    const seal = token.slice(until36.length + hash.length + 2);
    const ask = (one: string) => async () => {
      const opened = await files.open(one);
      if (opened.kind === 'file') await opened.file.close();
    };
    const absent = createHash('sha256').update('absent').digest('hex');
    const random = () => randomBytes(32).toString('base64url');
    const took = await medians({
      random: () => ask(`${until36}-${hash}-${random()}`),
      near: () => ask(`${until36}-${hash}-${seal.slice(0, -2)}${random().slice(-2)}`),
      absent: () => ask(`${until36}-${absent}-${random()}`),
      good: () => ask(token),
    });
    expect(took.near / took.random).to.be.within(0.7, 1.4);
    expect(took.absent / took.random).to.be.within(0.7, 1.4);
    expect(took.good / took.random, 'control: who asks the disk takes longer').to.be.above(2);
  });

  it('have a link that ends in their name, for any name', async () => {
    const { link } = await world();
    for (const [name, end] of [
      ['plan.pdf', '/plan.pdf'],
      ['../../etc/passwd', '/..%2F..%2Fetc%2Fpasswd'],
      ['grün?x=#1', '/gr%C3%BCn%3Fx%3D%231'],
      ['\ud800', '/%EF%BF%BD'],
      ['', ''],
    ] as const) {
      const url = await link('x', name);
      expect(url.endsWith(end), url).to.equal(true);
      expect(new URL(url).search + new URL(url).hash).to.equal('');
    }
  });

  it('are written once, without remains of unfinished writes', async () => {
    const { dir, files, link } = await world();
    await Promise.all([link('same'), link('same'), link('other')]);
    expect(await readdir(dir)).to.have.length(2);
    const { reserve } = await files.reserve('a', 100);
    const failing = function* (): Generator<Uint8Array> {
      yield Buffer.from('half');
      throw new Error('the message cannot be read');
    };
    let reads = 0;
    const fails = () => (reads++ === 0 ? [Buffer.from('half and more')] : failing());
    const error = await linkTo(reserve, 'x', fails).catch((fault: unknown) => fault);
    expect(error).to.be.instanceOf(Error);
    expect(await readdir(dir)).to.have.length(2);
  });

  it('are deleted with their claims when their links have expired', async () => {
    const { dir, claimsDir, clock, link, tokenOf, keepMs } = await world();
    const task = expireLinksTask({ dir, claimsDir, keepMs }, { clock, time: { believed: () => true } });
    expect(await task.run(), 'without a folder').to.equal(undefined);
    await clock.advance(HOUR);
    await mkdir(dir, { recursive: true });
    await writeFile(join(dir, 'of-somebody-else'), 'stays');
    const age = async (text: string, ms: number) => {
      const [, name = ''] = tokenOf(await link(text)).split('-');
      const at = (clock.now() - ms) / 1000;
      for (const folder of [dir, join(claimsDir, 'a')]) await utimes(join(folder, name), at, at);
      return name;
    };
    await age('12345', 2 * HOUR);
    const newest = await age('ABCDEF', 0);
    expect(await task.run()).to.deep.equal({ removed: 1, bytes: 5 });
    expect((await readdir(dir)).toSorted()).to.deep.equal([newest, 'of-somebody-else'].toSorted());
    expect(await readdir(join(claimsDir, 'a'))).to.deep.equal([newest]);
    expect(await readFile(join(dir, newest), 'utf8')).to.equal('ABCDEF');
  });

  it('with valid links stay when senders exceed the space of an account', async () => {
    const { dir, claimsDir, clock, files, tryLink, tokenOf, keepMs, log } = await world({ mostBytes: 100_000 });
    const promised = (await tryLink('a', 'a'.repeat(5000))) ?? '';
    // A megabyte for another account, in attachments that are all different.
    const of = async (account: string, count: number) => {
      const urls: string[] = [];
      for (let n = 0; n < count; n++) {
        const url = await tryLink(account, `${account}${n}`.padEnd(10_000, 'x'));
        if (url) urls.push(url);
      }
      return urls;
    };
    const linked = await of('b', 100);
    expect(linked.length, 'the others stay in their posts').to.be.within(5, 8);
    expect((await of('c', 10)).length, 'there is room for a third').to.equal(1);
    expect(log.of('attachment.no_room')).to.have.length(1);
    await expireLinksTask({ dir, claimsDir, keepMs }, { clock, time: { believed: () => true } }).run();
    for (const url of [promised, ...linked]) {
      const opened = await files.open(tokenOf(url));
      expect(opened.kind).to.equal('file');
      if (opened.kind === 'file') await opened.file.close();
    }
    expect(await tryLink('b', 'b0'.padEnd(10_000, 'x')), 'what is linked already needs no room').to.be.a('string');
  });

  it('are not created when the disk has no space for account data', async () => {
    const { dir, tryLink } = await world({ left: () => 0 });
    expect(await tryLink('a', 'text')).to.equal(undefined);
    expect(await readdir(dir).catch(() => [])).to.deep.equal([]);
  });

  it('stay while the clock is uncertain', async () => {
    const { dir, claimsDir, clock, link, keepMs } = await world();
    const task = expireLinksTask({ dir, claimsDir, keepMs }, { clock, time: { believed: () => false } });
    await link('12345');
    const [name = ''] = await readdir(dir);
    await utimes(join(dir, name), 1, 1);
    await clock.advance(HOUR);
    expect(await task.run()).to.equal(undefined);
    expect(await readdir(dir)).to.deep.equal([name]);
  });
});
