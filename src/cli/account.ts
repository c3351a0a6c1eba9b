import { systemClock, toTimestamp } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createAccount, createKey } from '../store/credentials.ts';
import { EXIT, UsageError, type Command } from './command.ts';
import { withStore } from './open.ts';
import { toTable } from './table.ts';

const parts = { clock: systemClock, ids: createIds(systemClock) };

export const accountCreate: Command = {
  name: 'account create',
  args: 'NAME',
  summary: 'Makes an account and its first API key, and prints the key once.',
  async run(call, io) {
    const name = call.words[0];
    if (name === undefined) throw new UsageError('say the name of the account');
    return withStore(call.settings().settings, async (store) => {
      const account = await createAccount(store, name, parts);
      const key = await createKey(store, account.id, 'first key', parts);
      io.out(call.json ? JSON.stringify({ id: account.id, name, key }) + '\n' : `Account ${name} (${account.id})\nAPI key ${key}  (shown this once)\n`);
      return EXIT.ok;
    });
  },
};

export const accountList: Command = {
  name: 'account list',
  summary: 'Lists the accounts.',
  async run(call, io) {
    return withStore(call.settings().settings, async (store) => {
      const rows = await store.accounts.many({}, { sort: 'number' });
      const shown = rows.map(({ id, name, number, createdAt }) => ({ id, name, number, created_at: toTimestamp(createdAt) }));
      if (call.json) io.out(JSON.stringify(shown) + '\n');
      else io.out(toTable(['number', 'name', 'id', 'created'], shown.map((row) => [row.number, row.name, row.id, row.created_at])));
      return EXIT.ok;
    });
  },
};
