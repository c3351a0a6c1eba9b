import { checkFiles, checkNames } from '../composition/files.ts';
import type { Command } from './command.ts';

export const configCheck: Command = {
  async run(call) {
    const { settings } = call.settings();
    checkNames(settings);
    checkFiles(settings);
    call.print([{ ok: true }], () => 'The settings are valid.\n');
  },
};

export const configShow: Command = {
  async run(call) {
    const { shown } = call.settings();
    call.table(shown, {
      headings: ['setting', 'value', 'from'],
      cells: ({ path, value, origin }) => [path, JSON.stringify(value), origin],
    });
  },
};
