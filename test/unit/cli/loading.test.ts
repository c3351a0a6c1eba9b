import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { tempDir } from '../../support/temp.ts';

const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const HOOK = new URL('../../support/loaded-modules.ts', import.meta.url).href;

/** Runs `postern …argv`; returns the files of src/ and the packages that its main thread loaded. */
async function loadedBy(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const list = join(await tempDir(), 'modules');
  const { status, stderr } = spawnSync(process.execPath, ['--import', HOOK, MAIN, ...argv], {
    encoding: 'utf8',
    env: { ...process.env, ...env, LOADED_MODULES: list },
  });
  expect(status, stderr).to.equal(0);
  const urls = readFileSync(list, 'utf8').split('\n');
  const matches = (pattern: RegExp) => [...new Set(urls.flatMap((url) => pattern.exec(url)?.[1] ?? []))].sort();
  return {
    files: matches(/\/src\/((?!.*\/node_modules\/).*)$/),
    packages: matches(/\/node_modules\/((?:@[^/]+\/)?[^/]+)/),
  };
}

describe('a start of the command line', function () {
  this.timeout(60_000);

  it('loads no command for the version and for the overview', async () => {
    for (const argv of [['--version'], ['help']]) {
      const { files, packages } = await loadedBy(argv);
      expect(files.filter((file) => !file.startsWith('base/'))).to.deep.equal([
        'cli/command-line.ts',
        'cli/command.ts',
        'cli/commands.ts',
        'main.ts',
        'queue/states.ts',
      ]);
      expect(packages).to.deep.equal(['ipaddr.js']);
    }
  });

  it('loads only the modules that a command needs', async () => {
    const env = { POSTERN_DATA_DIR: await tempDir() };
    const { files, packages } = await loadedBy(['account', 'list'], env);
    expect(files).to.include.members(['cli/account.ts', 'config.ts', 'store/driver/embedded.ts']);
    expect(
      files.filter((file) => /^(?:daemon|api\/(?!errors)|smtp|webhooks|dns\/resolver|store\/driver\/mongo)/.test(file)),
    ).to.deep.equal([]);
    expect(packages).to.deep.equal(['iconv-lite', 'ipaddr.js', 'node-cron', 'safer-buffer', 'yaml', 'zod']);
  });
});
