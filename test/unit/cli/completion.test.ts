import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { COMMON } from '../../../src/cli/command.ts';
import { commands } from '../../../src/cli/commands.ts';
import { postern } from '../../support/command.ts';
import { tempDir } from '../../support/temp.ts';

/**
 * Each shell asks its completion about the words, the last of which is being typed, and prints what it offers, one a
 * line.
 */
const ASK = {
  bash: (file: string, words: readonly string[]) => [
    '-c',
    '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _postern; printf "%s\\n" "${COMPREPLY[@]}"',
    'bash',
    file,
    ...words,
  ],
  // zsh completes in an editor only: its two builders are stood in for, and print what they were given.
  zsh: (file: string, words: readonly string[]) => [
    '-c',
    `_describe() { print -rl -- \${\${(P)2}%%:*} }
_arguments() { local spec; for spec in "$@"; do [[ $spec == -s ]] && continue; [[ $spec == "1:word:("* ]] && print -rl -- \${=\${\${spec#"1:word:("}%")"}} || { spec=\${spec#\\*}; print -r -- "\${spec%%\\[*}"; }; done }
file=$1; shift; typeset -a words=("$@"); CURRENT=$#words; source $file`,
    'zsh',
    file,
    ...words,
  ],
  fish: (file: string, words: readonly string[]) => ['-c', `source ${file}; complete -C '${words.join(' ')}'`],
} as const;

describe('shell completion', () => {
  for (const shell of ['bash', 'zsh', 'fish'] as const) {
    describe(`for ${shell}`, () => {
      let file = '';
      before(async function () {
        if (spawnSync(shell, ['-c', 'true']).status !== 0) return this.skip();
        file = join(await tempDir(), 'completion');
        writeFileSync(file, (await postern(['completion', shell])).out);
        expect(spawnSync(shell, ['-n', file], { encoding: 'utf8' })).to.include({ status: 0, stderr: '' });
      });
      function offers(...words: readonly string[]): readonly string[] {
        const { stdout, stderr } = spawnSync(shell, ASK[shell](file, ['postern', ...words]), { encoding: 'utf8' });
        expect(stderr).to.equal('');
        return stdout
          .split('\n')
          .map((line) => line.split('\t')[0] ?? '')
          .filter((line) => line !== '');
      }

      it('offers every command', () => {
        const heads = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? ''))];
        expect(offers('')).to.include.members(heads);
        for (const head of heads) {
          const members = commands.flatMap(({ name }) =>
            name.startsWith(`${head} `) ? [name.slice(head.length + 1)] : [],
          );
          if (members.length > 0) expect([...offers(head, '')].sort(), head).to.deep.equal([...members].sort());
        }
      });

      it('offers every option of a command, and no other', async function () {
        this.timeout(30_000);
        for (const name of ['serve', 'queue list', 'replay', 'import mandrill', 'domain add', 'key create']) {
          const command = await commands.find((listed) => listed.name === name)?.load();
          const options = Object.keys({ ...command?.options, ...COMMON }).map((option) => `--${option}`);
          expect(
            [...offers(...name.split(' '), '--')].filter((word) => word.startsWith('--')).sort(),
            name,
          ).to.deep.equal(options.sort());
        }
      });

      it('offers the arguments of a command', () => {
        expect(offers('completion', '')).to.include.members(['bash', 'zsh', 'fish']);
      });

      it('offers the values of an option with few', function () {
        if (shell === 'zsh') return this.skip(); // _arguments does that
        expect([...offers('queue', 'list', '--state', '')].sort()).to.deep.equal([
          'dead',
          'delivered',
          'dropped',
          'held',
          'waiting',
        ]);
      });
    });
  }

  it('is rejected for an unknown shell', async () => {
    expect(await postern(['completion', 'csh'])).to.include({ code: 64, out: '' });
  });
});
