import { checkFiles } from '../composition/files.ts';
import { EXIT, type Command } from './command.ts';
import { toTable } from './table.ts';

export const configCheck: Command = {
  name: 'config check',
  summary: 'Reads all settings and the files that they name, and names every fault with its path; exit 78 when there is one.',
  async run(call, io) {
    checkFiles(call.settings().settings);
    io.out(call.json ? '{"ok":true}\n' : 'The settings are in order.\n');
    return EXIT.ok;
  },
};

export const configShow: Command = {
  name: 'config show',
  summary: 'Prints every setting that is in force, and where it came from. Secrets are shown as (set).',
  async run(call, io) {
    const { shown } = call.settings();
    if (call.json) io.out(JSON.stringify(shown) + '\n');
    else io.out(toTable(['setting', 'value', 'from'], shown.map(({ path, value, origin }) => [path, JSON.stringify(value), origin])));
    return EXIT.ok;
  },
};
