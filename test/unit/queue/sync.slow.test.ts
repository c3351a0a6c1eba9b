import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { freshSpool } from '../../support/spool.ts';
import { missing, startSpoolProcess } from '../../support/spool-process.ts';
import { type Call, noStrace, parseTrace } from '../../support/strace.ts';
import { tempDir } from '../../support/temp.ts';

const SYNCS = new Set(['fsync', 'fdatasync']);
const WRITES = new Set(['write', 'pwrite64', 'pwritev', 'writev']);

/** Whether a sync of the file lies wholly between the last write to it and `before`. */
function syncedBefore(calls: readonly Call[], file: RegExp, before: number): boolean {
  const lastWrite = Math.max(
    -1,
    ...calls
      .filter(({ name, text, began }) => WRITES.has(name) && file.test(text) && began < before)
      .map(({ done }) => done),
  );
  return (
    lastWrite >= 0 &&
    calls.some(
      ({ name, text, began, done }) =>
        SYNCS.has(name) && file.test(text) && text.endsWith('= 0') && began > lastWrite && done < before,
    )
  );
}

/** Acknowledgements for which the bytes were not on the disk when they were given. */
function unsynced(calls: readonly Call[]): string[] {
  const acknowledgements = calls.filter(
    ({ name, text }) => name === 'write' && text.startsWith('1<') && text.includes('"accepted '),
  );
  return acknowledgements.filter(({ began }) => !syncedBefore(calls, /spool\.db-wal>/, began)).map(({ text }) => text);
}

