import { systemClock, toTimestamp } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createKey, revokeKey } from '../store/credentials.ts';
import { keyHash } from '../store/keys.ts';
import { accountOption, theAccount } from './account.ts';
import { type Command, EXIT, UsageError } from './command.ts';
import { withStore } from './open.ts';
import { toTable } from './table.ts';

const parts = { clock: systemClock, ids: createIds(systemClock) };
/** Hexadecimal digits of a SHA-256; the id of a key that was revoked goes on behind them. */
const HASH_LENGTH = 64;

export const keyCreate: Command = {
  name: 'key create',
  args: '[LABEL]',
  summary: 'Makes an API key and prints it: alone on standard output, and never again.',
  options: { account: accountOption },
  async run(call, io) {
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const label = call.words[0] ?? '';
      const key = await createKey(store, owner.id, label, parts);
      if (call.format === 'text') io.err(`A key of account ${owner.name}, shown this once:\n`);
      call.print([{ key, label, account: owner.id }], () => `${key}\n`);
      return EXIT.ok;
    });
  },
};

export const keyList: Command = {
  name: 'key list',
  summary: 'Lists the API keys by their first four characters; the keys themselves are not kept.',
  options: { account: accountOption },
  async run(call) {
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const rows = await store.keys.many({ account: owner.id }, { sort: 'createdAt' });
      const shown = rows.map((row) => ({
        id: row.id.slice(0, 12),
        starts_with: row.hint,
        label: row.label,
        created_at: toTimestamp(row.createdAt),
        revoked_at: row.revokedAt && toTimestamp(row.revokedAt),
      }));
      call.print(shown, () =>
        toTable(
          ['id', 'starts with', 'label', 'created', 'revoked'],
          shown.map((row) => Object.values(row)),
        ),
      );
      return EXIT.ok;
    });
  },
};

export const keyRevoke: Command = {
  name: 'key revoke',
  args: 'KEY | ID',
  summary: 'Ends an API key: the key itself, or its id from `key list`. Running daemons refuse it within seconds.',
  options: { account: accountOption },
  async run(call) {
    const wanted = call.words[0];
    if (wanted === undefined) throw new UsageError('missing argument: KEY or ID (postern key list shows the ids)');
    return withStore(call.settings().settings, async (store) => {
      const owner = await theAccount(store, call);
      const hits = (await store.keys.many({ account: owner.id })).filter(
        ({ id, hint }) => id.startsWith(wanted) || (wanted.startsWith(hint) && id.startsWith(keyHash(wanted))),
      );
      // A revocation that was cut off may have left two rows of one key.
      const [hit, ...more] = new Map(hits.map((row) => [row.id.slice(0, HASH_LENGTH), row])).values();
      if (!hit || more.length > 0)
        throw new UsageError(hit ? 'several keys begin with that id' : 'there is no such key');
      await revokeKey(store, hit.id.slice(0, HASH_LENGTH), parts);
      call.print([{ id: hit.id.slice(0, 12), revoked: true }], () => `Revoked ${hit.hint}… ${hit.label}\n`);
      return EXIT.ok;
    });
  },
};
