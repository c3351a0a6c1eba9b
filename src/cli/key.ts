import { systemClock, toTimestamp } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createKey, revokeKey } from '../store/credentials.ts';
import type { AccountRow } from '../store/accounts.ts';
import { keyHash } from '../store/keys.ts';
import type { Store } from '../store/store.ts';
import { EXIT, UsageError, type Command, type Invocation } from './command.ts';
import { withStore } from './open.ts';
import { toTable } from './table.ts';

const parts = { clock: systemClock, ids: createIds(systemClock) };
/** Hexadecimal digits of a SHA-256; the id of a key that was revoked goes on behind them. */
const HASH_LENGTH = 64;
const account = { type: 'string', value: 'NAME', help: 'account, by name or id (not needed when there is one)' } as const;

async function theAccount(store: Store, call: Invocation): Promise<AccountRow> {
  const rows = await store.accounts.many({}, { sort: 'number' });
  const wanted = call.text('account');
  const found = wanted === undefined ? rows : rows.filter(({ id, name }) => id === wanted || name === wanted);
  if (found.length === 1 && found[0]) return found[0];
  if (found.length === 0) throw new UsageError(wanted === undefined ? 'there is no account yet: postern account create NAME' : `there is no account "${wanted}"`);
  throw new UsageError(`say which account with --account: ${found.map(({ name, id }) => `${name} (${id})`).join(', ')}`);
}

export const keyCreate: Command = {
  name: 'key create',
  args: '[LABEL]',
  summary: 'Makes an API key and prints it once.',
  options: { account },
  async run(call, io) {
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const label = call.words[0] ?? '';
      const key = await createKey(store, owner.id, label, parts);
      io.out(call.json ? JSON.stringify({ key, label, account: owner.id }) + '\n' : `${key}  (shown this once)\n`);
      return EXIT.ok;
    });
  },
};

export const keyList: Command = {
  name: 'key list',
  summary: 'Lists the API keys by their first four characters; the keys themselves are not kept.',
  options: { account },
  async run(call, io) {
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const rows = await store.keys.many({ account: owner.id }, { sort: 'createdAt' });
      const shown = rows.map((row) => ({
        id: row.id.slice(0, 12), starts_with: row.hint, label: row.label,
        created_at: toTimestamp(row.createdAt), revoked_at: row.revokedAt && toTimestamp(row.revokedAt),
      }));
      if (call.json) io.out(JSON.stringify(shown) + '\n');
      else io.out(toTable(['id', 'starts with', 'label', 'created', 'revoked'], shown.map((row) => Object.values(row))));
      return EXIT.ok;
    });
  },
};

export const keyRevoke: Command = {
  name: 'key revoke',
  args: 'KEY | ID',
  summary: 'Ends an API key: the key itself, or its id from `key list`. Running daemons refuse it within seconds.',
  options: { account },
  async run(call, io) {
    const wanted = call.words[0];
    if (wanted === undefined) throw new UsageError('say which key, by its id from `postern key list` or by the key itself');
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const hits = (await store.keys.many({ account: owner.id })).filter(({ id, hint }) => id.startsWith(wanted) || wanted.startsWith(hint) && id.startsWith(keyHash(wanted)));
      // A revocation that was cut off may have left two rows of one key.
      const [hit, ...more] = new Map(hits.map((row) => [row.id.slice(0, HASH_LENGTH), row])).values();
      if (!hit || more.length > 0) throw new UsageError(hit ? 'several keys begin with that id' : 'there is no such key');
      await revokeKey(store, hit.id.slice(0, HASH_LENGTH), parts);
      io.out(call.json ? JSON.stringify({ id: hit.id.slice(0, 12), revoked: true }) + '\n' : `Revoked ${hit.hint}… ${hit.label}\n`);
      return EXIT.ok;
    });
  },
};
