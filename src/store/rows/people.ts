import type { Clock } from '../../base/clock.ts';
import { type Ids, tokenHash } from '../../base/ids.ts';
import type { Row } from '../driver/port.ts';
import type { Store } from '../store.ts';
import { collection } from './collection.ts';

// Who may use the console: people, the links that let them in, and their sessions. All hosts of a store share them.

/** What a person may do: an operator everything on every account, the others so much on one account. */
export const ROLES = ['operator', 'owner', 'helper', 'reader'] as const;
export type Role = (typeof ROLES)[number];

export interface PersonRow extends Row {
  /** In lower case, as `personName` returns it. */
  readonly name: string;
  readonly role: Role;
  /** The only account that is shown; null for an operator, who sees all. */
  readonly account: string | null;
  /** A hash (console/passwords.ts); null: comes in by link only. */
  readonly password: string | null;
  /** The secret of the second factor (console/second-factor.ts), in base32; null or absent: there is none. */
  readonly factor?: string | null;
  /** The last step of it whose code was used. */
  readonly factorStep?: number | null;
  /** Wrong codes since the last right one; a restart or another session does not reset it. */
  readonly wrongCodes?: number | null;
  /** A secret that was offered and not turned on yet. */
  readonly nextFactor?: string | null;
  /** Hashes of the recovery codes that are left, with a space between them. */
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

/** A link that opens the console once. `id` is `tokenHash` of its token. */
interface EnterLinkRow extends Row {
  /** The person who may sign in with it; null: its holder, as an operator. */
  readonly person: string | null;
  readonly until: Date;
}

export const enterLinks = collection<EnterLinkRow>()({
  name: 'enter_links',
  access: 'none',
  indexes: [['person'], ['until']],
  dates: ['until'],
  upkeep: true,
});

/** A session of the console. `id` is `tokenHash` of the cookie. */
export interface ConsoleSessionRow extends Row {
  /** Null: an operator who came in by a link of the command line. */
  readonly person: string | null;
  readonly by: 'link' | 'password';
  /** The client's address when it began. */
  readonly address: string;
  readonly createdAt: Date;
  /** The last call, to the minute. */
  readonly seenAt: Date;
  /** When the password was entered last, after it began; null or absent: not again. */
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

/** Tokens of links and sessions have this form. */
export const TOKEN = /^[\w-]{44}$/;

const newToken = (ids: Ids) => ids.key() + ids.key();

/** The name in the form that is stored and compared; undefined if it cannot be a name. */
export function personName(text: string): string | undefined {
  const name = text.normalize('NFKC').trim().toLowerCase();
  return /^[\p{L}\p{N}._@+-]{1,64}$/u.test(name) ? name : undefined;
}

/** What a name may consist of, for people. */
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

/** How long a link can be used. */
export const LINK_MS = 3_600_000;

/** Creates a link that opens the console once within an hour, for a person or (null) for an operator without a name. */
export async function createEnterLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  person: string | null,
  { clock, ids }: Parts,
): Promise<string> {
  await enterLinks.removeAll({ until: { range: { lt: new Date(clock.now()) } } });
  const token = newToken(ids);
  await enterLinks.insert({ id: tokenHash(token), person, until: new Date(clock.now() + LINK_MS) });
  return token;
}

/** Whom a link would let in; undefined if it does not exist any more, or is too old. */
export async function findEnterLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  token: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<{ readonly person: string | null } | undefined> {
  return ifValid(await enterLinks.one({ id: tokenHash(token) }), clock);
}

/** Uses a link up. Answers whom it lets in; undefined if it does not exist any more, or is too old. */
export async function spendEnterLink(
  { enterLinks }: Pick<Store, 'enterLinks'>,
  token: string,
  { clock }: Pick<Parts, 'clock'>,
): Promise<{ readonly person: string | null } | undefined> {
  return ifValid(await enterLinks.remove({ id: tokenHash(token) }), clock);
}

const ifValid = (row: EnterLinkRow | undefined, clock: Clock): Pick<EnterLinkRow, 'person'> | undefined =>
  row && row.until.getTime() > clock.now() ? { person: row.person } : undefined;

/**
 * Wrong codes in a row after which none is tried any more. Each try is right with three of a million codes, and
 * somebody who gets to try has the password already.
 */
const MOST_WRONG_CODES = 30;

/** Whether the person is locked by wrong codes, until they are unlocked on the host. */
export function isLocked({ wrongCodes }: { readonly wrongCodes?: number | null | undefined }): boolean {
  return (wrongCodes ?? 0) >= MOST_WRONG_CODES;
}

/** Counts a code as wrong before it is compared, so that no try outruns the count. Undefined: no more are tried. */
export async function countCode({ people }: Pick<Store, 'people'>, id: string): Promise<PersonRow | undefined> {
  for (;;) {
    const row = await people.one({ id });
    if (!row || isLocked(row)) return undefined;
    const { wrongCodes = null } = row;
    const counted = await people.change({ id, wrongCodes }, { wrongCodes: (wrongCodes ?? 0) + 1 });
    if (counted) return counted;
  }
}

/** A code was right, or the person was unlocked on the host. */
export async function forgetWrongCodes({ people }: Pick<Store, 'people'>, id: string): Promise<void> {
  await people.change({ id }, { wrongCodes: 0 });
}

/** Takes the second factor from a person whose app is lost. */
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
