import type { Clock } from '../../base/clock.ts';
import { type Ids, tokenHash } from '../../base/ids.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection } from './collection.ts';

// The users of the console, their sign-in links and sessions. All hosts of a store share them.

/** The permissions of a person: operators may do everything on every account, the others parts of it on one. */
export const ROLES = ['operator', 'owner', 'helper', 'reader'] as const;
export type Role = (typeof ROLES)[number];

export interface PersonRow extends Row {
  /** In lower case, as `personName` returns it. */
  readonly name: string;
  readonly role: Role;
  /** The only account that is shown; null for an operator, who sees all. */
  readonly account: string | null;
  /** A hash (console/passwords.ts); null: signs in by link only. */
  readonly password: string | null;
  /** The secret of the second factor (console/second-factor.ts), in base32; null or absent: there is none. */
  readonly factor?: string | null;
  /** The last time step whose code was used. */
  readonly factorStep?: number | null;
  /** Wrong codes since the last right one; a restart or another session does not reset it. */
  readonly wrongCodes?: number | null;
  /** A secret that was offered and is not confirmed yet. */
  readonly nextFactor?: string | null;
  /** Hashes of the unused recovery codes, separated by spaces. */
  readonly recoveryCodes?: string | null;
  readonly createdAt: Date;
}

export const people = collection<PersonRow>()({
  name: 'people',
  access: 'none',
  indexes: [],
  unique: [['name']],
  dates: ['createdAt'],
  upkeep: true, // with a full disk, people must get in to delete something
});

/** A one-time sign-in link. `id` is `tokenHash` of its token. */
interface SignInLinkRow extends Row {
  /** The person who may sign in with it; null: an operator without a name. */
  readonly person: string | null;
  readonly until: Date;
}

export const enterLinks = collection<SignInLinkRow>()({
  name: 'enter_links',
  access: 'none',
  indexes: [['person'], ['until']],
  dates: ['until'],
  upkeep: true,
});

/** A session of the console. `id` is `tokenHash` of the cookie. */
export interface ConsoleSessionRow extends Row {
  /** Null: an operator who signed in by a link of the command line. */
  readonly person: string | null;
  readonly by: 'link' | 'password';
  /** The client's address when it began. */
  readonly address: string;
  readonly createdAt: Date;
  /** The last call, to the minute. */
  readonly seenAt: Date;
  /** When the password was last confirmed after sign-in; null or absent: never. */
  readonly provedAt?: Date | null;
  readonly until: Date;
}

export const consoleSessions = collection<ConsoleSessionRow>()({
  name: 'console_sessions',
  access: 'none',
  indexes: [['person'], ['until']],
  dates: ['createdAt', 'seenAt', 'provedAt', 'until'],
  upkeep: true,
});

type Rows = Pick<Store, 'people' | 'enterLinks' | 'consoleSessions'>;

interface Parts {
  readonly clock: Clock;
  readonly ids: Ids;
}

/** The form of tokens of links and sessions. */
export const TOKEN = /^[\w-]{44}$/;

const newToken = (ids: Ids) => ids.key() + ids.key();

/** The normalized name, as stored and compared; undefined if it is invalid. */
export function personName(text: string): string | undefined {
  const name = text.normalize('NFKC').trim().toLowerCase();
  return /^[\p{L}\p{N}._@+-]{1,64}$/u.test(name) ? name : undefined;
}

/** The rule for names, for error messages. */
export const NAME_RULE = 'Please use at most 64 letters, digits and . _ @ + -';

/** Adds a person, who has no password yet. */
export async function addPerson(
  { people }: Pick<Store, 'people'>,
  person: Pick<PersonRow, 'name' | 'role' | 'account'>,
  { clock, ids }: Parts,
): Promise<PersonRow | 'taken'> {
  const row = { id: ids.key(), ...person, password: null, createdAt: new Date(clock.now()) };
  return (await people.insert(row)) === 'inserted' ? row : 'taken';
}

/** Removes a person with all links and sessions. */
export async function removePerson(store: Rows, id: string): Promise<void> {
  await store.people.remove({ id });
  await store.enterLinks.removeAll({ person: id });
  await store.consoleSessions.removeAll({ person: id });
}

/** The lifetime of a link. */
export const LINK_MS = 3_600_000;

/** Creates a one-time sign-in link that is valid for an hour, for a person or (null) an operator without a name. */
export async function createSignInLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  person: string | null,
  { clock, ids }: Parts,
): Promise<string> {
  await enterLinks.removeAll({ until: { range: { lt: new Date(clock.now()) } } });
  const token = newToken(ids);
  await enterLinks.insert({ id: tokenHash(token), person, until: new Date(clock.now() + LINK_MS) });
  return token;
}

/** Finds a link without using it up; undefined if it is used up or expired. */
export async function findSignInLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  token: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<{ readonly person: string | null } | undefined> {
  return ifValid(await enterLinks.one({ id: tokenHash(token) }), clock);
}

/** Uses a link up and returns its row; undefined if it is used up or expired. */
export async function consumeSignInLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  token: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<{ readonly person: string | null } | undefined> {
  return ifValid(await enterLinks.remove({ id: tokenHash(token) }), clock);
}

const ifValid = (row: SignInLinkRow | undefined, clock: Clock): Pick<SignInLinkRow, 'person'> | undefined =>
  row && row.until.getTime() > clock.now() ? { person: row.person } : undefined;

/**
 * Consecutive wrong codes after which the person is locked. A guess is right with a chance of three in a million, and
 * only possible after the password.
 */
const MAX_WRONG_CODES = 30;

/** Whether the person is locked by wrong codes, until unlocked on the host. */
export function isLocked({ wrongCodes }: { readonly wrongCodes?: number | null | undefined }): boolean {
  return (wrongCodes ?? 0) >= MAX_WRONG_CODES;
}

/** Counts a code as wrong before it is compared, so that concurrent tries are counted. Undefined: locked. */
export async function countCode({ people }: Pick<Store, 'people'>, id: string): Promise<PersonRow | undefined> {
  for (;;) {
    const row = await people.one({ id });
    if (!row || isLocked(row)) return undefined;
    const { wrongCodes = null } = row;
    const counted = await people.change({ id, wrongCodes }, { wrongCodes: (wrongCodes ?? 0) + 1 });
    if (counted) return counted;
  }
}

/** Resets the count after a right code, or when the person is unlocked on the host. */
export async function forgetWrongCodes({ people }: Pick<Store, 'people'>, id: string): Promise<void> {
  await people.change({ id }, { wrongCodes: 0 });
}

/** Removes the second factor of a person whose app is lost. */
export async function resetFactor({ people }: Pick<Store, 'people'>, id: string): Promise<void> {
  await people.change({ id }, { factor: null, factorStep: null, nextFactor: null, recoveryCodes: null, wrongCodes: 0 });
}

/** Begins a session that ends after `ms` milliseconds at the latest. Returns its token, for the cookie. */
export async function openConsoleSession(
  { consoleSessions }: Pick<Store, 'consoleSessions'>,
  session: Pick<ConsoleSessionRow, 'person' | 'by' | 'address'>,
  ms: number,
  { clock, ids }: Parts,
): Promise<{ readonly token: string; readonly row: ConsoleSessionRow }> {
  const now = new Date(clock.now());
  await consoleSessions.removeAll({ until: { range: { lt: now } } });
  const token = newToken(ids);
  const until = new Date(now.getTime() + ms);
  const row = { id: tokenHash(token), ...session, createdAt: now, seenAt: now, until };
  await consoleSessions.insert(row);
  return { token, row };
}
