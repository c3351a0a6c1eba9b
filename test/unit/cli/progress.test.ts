import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { freshSpool, put } from '../../support/spool.ts';
import { tempDir } from '../../support/temp.ts';

describe('a bulk change on the command line', () => {
  it('shows its progress on standard error, and only the result on standard output', async function () {
    this.timeout(30_000);
    const dir = await tempDir();
    const { spool, clock } = await freshSpool(join(dir, 'spool'));
    await Promise.all(
      Array.from({ length: 12 }, (_, i) =>
        put(spool, clock, { recipients: Array.from({ length: 100 }, (_, j) => `box-${i}-${j}@in.test`) }),
      ),
    );
    await spool.close();
    const env = { POSTERN_DATA_DIR: dir };
    const dropped = await postern(['queue', 'drop', '--all', '--json'], env);
    expect(dropped.json()).to.deep.equal([{ count: 1200, dry_run: false }]);
    expect(dropped.err).to.match(/^queue drop: \d+ of 1200\n/);
    const replayed = await postern(['replay', '--all'], env);
    expect(replayed).to.include({ code: 0, out: 'Requeued 1200 deliveries.\n' });
    expect(replayed.err).to.match(/^replay: \d+ of 1200\n/);
    expect((await postern(['queue', 'retry', '--recipient', 'box-0-0@in.test'], env)).err, 'one step').to.equal('');
  });

  it('keeps its progress when the command is killed; the same command continues with the rest', async function () {
    this.timeout(60_000);
    const dir = await tempDir();
    const { spool, clock } = await freshSpool(join(dir, 'spool'));
    const recipients = Array.from({ length: 500 }, (_, i) => `box-${i}@in.test`);
    await Promise.all(Array.from({ length: 40 }, () => put(spool, clock, { recipients })));
    const main = new URL('../../../src/main.ts', import.meta.url).pathname;
    const command = spawn(process.execPath, [main, 'queue', 'drop', '--all'], {
      env: { ...process.env, POSTERN_DATA_DIR: dir },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const ended = once(command, 'exit');
    await once(command.stderr, 'data'); // it says that it has changed some
    command.kill('SIGKILL');
    await ended;
    const { waiting, dropped } = await spool.count({});
    expect(dropped).to.be.within(500, 19_500);
    expect(dropped % 500, 'whole steps').to.equal(0);
    expect(waiting + dropped).to.equal(20_000);
    const again = await postern(['queue', 'drop', '--all', '--json'], { POSTERN_DATA_DIR: dir });
    expect(again.json()).to.deep.equal([{ count: waiting, dry_run: false }]);
    expect(await spool.count({})).to.include({ waiting: 0, dropped: 20_000 });
  });
});