describe('the sync of accepted mail', function () {
  this.timeout(60_000);
  let reason: string | undefined;
  before(function () {
    reason = noStrace();
    if (reason) {
      console.log(`    system calls are not looked at: ${reason}`);
      this.skip();
    }
  });

  async function trace(messages: number, largeEvery: number, bytes = 2000) {
    const dir = await tempDir();
    const out = join(dir, 'trace');
    const process = startSpoolProcess(
      [dir, 1, messages, largeEvery, bytes],
      [
        'strace',
        '-f',
        '-y',
        '-s',
        '64',
        '-o',
        out,
        '-e',
        'trace=write,writev,pwrite64,pwritev,fsync,fdatasync,rename,renameat2',
      ],
    );
    expect(await process.ended).to.equal(0);
    expect(process.results().map(({ outcome }) => outcome)).to.deep.equal(
      Array.from({ length: messages }, () => 'accepted'),
    );
    return { calls: parseTrace(await readFile(out, 'utf8')), results: process.results() };
  }

  it('runs between the last write to the log and the acknowledgement', async () => {
    const { calls } = await trace(5, 0);
    expect(unsynced(calls)).to.deep.equal([]);
    // The same trace without its syncs must not pass.
    expect(unsynced(calls.filter(({ name }) => !SYNCS.has(name)))).to.have.length(5);
  });

  it('includes a large body as a file, and its folder, before the acknowledgement', async () => {
    const { calls, results } = await trace(2, 1);
    expect(unsynced(calls)).to.deep.equal([]);
    for (const { id } of results) {
      const renamed = calls.find(({ name, text }) => name.startsWith('rename') && text.includes(`/blobs/${id}"`));
      if (!renamed) throw new Error('it was never put in its place');
      expect(syncedBefore(calls, new RegExp(`/tmp/${id}>`), renamed.began)).to.equal(true);
      const folder = calls.find(
        ({ name, text, began }) => name === 'fsync' && /\/blobs>/.test(text) && began > renamed.done,
      );
      const answer = calls.find(({ text }) => text.includes(`"accepted ${id}`));
      expect(folder && answer && folder.done < answer.began).to.equal(true);
    }
  });

  it('does not wait for the checkpoint, which another thread does and syncs', async () => {
    const { calls } = await trace(150, 0, 100_000);
    expect(unsynced(calls)).to.deep.equal([]);
    const logged = calls.filter(({ name, text }) => WRITES.has(name) && text.includes('spool.db-wal>'));
    const [accepting, ...others] = [...new Set(logged.map(({ thread }) => thread))];
    expect(others).to.deep.equal([]);
    const moved = calls.filter(
      ({ name, text, thread }) => WRITES.has(name) && /spool\.db>/.test(text) && thread !== accepting,
    );
    expect(moved.length).to.be.greaterThan(1000);
    expect(
      syncedBefore(
        calls.filter(({ thread }) => thread === moved[0]?.thread),
        /spool\.db>/,
        Number.POSITIVE_INFINITY,
      ),
    ).to.equal(true);
    expect(logged.some(({ began }) => began > (moved[0]?.began ?? 0) && began < (moved.at(-1)?.done ?? 0))).to.equal(
      true,
    );
  });

  /** Makes `calls` on `paths` fail as `inject` says and checks the results of the messages. */
  async function failing(paths: readonly string[], inject: string, messages = 12, bytes = 2000, logged = '') {
    const { dir, spool: empty } = await freshSpool(); // so that the syncs that make the file are not counted
    await empty.close();
    const process = startSpoolProcess(
      [dir, 1, messages, 0, bytes, logged],
      [
        'strace',
        '-f',
        '-o',
        '/dev/null',
        ...paths.flatMap((path) => ['-P', join(dir, path)]),
        '-e',
        'trace=fsync,fdatasync',
        '-e',
        `inject=${inject}`,
      ],
    );
    expect(await process.ended).to.equal(0);
    const results = process.results();
    const accepted = results.filter(({ outcome }) => outcome === 'accepted');
    const refused = results.filter(({ outcome }) => outcome !== 'accepted');
    const { spool } = await freshSpool(dir);
    expect(await missing(spool, accepted)).to.deep.equal([]);
    expect((await spool.list({}, 10_000)).map(({ messageId }) => messageId).sort()).to.deep.equal(
      accepted.map(({ id }) => id).sort(),
    );
    return { process, results, refused };
  }

  it('fails with an error, leaves nothing behind, and moves the queue to a new file', async () => {
    const { process, results, refused } = await failing(['spool.db-wal'], 'fsync,fdatasync:error=EIO:when=6');
    expect(refused.map(({ outcome }) => outcome)).to.deep.equal(['fault']);
    expect(results.at(-1)?.outcome).to.equal('accepted');
    const log = process.log();
    expect(log.match(/"event":"spool\.fault"/g)).to.have.length(1);
    expect(log).to.match(/"rebuilt":\{"messages":\d/);
  });

  it('waits until the new file can be synced, if that fails as well', async () => {
    const { process, results, refused } = await failing(
      ['spool.db-wal', 'spool.db.part'],
      'fsync,fdatasync:error=EIO:when=6..12',
    );
    expect(refused.length).to.be.greaterThan(0);
    expect(new Set(refused.map(({ outcome }) => outcome))).to.deep.equal(new Set(['fault']));
    expect(results.at(-1)?.outcome).to.equal('accepted');
    expect(process.log().match(/"event":"spool\.fault"/g)).to.have.length(1);
  });

  it('moves to a new file when the log cannot be checkpointed into the old one', async () => {
    // The move begins after 80 commits, and fails on another thread.
    const inject = 'fsync,fdatasync:error=EIO:when=1';
    const { process, results, refused } = await failing(['spool.db'], inject, 300, 100_000, '"rebuilt":');
    expect(refused.length).to.be.lessThan(results.length / 2);
    expect(results.at(-1)?.outcome).to.equal('accepted');
    expect(process.log()).to.match(/"rebuilt":\{"messages":\d/);
  });

  it('fails for a large body whose own sync failed', async () => {
    const dir = await tempDir();
    const process = startSpoolProcess(
      [dir, 1, 1, 1],
      ['strace', '-f', '-o', '/dev/null', '-e', 'trace=fdatasync', '-e', 'inject=fdatasync:error=EIO:when=1+'],
    );
    expect(await process.ended).to.not.equal(0);
    expect(process.log()).to.contain('SpoolFault');
    const { spool } = await freshSpool(dir);
    expect(await spool.list({}, 10)).to.deep.equal([]);
  });
});
