import { z } from 'zod';
import { toTime } from '../../api/operations/fields.ts';
import { optional, text } from '../../base/schema.ts';
import { HOST, noteAction } from '../../journal/actions.ts';
import {
  addPerson,
  type ConsoleSessionRow,
  createSignInLink,
  isLocked,
  LINK_MS,
  NAME_RULE,
  type PersonRow,
  personName,
  ROLES,
  removePerson,
  resetFactor,
} from '../../store/rows/people.ts';
import { isOver } from '../sessions.ts';
import { account, type HostCall, hostOperation } from './operation.ts';
import type { HostParts } from './parts.ts';

// People of the console, and their sessions.

/** People and sessions that are listed. */
const MOST = 1000;

const role = z.enum(ROLES);

/** Open sessions, the latest first. */
async function openSessions({ store, settings, now }: HostParts): Promise<readonly ConsoleSessionRow[]> {
  const rows = await store.consoleSessions.many(
    { until: { range: { gt: new Date(now()) } } },
    { sort: '-until', limit: MOST },
  );
  return rows.filter((one) => !isOver(one, settings.idleMs, now()));
}

const people = hostOperation({
  path: '/host/people',
  access: 'host',
  summary: 'Lists the people who may use the console.',
  params: {},
  returns: z.object({
    people: z.array(
      z.object({
        name: z.string(),
        role,
        account: account.nullable(),
        has_password: z.boolean(),
        has_factor: z.boolean(),
        locked: z.boolean(),
        created_at: z.string(),
        sessions: z.int(),
      }),
    ),
  }),
  async handle(_, call) {
    const rows = await call.store.people.many({}, { sort: 'name', limit: MOST });
    const sessions = await openSessions(call);
    const nameOf = await call.names(rows.flatMap((one) => one.account ?? []));
    return {
      people: rows.map(({ id, name, role, account, password, factor, wrongCodes, createdAt }) => ({
        name,
        role,
        account: account === null ? null : nameOf(account),
        has_password: password !== null,
        has_factor: Boolean(factor),
        locked: isLocked({ wrongCodes }),
        created_at: toTime(createdAt.getTime()),
        sessions: sessions.filter(({ person }) => person === id).length,
      })),
    };
  },
});

/** A sign-in link, which is shown only once. */
const link = z.object({ name: z.string(), url: z.string(), until: z.string() });

const add = hostOperation({
  path: '/host/add-person',
  access: 'people',
  summary: 'Adds a person, and answers a link for them: it opens the console once, within an hour.',
  params: { name: text(255), role, account: optional(text(255)) },
  returns: link,
  async handle({ name: given, role, account: wanted }, call) {
    const name = personName(given);
    if (name === undefined) throw call.invalid('name', NAME_RULE);
    const account = await accountFor(role, wanted, call);
    const person = await addPerson(call.store, { name, role, account }, call);
    if (person === 'taken') throw call.invalid('name', `${name} already exists; create a new link instead`);
    noteAction(call, 'person added', 1, `${name} (${role})`, account ?? HOST);
    return linkFor(person, call);
  },
});

/** The account of the role; null for an operator. */
async function accountFor(role: PersonRow['role'], wanted: string | undefined, call: HostCall): Promise<string | null> {
  if (role === 'operator') {
    if (wanted !== undefined) throw call.invalid('account', 'An operator sees all accounts; leave it out');
    return null;
  }
  if (wanted === undefined) throw call.invalid('account', 'Please choose the account');
  const found = await call.store.accounts.one({ id: wanted });
  if (!found) throw call.invalid('account', `There is no account ${wanted}`);
  return found.id;
}

async function linkFor({ id, name }: PersonRow, call: HostCall): Promise<z.input<typeof link>> {
  const url = call.host.signInUrl(await createSignInLink(call.store, id, call));
  return { name, url, until: toTime(call.now() + LINK_MS) };
}

const invite = hostOperation({
  path: '/host/invite-person',
  access: 'people',
  summary: 'Answers a new link for a person, who can choose another password with it.',
  params: { name: text(255) },
  returns: link,
  async handle({ name }, call) {
    const person = await thePerson(name, call);
    noteAction(call, 'person invited', 1, person.name, person.account ?? HOST);
    return linkFor(person, call);
  },
});

