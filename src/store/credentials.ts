import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { AccountRow } from './accounts.ts';
import { type KeyRow, keyHash } from './keys.ts';
import type { Store } from './store.ts';

interface Parts {
  readonly clock: Clock;
  readonly ids: Ids;
}

/** Makes an account with the next number. */
export async function createAccount(store: Store, name: string, { clock, ids }: Parts): Promise<AccountRow> {
  const { count } = await store.revisions.add('accounts', { count: 1 }, { count: 0 });
  const row = { id: ids.key(), name, number: count, createdAt: new Date(clock.now()) };
  await store.accounts.insert(row);
  return row;
}

/** Makes an API key and answers it; the store keeps only its hash, so this is the one time it can be seen. */
export async function createKey(
  store: Store,
  account: string,
  label: string,
  { clock, ids }: Parts,
  key = ids.key(),
): Promise<string> {
  const row = {
    id: keyHash(key),
    account,
    label,
    hint: key.slice(0, 4),
    createdAt: new Date(clock.now()),
    revokedAt: null,
  };
  if ((await store.keys.insert(row)) === 'duplicate') throw new Error('this key exists already');
  return key;
}

/**
 * Ends a key. Its row goes over to an id that is no hash: a look-up then finds as little as for a key that never was, and takes as
 * long. Cut off before that it is ended all the same, and may be ended again.
 */
export async function revokeKey(
  store: Pick<Store, 'keys'>,
  id: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<void> {
  const row =
    (await store.keys.change({ id, revokedAt: null }, { revokedAt: new Date(clock.now()) })) ??
    (await store.keys.one({ id }));
  if (!row || isMoved(row)) return;
  await store.keys.insert({ ...row, id: `${id}${MOVED}` });
  await store.keys.remove({ id });
}

const MOVED = ' revoked';
const isMoved = ({ id }: KeyRow) => id.endsWith(MOVED);

/**
 * The first account with its first key, when there is none yet; undefined otherwise.
 * Several hosts may start on one empty database at once: the account number decides who was first. A start that was
 * cut off between the account and its key is taken up again.
 */
export async function bootstrap(
  store: Store,
  givenKey: string,
  parts: Parts,
): Promise<{ account: string; key: string } | undefined> {
  const account = (await store.accounts.one({ number: 1 })) ?? (await firstAccount(store, parts));
  if (!account || (await store.keys.one({ account: account.id }))) return undefined;
  const key = await createKey(store, account.id, 'first key', parts, givenKey === '' ? undefined : givenKey);
  return { account: account.id, key };
}

async function firstAccount(store: Store, parts: Parts): Promise<AccountRow | undefined> {
  const row = { id: parts.ids.key(), name: 'main', number: 1, createdAt: new Date(parts.clock.now()) };
  if ((await store.accounts.insert(row)) === 'duplicate') return undefined;
  await store.revisions.add('accounts', { count: 1 }, { count: 0 });
  return row;
}
