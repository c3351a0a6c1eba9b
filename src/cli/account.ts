import { toTimestamp } from '../base/clock.ts';
import {
  type AccountRow,
  createAccount,
  createKey,
  FIRST_KEY,
  keyHash,
  keyName,
  revokeKey,
} from '../store/rows/accounts.ts';
import { openSecret } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { type Command, type Invocation, UsageError } from './command.ts';
import { runWithStore, tools, withStore } from './open.ts';

/** The option that selects the account a command works on. */
export const accountOption = { value: 'NAME', help: 'account name or id (optional if there is only one)' };

/** The account named by `--account`, or the only one. Throws `UsageError` if there is none or more than one. */
export async function theAccount(store: Pick<Store, 'accounts'>, call: Invocation): Promise<AccountRow> {
  const rows = await store.accounts.many({}, { sort: 'number' });
  const wanted = call.text('account');
  const found = wanted === undefined ? rows : rows.filter(({ id, name }) => id === wanted || name === wanted);
  if (found.length === 1 && found[0]) return found[0];
  if (found.length === 0)
    throw new UsageError(
      wanted === undefined
        ? 'no account exists yet; create one: postern account create NAME'
        : `no such account: ${wanted} (see: postern account list)`,
    );
  throw new UsageError(
    `several accounts match; choose one with --account: ${found.map(({ name, id }) => `${name} (${id})`).join(', ')}`,
  );
}

/** The option of lists that selects the rows of one account, read by `accountsOf`. */
export const onlyAccount = { ...accountOption, help: 'only this account, by name or id' };
export async function accountsOf(store: Pick<Store, 'accounts'>, call: Invocation) {
  const names = new Map((await store.accounts.many({})).map(({ id, name }) => [id, name]));
  return { names, only: call.text('account') === undefined ? {} : { account: (await theAccount(store, call)).id } };
}

export const accountCreate: Command = {
  args: 'NAME',
  async run(call, io) {
    const name = call.word('NAME');
    return withStore(call.settings().settings, async (store) => {
      // Later commands name accounts, and two of one name would have to be told apart by their ids.
      if (await store.accounts.one({ name }))
        throw new UsageError(`account ${name} exists already; for another key: postern key create --account ${name}`);
      const account = await createAccount(store, name, tools);
      const key = await createKey(store, account.id, FIRST_KEY, tools);
      if (call.format === 'text') io.err(`Created account ${name} (${account.id}). Its API key, shown only once:\n`);
      call.print([{ id: account.id, name, key }], () => `${key}\n`);
    });
  },
};

export const accountList: Command = {
  run: runWithStore(async ({ call, store }) => {
    const rows = await store.accounts.many({}, { sort: 'number' });
    const shown = rows.map(({ id, name, number, createdAt }) => ({
      id,
      name,
      number,
      created_at: toTimestamp(createdAt),
    }));
    call.table(shown, {
      none: 'No accounts. Create one: postern account create NAME',
      headings: ['number', 'name', 'id', 'created'],
      cells: (row) => [row.number, row.name, row.id, row.created_at],
    });
  }),
};

export const keyCreate: Command = {
  args: '[LABEL]',
  options: { account: accountOption },
  run: runWithStore(async ({ call, io, store }) => {
    const owner = await theAccount(store, call);
    const label = call.words[0] ?? '';
    const key = await createKey(store, owner.id, label, tools);
    if (call.format === 'text') io.err(`API key for account ${owner.name}, shown only once:\n`);
    call.print([{ key, label, account: owner.id }], () => `${key}\n`);
  }),
};

export const keyList: Command = {
  options: { account: accountOption },
  run: runWithStore(async ({ call, store }) => {
    const owner = await theAccount(store, call);
    const secret = await openSecret(store, tools.ids);
    const rows = await store.keys.many({ account: owner.id }, { sort: 'createdAt' });
    const shown = rows.map((row) => ({
      id: keyName(row, secret),
      starts_with: row.hint,
      label: row.label,
      created_at: toTimestamp(row.createdAt),
      last_used_at: row.lastUsedAt ? toTimestamp(row.lastUsedAt) : null,
      revoked_at: row.revokedAt && toTimestamp(row.revokedAt),
    }));
    call.table(shown, {
      none: `Account ${owner.name} has no API keys. Create one: postern key create`,
      headings: ['id', 'starts with', 'label', 'created', 'last used', 'revoked'],
    });
  }),
};

export const keyRevoke: Command = {
  args: 'KEY | ID',
  options: { account: accountOption },
  async run(call) {
    const wanted = call.word('KEY or ID (see: postern key list)');
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const secret = await openSecret(store, tools.ids);
      // An interrupted revocation may have left two rows for one key: both have the same name.
      const hit = (await store.keys.many({ account: owner.id })).find(
        (row) => keyName(row, secret) === wanted || row.id.startsWith(keyHash(wanted)),
      );
      if (!hit) throw new UsageError(`account ${owner.name} has no such key (see: postern key list)`);
      const name = keyName(hit, secret);
      await revokeKey(store, hit.id, tools);
      call.print([{ id: name, revoked: true }], () => `Revoked ${hit.hint}… ${hit.label}\n`);
    });
  },
};
