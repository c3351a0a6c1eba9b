import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { EXIT } from '../../../src/cli/command.ts';
import { type ChildDaemon, spawnDaemon } from '../../support/child.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE } from '../../support/until.ts';

describe('a process that would run as a host that runs', function () {
  this.timeout(120_000 * PATIENCE);
  let dir: string;
  let env: Readonly<Record<string, string>>;
  let first: ChildDaemon;

  before(async function () {
    if (!mongoDriver) this.skip();
    dir = await tempDir();
    env = { POSTERN_STORE__URL: (await mongoServer()).url(newDatabaseName()), POSTERN_HOSTNAME: 'mx.postern.test' };
    first = await spawnDaemon(dir, env);
  });
  after(() => first?.end());

  const ended = (sentence: RegExp) =>
    new RegExp(
      `^Error: the daemon ended with ${EXIT.config} before it was ready\npostern: cannot start: ${sentence.source}\n$`,
    );
  const starts = (own: string, more = {}) =>
    spawnDaemon(own, { ...env, ...more }).then(async (daemon) => `runs, and ended with ${await daemon.end()}`, String);
  const known = /\(id \S+, Postern \S+, running since \S+ \S+ UTC by its clock\)/.source;

  it('ends with exit code 78 and one sentence if it is another machine with the same hostname', async () => {
    expect(await starts(await tempDir())).to.match(
      ended(
        new RegExp(
          `another host with the hostname mx\\.postern\\.test runs on this store ${known}: set another hostname here, or stop that host first`,
        ),
      ),
    );
    expect(first.running()).to.equal(true);
  });

  it('ends with exit code 78 and one sentence if it is a copy of the disk, whatever its hostname', async () => {
    const clone = await tempDir();
    await cp(dir, clone, { recursive: true });
    const queue = join(clone, 'spool');
    for (const more of [{}, { POSTERN_HOSTNAME: 'mx2.postern.test' }])
      expect(await starts(clone, more)).to.match(
        ended(
          new RegExp(
            `another process runs as this host ${known}: ${queue} is a copy of its queue, or both use one folder\\. Stop that process first; if this machine is a copy, remove ${queue} here, because the other host has its mail`,
          ),
        ),
      );
    expect(first.running()).to.equal(true);
  });
});
