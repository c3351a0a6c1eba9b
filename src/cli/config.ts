import { checkFiles, checkNames } from '../composition/files.ts';
import type { Command } from './command.ts';

const configCheck: Command = {
  name: 'config check',
  summary:
    'Checks all settings and the files they name, and prints every fault with its path; exits 78 if there is ' +
    'any. Placeholder names of the example file count as faults.',
  async run(call) {
    const { settings } = call.settings();
    checkNames(settings);
    checkFiles(settings);
    call.print([{ ok: true }], () => 'The settings are valid.\n');
  },
};

const configShow: Command = {
  name: 'config show',
  summary: 'Prints every effective setting and its origin. Secrets are shown as (set).',
  async run(call) {
    const { shown } = call.settings();
    call.table(shown, ['setting', 'value', 'from'], ({ path, value, origin }) => [path, JSON.stringify(value), origin]);
  },
};

export const configCommands = [configCheck, configShow];
