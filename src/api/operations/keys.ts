import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import type { KeyRow } from '../../store/rows/accounts.ts';
import { type Call, operation } from '../operation.ts';
import { record, str, time, timeOrNull, toTime } from './fields.ts';

const fields = {
  id: str('unique identifier; not part of the key'),
  starts_with: str('the first four characters of the key'),
  label: str('the label'),
  created_at: time('when it was created'),
  last_used_at: timeOrNull('when a call or an SMTP login last used it', 'null if never'),
};

const keyRecord = record('API key record', fields);

const newKeyRecord = record('new API key', {
  ...fields,
  key: str('the key; copy it now: it is not shown again, because only its hash is stored'),
});

async function toRecord(row: KeyRow, { keys }: Call<never>): Promise<z.input<typeof keyRecord>> {
  return {
    id: await keys.nameOf(row),
    starts_with: row.hint,
    label: row.label,
    created_at: toTime(row.createdAt),
    last_used_at: toTime(keys.lastUse(row)),
  };
}

/** A key as text, for the list of actions. */
const shownOf = ({ hint, label }: KeyRow) => (label === '' ? `${hint}…` : `${hint}… (${label})`);

/** Keys that an account may have at one time; the command line can create more. */
const MAX_KEYS = 100;
const LONGEST_LABEL = 100;

const list = operation({
  path: '/keys/list',
  access: 'settings',
  extension: true,
  summary: 'Lists the API keys of the account, oldest first.',
  notes:
    'Revoked keys are not listed. If another host of the service used a key, `last_used_at` may be up to a ' +
    'minute late.',
  params: {},
  returns: z.array(keyRecord),
  handle: async (_, call) => Promise.all((await call.keys.valid()).map((row) => toRecord(row, call))),
});

const add = operation({
  path: '/keys/add',
  access: 'secrets',
  extension: true,
  summary: 'Creates an API key for the account and shows it once.',
  notes: `Every key has all permissions of its account. An account may have ${MAX_KEYS} keys.`,
  params: {
    label: optional(
      text(LONGEST_LABEL).refine(
        (value) => !/[\p{Cc}\p{Cf}\u2028\u2029]/u.test(value),
        'Please enter a label without control characters',
      ),
    ).describe('the purpose of the key'),
  },
  returns: newKeyRecord,
  example: { label: 'billing' },
  async handle({ label = '' }, call) {
    return call.inTurn('keys', async () => {
      if ((await call.keys.valid()).length >= MAX_KEYS)
        throw call.invalid('account', `The account has ${MAX_KEYS} API keys, which is its limit; revoke one first`);
      const note = await call.actions.begin();
      const { row, key } = await call.keys.add(label);
      note('key created', 1, shownOf(row));
      return { ...(await toRecord(row, call)), key };
    });
  },
});

const revoke = operation({
  path: '/keys/revoke',
  access: 'secrets',
  extension: true,
  summary: 'Revokes an API key.',
  notes:
    'Every host refuses it within seconds. A key cannot revoke itself, so an account always keeps one; `postern ' +
    'key revoke` can revoke any key.',
  params: { id: text(255).describe('id of the key') },
  returns: keyRecord,
  errors: ['Unknown_Key', 'Invalid_OwnKey'],
  example: { id: 'a6355eee6291ff6e' },
  async handle({ id }, call) {
    const row = await findKey(id, call);
    if (row.id === call.apiKey) throw call.refuse('Invalid_OwnKey');
    const record = await toRecord(row, call);
    const note = await call.actions.begin();
    await call.keys.revoke(row);
    note('key revoked', 1, shownOf(row));
    return record;
  },
});

/** Throws Unknown_Key, also for a key of another account. */
async function findKey(id: string, { keys, refuse }: Call<'Unknown_Key'>): Promise<KeyRow> {
  for (const row of await keys.valid()) if ((await keys.nameOf(row)) === id) return row;
  throw refuse('Unknown_Key', id);
}

export const apiKeys = [list, add, revoke];
