import { globSync, readFileSync } from 'node:fs';
import { expect } from 'chai';
import { COMMON, type ListedCommand } from '../../../src/cli/command.ts';
import { commands } from '../../../src/cli/commands.ts';

/** Where `postern` is a service, a user or a container, or any command is meant. */
const OTHER = /^(?:COMMAND|-|…)/;

/** Command lines of a page: in backticks, and the lines of its shell blocks. */
function commandLines(text: string): readonly string[] {
  const blocks = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) =>
    block
      .replaceAll('\\\n', ' ')
      .split('\n')
      .map((line) => line.replace(/(?:^|\s)#.*$/, '')),
  );
  const prose = text.replaceAll(/^```[\s\S]*?^```$/gm, '').replaceAll(/\s+/g, ' ');
  return [...blocks, ...[...prose.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)].flatMap((line) =>
    [...line.matchAll(/(?<![\w./:@=-])postern ((?:[^|;&$()<>"']|'[^']*'|"[^"]*")+)/g)].map(([, words = '']) =>
      words.trim().replace(/^postern /, ''),
    ),
  );
}

describe('the documents of an operator', () => {
  const lines = ['README.md', ...globSync('docs/{,migration/}*.md')].flatMap((page) =>
    commandLines(readFileSync(page, 'utf8')).map((line) => ({ page, line })),
  );
  const commandOf = (line: string): ListedCommand | undefined =>
    commands.find(({ name }) => line === name || line.startsWith(`${name} `));
  /** `queue` stands for all its commands. */
  const isGroup = (line: string) => commands.some(({ name }) => name.startsWith(`${line} `));

  it('name only commands that exist', () => {
    expect(lines.length).to.be.greaterThan(50);
    const unknown = lines.filter(({ line }) => !OTHER.test(line) && commandOf(line) === undefined && !isGroup(line));
    expect(unknown).to.deep.equal([]);
  });

  it('give commands only options that they have', async () => {
    for (const { page, line } of lines) {
      const command = await commandOf(line)?.load();
      if (!command) continue;
      const known = [...Object.keys({ ...command.options, ...COMMON }), 'help'];
      const given = [...line.matchAll(/(?<= )--([a-z-]+)/g)].map(([, option = '']) => option);
      expect(known, `${page}: ${line}`).to.include.members(given);
    }
  });
});
