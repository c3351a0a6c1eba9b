import { chmod, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

describe('the files of a daemon', () => {
  let running: TestDaemon | undefined;
  let umask: number;
  before(() => {
    umask = process.umask(0);
  });
  afterEach(() => running?.stop());
  after(() => process.umask(umask));

  async function filesIn(dir: string): Promise<string[]> {
    const entries = await readdir(dir, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  }
  /** Files that others may read, by their names. */
  async function open(dir: string): Promise<string[]> {
    const modes = await Promise.all(
      (await filesIn(dir)).map(async (path) => [path.slice(dir.length), (await stat(path)).mode & 0o077] as const),
    );
    return modes.flatMap(([name, mode]) => (mode === 0 ? [] : [name]));
  }

  it('are readable only by the owner, for any umask, and also if an earlier version created them', async () => {
    const dir = join(await tempDir(), 'data');
    running = await startDaemon({}, { dir });
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: 'pull:' });
    const large = message('x'.repeat(70).concat('\r\n').repeat(10_000));
    expect(await sendMail(running.smtp, { from: 'a@b.test', to: 'c@in.test' }, large)).to.match(/^250/);
    await running.api('/exports/rejects');
    const kinds = [/\.zip$/, /^\/spool\/spool\.db$/, /^\/spool\/spool\.db-wal$/, /^\/spool\/blobs\//].concat([
      /^\/journal\.db$/,
      /^\/journal\.db-wal$/,
      /^\/store\.db$/,
    ]);
    await until('a file of each kind', async () => {
      const names = (await filesIn(dir)).map((path) => path.slice(dir.length));
      return kinds.every((kind) => names.some((name) => kind.test(name)));
    });
    expect(await open(dir)).to.deep.equal([]);
    await running.stop();
    for (const path of await filesIn(dir)) await chmod(path, 0o644);
    running = await startDaemon({}, { dir });
    await until('the permissions', async () => (await open(dir)).length === 0);
  });
});
