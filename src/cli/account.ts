import { systemClock, toTimestamp } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import type { AccountRow } from '../store/accounts.ts';
import { createAccount, createKey } from '../store/credentials.ts';
import type { Store } from '../store/store.ts';
import { type Command, EXIT, type Invocation, UsageError } from './command.ts';
import { withStore } from './open.ts';
import { toTable } from './table.ts';

const parts = { clock: systemClock, ids: createIds(systemClock) };

/** The option that says which account a command works on. */
export const accountOption = {
  type: 'string',
  value: 'NAME',
  help: 'account, by name or id (not needed when there is one)',
} as const;

/** The account that `--account` names, or the only one. Throws `UsageError` when that is none or several. */
export async function theAccount(store: Pick<Store, 'accounts'>, call: Invocation): Promise<AccountRow> {
  const rows = await store.accounts.many({}, { sort: 'number' });
  const wanted = call.text('account');
  const found = wanted === undefined ? rows : rows.filter(({ id, name }) => id === wanted || name === wanted);
  if (found.length === 1 && found[0]) return found[0];
  if (found.length === 0)
    throw new UsageError(
      wanted === undefined ? 'there is no account yet: postern account create NAME' : `there is no account "${wanted}"`,
    );
  throw new UsageError(
    `several accounts match; name one with --account: ${found.map(({ name, id }) => `${name} (${id})`).join(', ')}`,
  );
}

export const accountCreate: Command = {
  name: 'account create',
  args: 'NAME',
  summary: 'Makes an account with its first API key, and prints the key: alone on standard output, and never again.',
  async run(call, io) {
    const name = call.words[0];
    if (name === undefined) throw new UsageError('missing argument: NAME');
    return withStore(call.settings().settings, async (store) => {
      const account = await createAccount(store, name, parts);
      const key = await createKey(store, account.id, 'first key', parts);
      if (call.format === 'text') io.err(`Account ${name} (${account.id}). Its API key, shown this once:\n`);
      call.print([{ id: account.id, name, key }], () => `${key}\n`);
      return EXIT.ok;
    });
  },
};

export const accountList: Command = {
  name: 'account list',
  summary: 'Lists the accounts.',
  async run(call) {
    return withStore(call.settings().settings, async (store) => {
      const rows = await store.accounts.many({}, { sort: 'number' });
      const shown = rows.map(({ id, name, number, createdAt }) => ({
        id,
        name,
        number,
        created_at: toTimestamp(createdAt),
      }));
      call.print(shown, () =>
        toTable(
          ['number', 'name', 'id', 'created'],
          shown.map((row) => [row.number, row.name, row.id, row.created_at]),
        ),
      );
      return EXIT.ok;
    });
  },
};
