import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { readSettings } from '../../../scripts/configuration.ts';
import { commandPage, daemonPage, settingsPage } from '../../../scripts/man.ts';
import { loadCommand } from '../../../src/cli/command.ts';
import { commands } from '../../../src/cli/commands.ts';
import { DEFAULTS_FILE } from '../../../src/config.ts';

describe('the manual pages', () => {
  const plain = (page: string) =>
    page
      .replaceAll('\\-', '-')
      .replaceAll('\\&', '')
      .replaceAll(/\\f[BIR]/g, '');

  it('document every command and option', async () => {
    const page = plain(await commandPage());
    const loaded = await Promise.all(commands.map(loadCommand));
    const names = loaded.flatMap(({ name, options }) => [
      name,
      ...Object.keys(options ?? {}).map((option) => `--${option}`),
    ]);
    expect(names.filter((name) => !page.includes(name))).to.deep.equal([]);
  });

  it('document every setting with its default', () => {
    const page = plain(settingsPage());
    const settings = [...readSettings(readFileSync(DEFAULTS_FILE, 'utf8'))];
    expect(settings).to.have.length.above(80);
    expect(
      settings.filter(
        ({ path, value }) =>
          !page.includes(`\n${path}\n`) ||
          !page.includes(`Default ${value}, variable POSTERN_${path.toUpperCase().replaceAll('.', '__')}.`),
      ),
    ).to.deep.equal([]);
  });

  it('are valid roff', async function () {
    if (spawnSync('groff', ['--version']).status !== 0) this.skip();
    for (const page of [await commandPage(), settingsPage(), daemonPage()]) {
      const { status, stderr } = spawnSync('groff', ['-man', '-ww', '-Tutf8'], { input: page, encoding: 'utf8' });
      expect(stderr).to.equal('');
      expect(status).to.equal(0);
    }
  });
});
