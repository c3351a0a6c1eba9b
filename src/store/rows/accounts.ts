import { createHmac, hash } from 'node:crypto';
import { createExpiringCache } from '../../base/cache.ts';
import { type Clock, MINUTE_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import { networkOf } from '../../base/networks.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection, type OwnedRow } from './collection.ts';

/** An account. Everything else belongs to one. */
export interface AccountRow extends Row {
  readonly name: string;
  /** A small number that begins ids shown to people (route `7.23`). */
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

/** An API key. The store never has the key itself: `id` is its SHA-256, as computed by `keyHash`. */
export interface KeyRow extends OwnedRow {
  readonly label: string;
  /** The first four characters, so that people can tell keys apart. */
  readonly hint: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
  /** To the minute (store/key-uses.ts); null or absent: no known use. */
  readonly lastUsedAt?: Date | null;
}

export const keys = collection<KeyRow>()({
  name: 'keys',
  access: 'own',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt', 'revokedAt', 'lastUsedAt'],
  upkeep: true, // revoking a key writes a row
});

/** A key has 128 random bits, so one fast hash is enough to make the stored form useless to a thief. */
export function keyHash(key: string): string {
  return hash('sha256', key);
}

/** Hexadecimal digits of a SHA-256; the id of a revoked key's row continues after them. */
const HASH_LENGTH = 64;
/** 64 bits: an account has few keys. */
const NAME_LENGTH = 16;

/**
 * The id of a key for people. It is keyed with the secret of the service, so that guesses of the key cannot be tested
 * against it, as they could be against the hash.
 */
export function keyName({ id }: Pick<KeyRow, 'id'>, secret: string): string {
  const subject = `key\0${id.slice(0, HASH_LENGTH)}`;
  return createHmac('sha256', secret).update(subject).digest('hex').slice(0, NAME_LENGTH);
}

/** How long a valid key is cached: a revocation takes effect at most this much later. Milliseconds. */
const FRESH_MS = 1000;
const MAX_REMEMBERED = 10_000;
/** Our own keys have 22 characters, imported ones rarely more than 64. */
const LONGEST_KEY = 256;

export interface KeyCheckSettings {
  /** Wrong keys from one network in a minute; further ones only get the answer that there were too many. */
  readonly maxBadKeysPerMinute: number;
}

/** good: its account, and the id of its row · wrong: unknown or revoked · too-many: wrong, after too many others. */
type KeyAnswer =
  | { readonly kind: 'good'; readonly account: AccountRow; readonly id: string }
  | { readonly kind: 'wrong' | 'too-many' };

/** Finds the account of a key, for the API and for SMTP logins. */
export function createKeyCheck(
  settings: KeyCheckSettings,
  deps: {
    readonly store: Pick<Store, 'keys' | 'accounts'>;
    readonly keyUses: { note(id: string): void };
    readonly clock: Clock;
  },
) {
  const { store, keyUses, clock } = deps;
  const good = createExpiringCache<AccountRow>({ most: MAX_REMEMBERED }, clock);
  const failures = createFailures(settings.maxBadKeysPerMinute, clock);

  /** The account of a key by the id of its row; undefined if it was revoked. Throws `StoreAway`. */
  async function accountOf(id: string): Promise<AccountRow | undefined> {
    const account = await find(id);
    if (account) keyUses.note(id);
    return account;
  }

  async function find(id: string): Promise<AccountRow | undefined> {
    const known = good.get(id);
    if (known) return known;
    // Filtered in the store: a revoked row returned to this point would take longer than no row.
    const row = await store.keys.one({ id, revokedAt: null });
    if (!row) return undefined;
    const account = await store.accounts.one({ id: row.account });
    if (!account) return undefined;
    good.set(id, account, FRESH_MS);
    return account;
  }

  return frozen({
    accountOf,
    /**
     * Looks the key up first, so that only wrong keys are throttled: clients sharing an address (an office, a proxy, a
     * cloud's NAT) are not affected, and a key of 128 random bits cannot be guessed at any rate. Throws `StoreAway`.
     */
    async check(key: unknown, address: string): Promise<KeyAnswer> {
      const plausible = typeof key === 'string' && key !== '' && key.length <= LONGEST_KEY;
      const id = plausible ? keyHash(key) : '';
      const account = plausible ? await accountOf(id) : undefined;
      if (account) return { kind: 'good', account, id };
      return { kind: failures.note(networkOf(address)) ? 'wrong' : 'too-many' };
    },
  });
}

/** Counts failures per network in windows of a minute. `note` returns whether this one is within the limit. */
function createFailures(limit: number, clock: Clock) {
  const counts = createExpiringCache<{ count: number }>({ most: MAX_REMEMBERED }, clock);
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
  readonly clock: Pick<Clock, 'now'>;
  readonly ids: Ids;
}

/** Creates an account with the next number. */
export async function createAccount(store: Store, name: string, { clock, ids }: Parts): Promise<AccountRow> {
  for (;;) {
    const { count } = await store.revisions.add('accounts', { count: 1 }, { count: 0 });
    const row = { id: ids.key(), name, number: count, createdAt: new Date(clock.now()) };
    // The number is taken if a host died between making the first account and counting it.
    if ((await store.accounts.insert(row)) === 'inserted') return row;
  }
}

/** Creates an API key and returns it. The store keeps only its hash, so it cannot be shown again. */
export const createKey = async (...of: Parameters<typeof addKey>): Promise<string> => (await addKey(...of)).key;

/** As `createKey`, with the row. */
export async function addKey(
  store: Pick<Store, 'keys'>,
  account: string,
  label: string,
  { clock, ids }: Parts,
  key = ids.key(),
): Promise<{ readonly key: string; readonly row: KeyRow }> {
  const row = {
    id: keyHash(key),
    account,
    label,
    hint: key.slice(0, 4),
    createdAt: new Date(clock.now()),
    revokedAt: null,
    lastUsedAt: null,
  };
  if ((await store.keys.insert(row)) === 'duplicate') throw new Error('this key already exists');
  return { key, row };
}

/** Revoked keys of an account that are kept for `postern key list`. */
const MAX_REVOKED = 100;

/**
 * Revokes a key. Its row moves to an id that is not a hash, so that looking it up finds nothing and takes as long as
 * for an unknown key. If interrupted before the move, the key is revoked nevertheless, and revoking can be repeated.
 */
export async function revokeKey(
  store: Pick<Store, 'keys'>,
  rowId: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<void> {
  const id = rowId.slice(0, HASH_LENGTH);
  const row =
    (await store.keys.change({ id, revokedAt: null }, { revokedAt: new Date(clock.now()) })) ??
    (await store.keys.one({ id }));
  if (!row) return;
  await store.keys.insert({ ...row, id: `${id}${MOVED}` });
  await store.keys.remove({ id });
  await forgetOldest(store, row.account);
}

/** Limits the rows of an account that creates and revokes keys again and again. */
async function forgetOldest(store: Pick<Store, 'keys'>, account: string): Promise<void> {
  const revoked = (await store.keys.many({ account }, { sort: 'createdAt' })).filter(isMoved);
  for (const { id } of revoked.slice(0, -MAX_REVOKED)) await store.keys.remove({ id });
}

const MOVED = ' revoked';
const isMoved = ({ id }: KeyRow) => id.endsWith(MOVED);

/** The label of the key that is made with an account. */
export const FIRST_KEY = 'first key';

/**
 * Creates the first account with its first key if there is none; otherwise undefined. If several hosts start on an
 * empty database at the same time, the account number decides which is first. A start that was interrupted between
 * account and key is completed.
 */
export async function bootstrap(
  store: Store,
  givenKey: string,
  parts: Parts,
): Promise<{ account: string; key: string } | undefined> {
  const account = (await store.accounts.one({ number: 1 })) ?? (await firstAccount(store, parts));
  if (!account || (await store.keys.one({ account: account.id }))) return undefined;
  const key = await createKey(store, account.id, FIRST_KEY, parts, givenKey === '' ? undefined : givenKey);
  return { account: account.id, key };
}

async function firstAccount(store: Store, parts: Parts): Promise<AccountRow | undefined> {
  const row = { id: parts.ids.key(), name: 'main', number: 1, createdAt: new Date(parts.clock.now()) };
  if ((await store.accounts.insert(row)) === 'duplicate') return undefined;
  await store.revisions.add('accounts', { count: 1 }, { count: 0 });
  return row;
}
