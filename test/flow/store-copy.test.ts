import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { EXIT } from '../../src/cli/command.ts';
import { spawnDaemon } from '../support/child.ts';
import { postern } from '../support/command.ts';
import { startDaemon } from '../support/daemon.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../support/database.ts';
import { startReceiver } from '../support/receiver.ts';
import { openTestStore } from '../support/store.ts';
import { tempDir } from '../support/temp.ts';

const env = (dir: string) => ({ POSTERN_DATA_DIR: dir, POSTERN_HOSTNAME: 'in.postern.test' });
const OWN = { POSTERN_INBOUND__OWNERSHIP: 'first' };

/** Where a store can be moved to from an embedded one: the words of the command line, and the settings that use it. */
async function elsewhere(): Promise<{ readonly words: string; readonly use: Readonly<Record<string, string>> }> {
  if (!mongoDriver) return { words: await tempDir(), use: {} };
  const url = (await mongoServer()).url(newDatabaseName());
  const file = join(await tempDir(), 'url');
  await writeFile(file, `${url}\n`);
  return { words: `@${file}`, use: { POSTERN_STORE__URL_FILE: file } };
}

describe('postern store copy', function () {
  this.timeout(120_000);

  it('moves a host to another store and back: keys, templates and routes go on', async () => {
    const dir = await tempDir();
    const receiver = await startReceiver();
    const first = await startDaemon(OWN, { dir });
    await first.api('/templates/add', { name: 'hello', code: '<b>{{x}}</b> Grüße', publish: true });
    await first.api('/inbound/add-domain', { domain: 'in.test' });
    const route = await first.api('/inbound/add-route', {
      domain: 'in.test',
      pattern: 'a',
      url: receiver.url,
    });
    const busy = await postern(['store', 'copy', dir, await tempDir()], env(dir));
    expect([busy.code, busy.err]).to.deep.equal([
      EXIT.unavailable,
      `postern store copy: a daemon uses ${dir}. Stop it first (systemctl stop postern), or what it writes during the copy is lost\n`,
    ]);
    await first.stop();

    const { words, use } = await elsewhere();
    const there = await postern(['store', 'copy', dir, words, '--json'], env(dir));
    expect([there.code, there.err]).to.deep.include(EXIT.ok);
    expect(there.json().find(({ collection }: any) => collection === 'templates')).to.include({ rows: 1 });
    const occupied = await postern(['store', 'copy', dir, words], env(dir));
    expect(occupied.code).to.equal(EXIT.failed);
    expect(occupied.err).to.match(/TO is not empty \(.*templates.*\)\. .* add --continue/);
    const unchanged = await postern(['store', 'copy', dir, words, '--continue'], env(dir));
    expect(unchanged.code, unchanged.err).to.equal(EXIT.ok);

    const moved = await startDaemon({ ...OWN, ...use }, { dir: use['POSTERN_STORE__URL_FILE'] ? dir : words });
    expect(await moved.api('/templates/info', { name: 'hello' })).to.include({ code: '<b>{{x}}</b> Grüße' });
    expect(await moved.api('/inbound/routes', { domain: 'in.test' })).to.deep.equal([route]);
    await moved.api('/templates/update', { name: 'hello', code: 'changed there' });
    await moved.stop();

    const back = await tempDir();
    const returned = await postern(['store', 'copy', words, back], env(dir));
    expect(returned.code, returned.err).to.equal(EXIT.ok);
    expect(returned.out).to.match(/Both sides have the same \d+ rows/);
    const last = await startDaemon(OWN, { dir: back });
    expect(await last.api('/templates/info', { name: 'hello' })).to.include({ code: 'changed there' });
    expect(await last.api('/inbound/routes', { domain: 'in.test' })).to.deep.equal([route]);
    await last.stop();
    await receiver.stop();
  });

  it('can be killed in the middle and continued', async () => {
    const [from, to] = [await tempDir(), await tempDir()];
    await (await openTestStore(undefined, from)).close();
    const database = new DatabaseSync(join(from, 'store.db'));
    database.exec(`WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
      INSERT INTO messages ("id", "row") SELECT printf('m%06d', i), json_object('account', 'a', 'n', i) FROM n`);
    database.close();
    const child = spawn(process.execPath, ['src/main.ts', 'store', 'copy', from, to], {
      env: { ...process.env, ...env(from) },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    child.stderr.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
      if (/copying messages: 10\d{3} rows/.test(text)) child.kill('SIGKILL');
    });
    await once(child, 'exit');
    expect(text, 'it was killed in the middle').to.not.match(/copying messages: 20000/);
    expect((await postern(['store', 'copy', from, to], env(from))).code).to.equal(EXIT.failed);
    const half =
      'a copy into this store was interrupted, so rows are missing: run postern store copy again with --continue';
    expect(await spawnDaemon(to).then(() => 'runs', String)).to.equal(
      `Error: the daemon ended with ${EXIT.config} before it was ready\npostern: cannot start: ${half}\n`,
    );
    expect((await postern(['account', 'list'], env(to))).code).to.equal(EXIT.config);
    const onward = await postern(['store', 'copy', to, await tempDir()], env(to));
    expect([onward.code, onward.err]).to.deep.equal([
      EXIT.failed,
      'postern store copy: FROM is not complete: a copy into it was interrupted. Finish that copy first (--continue)\n',
    ]);
    const { code, err, json } = await postern(['store', 'copy', from, to, '--continue', '--json'], env(from));
    expect(code, err).to.equal(EXIT.ok);
    const messages = json().find(({ collection }: any) => collection === 'messages');
    expect(messages.rows).to.equal(20_000);
    expect(messages.there).to.be.within(10_000, 19_999);
    expect((await postern(['account', 'list'], env(to))).code, 'and may be used').to.equal(EXIT.ok);
  });

  for (const [what, words, code, message] of [
    [
      'where FROM is no store',
      ['/nowhere/at/all', '/tmp/x'],
      EXIT.unavailable,
      /no store found: \/nowhere\/at\/all\/store\.db/,
    ],
    ['without TO', ['/var/lib/postern'], EXIT.usage, /missing argument: TO/],
    [
      'a URL that is none',
      ['http://127.0.0.1/', 'x'],
      EXIT.usage,
      /not a store: http:\/\/127\.0\.0\.1\/; a URL must be mongodb/,
    ],
    ['a file that is not there', ['@/nowhere/url', 'x'], EXIT.usage, /no such file/],
  ] as const)
    it(`refuses ${what}`, async () => {
      const ran = await postern(['store', 'copy', ...words], env(await tempDir()));
      expect([ran.code, ran.err]).to.satisfy(([got, err]: [number, string]) => got === code && message.test(err));
    });

  it('refuses a store as its own copy', async () => {
    const dir = await tempDir();
    await (await openTestStore(undefined, dir)).close();
    const ran = await postern(['store', 'copy', dir, join(dir, 'store.db')], env(dir));
    expect([ran.code, ran.err.split('\n')[0]]).to.deep.equal([
      EXIT.usage,
      'postern store copy: FROM and TO are the same store',
    ]);
  });
});