const remove = hostOperation({
  path: '/host/remove-person',
  access: 'people',
  summary: 'Removes a person, and ends their sessions and links at once.',
  params: { name: text(255) },
  returns: z.object({ name: z.string() }),
  async handle({ name: given }, call) {
    const { id, name, role, account } = await thePerson(given, call);
    const own = await call.store.consoleSessions.one({ id: call.session });
    if (own?.person === id) throw call.invalid('name', 'You cannot remove yourself; another operator can');
    await removePerson(call.store, id);
    noteAction(call, 'person removed', 1, `${name} (${role})`, account ?? HOST);
    return { name };
  },
});

const reset = hostOperation({
  path: '/host/reset-factor',
  access: 'people',
  summary: "Removes a person's second factor, for example after a lost phone.",
  params: { name: text(255) },
  returns: z.object({ name: z.string() }),
  async handle({ name: given }, call) {
    const { id, name, account } = await thePerson(given, call);
    await resetFactor(call.store, id);
    noteAction(call, 'two-factor authentication reset', 1, name, account ?? HOST);
    return { name };
  },
});

async function thePerson(given: string, { store, invalid }: HostCall): Promise<PersonRow> {
  const person = await store.people.one({ name: personName(given) ?? '' });
  if (!person) throw invalid('name', `There is no person named ${given}`);
  return person;
}

/** Characters of the id that are shown: it is the hash of a cookie, and its start is enough to tell sessions apart. */
const SHOWN_ID = 12;

/** A visitor who signed in by a command-line link. */
const OPERATOR = { name: 'operator', role: 'operator', account: null } as const;

const sessions = hostOperation({
  path: '/host/sessions',
  access: 'host',
  summary: 'Lists who is at the console, since when and from where, the latest first.',
  params: {},
  returns: z.object({
    sessions: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        role,
        account: account.nullable(),
        by: z.enum(['link', 'password']),
        address: z.string(),
        since: z.string(),
        seen_at: z.string(),
        until: z.string(),
        own: z.boolean(),
      }),
    ),
  }),
  async handle(_, call) {
    const rows = await openSessions(call);
    const everybody = await call.store.people.many({}, { sort: 'name', limit: MOST });
    const known = new Map(everybody.map((person) => [person.id, person]));
    const nameOf = await call.names(everybody.flatMap((one) => one.account ?? []));
    return {
      sessions: rows.flatMap(({ id, person, by, address, createdAt, seenAt, until }) => {
        const who = person === null ? OPERATOR : known.get(person);
        // Its person was just removed, and the session is about to be.
        if (!who) return [];
        return [
          {
            id: id.slice(0, SHOWN_ID),
            name: who.name,
            role: who.role,
            account: who.account === null ? null : nameOf(who.account),
            by,
            address,
            since: toTime(createdAt.getTime()),
            seen_at: toTime(seenAt.getTime()),
            until: toTime(until.getTime()),
            own: id === call.session,
          },
        ];
      }),
    };
  },
});

const shownId = z.string().regex(new RegExp(`^[0-9a-f]{${SHOWN_ID}}$`), 'Please enter an id from the list of sessions');

const end = hostOperation({
  path: '/host/end-session',
  access: 'people',
  summary: 'Ends a session of the console. Its next click leads to the page to sign in.',
  params: { id: shownId },
  returns: z.object({ id: z.string(), name: z.string() }),
  async handle({ id }, call) {
    const { consoleSessions, people } = call.store;
    const session = await consoleSessions.one({ id: { startsWith: id } });
    if (!session) throw call.invalid('id', 'This session has ended already');
    if (session.id === call.session) throw call.invalid('id', 'This is your own session; sign out instead');
    const person = session.person === null ? OPERATOR : await people.one({ id: session.person });
    await consoleSessions.remove({ id: session.id });
    const name = person?.name ?? '(removed)';
    noteAction(call, 'session ended', 1, `${name}, from ${session.address}`, person?.account ?? HOST);
    return { id, name };
  },
});

/** People and their sessions. */
export const peopleOperations = [people, add, invite, remove, reset, sessions, end];
