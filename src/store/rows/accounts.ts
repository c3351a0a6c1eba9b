import { createHash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import { createExpiringMemory } from '../../base/memory.ts';
import { networkOf } from '../../base/networks.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection, type OwnedRow } from './collection.ts';

/** An account: everything else belongs to one. */
export interface AccountRow extends Row {
  readonly name: string;
  /** A small number that ids shown to people begin with (route `7.23`). */
  readonly number: number;
  readonly createdAt: Date;
}

export const accounts = collection<AccountRow>()({
  name: 'accounts',
  access: 'none',
  indexes: [['name']],
  unique: [['number']],
  dates: ['createdAt'],
});

/** An API key. The store never holds the key itself: `id` is its SHA-256, as `keyHash` makes it. */
export interface KeyRow extends OwnedRow {
  readonly label: string;
  /** The first four characters, so that a person can tell keys apart. */
  readonly hint: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
}

export const keys = collection<KeyRow>()({
  name: 'keys',
  access: 'own',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt', 'revokedAt'],
  upkeep: true, // to revoke one is to write a row
});

/** A key has 128 random bits, so one fast hash is enough to make the stored form useless to a thief. */
export function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/**
 * How long a key that was good is not looked up again: so much later a revocation holds at the latest. Milliseconds.
 */
const FRESH_MS = 1000;
const MAX_REMEMBERED = 10_000;
const MINUTE_MS = 60_000;
/** Our own keys have 22 characters, those an operator brings along rarely more than 64. */
const LONGEST_KEY = 256;

export interface KeyCheckSettings {
  /** Wrong keys from one address in a minute; those that follow are answered nothing but that there were too many. */
  readonly maxBadKeysPerMinute: number;
}

/**
 * good: whose it is, and the id of its row · wrong: no such key, or it was revoked · too-many: wrong, as were too many
 * before it.
 */
type KeyAnswer =
  | { readonly kind: 'good'; readonly account: AccountRow; readonly id: string }
  | { readonly kind: 'wrong' | 'too-many' };

/** Finds the account of a key, for the API and for SMTP logins. */
interface KeyCheck {
  /**
   * Looks the key up before anything else. Only who brings wrong ones is throttled: whoever shares an address with him
   * (an office, a proxy, a cloud's NAT) goes on, and a key of 128 random bits is not guessed whatever the rate. Throws
   * `StoreAway`.
   */
  check(key: unknown, address: string): Promise<KeyAnswer>;
  /** The account of a key by the id of its row; undefined when it was revoked. Throws `StoreAway`. */
  accountOf(id: string): Promise<AccountRow | undefined>;
}

export function createKeyCheck(
  settings: KeyCheckSettings,
  deps: { readonly store: Pick<Store, 'keys' | 'accounts'>; readonly clock: Clock },
): KeyCheck {
  const { store, clock } = deps;
  const good = createExpiringMemory<AccountRow>({ most: MAX_REMEMBERED }, clock);
  const failures = createFailures(settings.maxBadKeysPerMinute, clock);

  async function accountOf(id: string): Promise<AccountRow | undefined> {
    const known = good.get(id);
    if (known) return known;
    // The store is asked for a good one: a revoked row that came back as far as here would take longer than none at
    // all.
    const row = await store.keys.one({ id, revokedAt: null });
    if (!row) return undefined;
    const account = await store.accounts.one({ id: row.account });
    if (!account) return undefined;
    good.set(id, account, FRESH_MS);
    return account;
  }

  return frozen({
    accountOf,
    async check(key, address): Promise<KeyAnswer> {
      const plausible = typeof key === 'string' && key !== '' && key.length <= LONGEST_KEY;
      const id = plausible ? keyHash(key) : '';
      const account = plausible ? await accountOf(id) : undefined;
      if (account) return { kind: 'good', account, id };
      return { kind: failures.note(networkOf(address)) ? 'wrong' : 'too-many' };
    },
  });
}

/** Counts failures per network in windows of a minute. `note` answers whether this one was still within the limit. */
function createFailures(limit: number, clock: Clock) {
  const counts = createExpiringMemory<{ count: number }>({ most: MAX_REMEMBERED }, clock);
  return {
    note(name: string): boolean {
      const entry = counts.get(name);
      if (entry) return ++entry.count <= limit;
      counts.set(name, { count: 1 }, MINUTE_MS);
      return limit >= 1;
    },
  };
}

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
 * Ends a key. Its row goes over to an id that is no hash: a look-up then finds as little as for a key that never was,
 * and takes as long. Cut off before that it is ended all the same, and may be ended again.
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
