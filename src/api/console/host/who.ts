import { z } from 'zod';
import { optional, text } from '../../../base/schema.ts';
import { ROLES } from '../../../store/rows/people.ts';
import { limitOf, nextCursor, optionalCursor, toTime } from '../../operations/fields.ts';
import { account } from './fields.ts';
import { hostOperation } from './operation.ts';
import { HOST } from './parts.ts';

// Whose mail it is, who may see it, and who did what.

const DAY_MS = 86_400_000;
const MAX_LISTED = 200;
const DEFAULT_LISTED = 50;
const limit = limitOf(MAX_LISTED, DEFAULT_LISTED);

const accounts = hostOperation({
  path: '/host/accounts',
  summary: 'Lists the accounts with their mail of the last 24 hours, by number.',
  params: { limit, after: optional(z.int().min(0)) },
  returns: z.object({
    accounts: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        number: z.int(),
        created_at: z.string(),
        waiting: z.int(),
        day: z.object({
          received: z.int(),
          delivered: z.int(),
          given_up: z.int(),
          refused: z.int(),
          sent: z.int(),
        }),
      }),
    ),
    next: z.int().nullable(),
  }),
  async handle({ limit = DEFAULT_LISTED, after = 0 }, call) {
    const { store, spool, history, inTurn } = call;
    const rows = await store.accounts.many({ number: { range: { gt: after } } }, { sort: 'number', limit: limit + 1 });
    const day = await inTurn('accounts', () => history.byAccount(call.now() - DAY_MS));
    const shown = rows.slice(0, limit);
    return {
      accounts: shown.map(({ id, name, number, createdAt }) => {
        const { received = 0, delivered = 0, givenUp = 0, refused = 0, sent = 0 } = day.get(id) ?? {};
        return {
          id,
          name,
          number,
          created_at: toTime(createdAt.getTime()),
          waiting: spool.backlog(id),
          day: { received, delivered, given_up: givenUp, refused, sent },
        };
      }),
      next: rows.length > limit ? (shown.at(-1)?.number ?? null) : null,
    };
  },
});

/** People and sessions that are shown; no house has more. */
const MOST = 1000;

const role = z.enum(ROLES);

const people = hostOperation({
  path: '/host/people',
  summary: 'Lists the people who may use the console.',
  params: {},
  returns: z.object({
    people: z.array(
      z.object({
        name: z.string(),
        role,
        account: account.nullable(),
        has_password: z.boolean(),
        created_at: z.string(),
        sessions: z.int(),
      }),
    ),
  }),
  async handle(_, { store, names, now }) {
    const rows = await store.people.many({}, { sort: 'name', limit: MOST });
    const sessions = await store.consoleSessions.many({ until: { range: { gt: new Date(now()) } } }, { limit: MOST });
    const nameOf = await names(rows.flatMap((one) => one.account ?? []));
    return {
      people: rows.map(({ id, name, role, account, password, createdAt }) => ({
        name,
        role,
        account: account === null ? null : nameOf(account),
        has_password: password !== null,
        created_at: toTime(createdAt.getTime()),
        sessions: sessions.filter(({ person }) => person === id).length,
      })),
    };
  },
});

/** The hash of a cookie stays in the store; its start tells sessions apart. */
const SHOWN_ID = 12;

const sessions = hostOperation({
  path: '/host/sessions',
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
  async handle(_, { store, names, now, session: own }) {
    const rows = await store.consoleSessions.many(
      { until: { range: { gt: new Date(now()) } } },
      { sort: '-until', limit: MOST },
    );
    const everybody = await store.people.many({}, { sort: 'name', limit: MOST });
    const known = new Map(everybody.map((person) => [person.id, person]));
    const nameOf = await names(everybody.flatMap((one) => one.account ?? []));
    return {
      sessions: rows.flatMap(({ id, person, by, address, createdAt, seenAt, until }) => {
        const who = person === null ? OPERATOR : known.get(person);
        // A person who was removed has no sessions; this one is about to go.
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
            own: id === own,
          },
        ];
      }),
    };
  },
});

/** Whoever came in by a link of the command line. */
const OPERATOR = { name: 'operator', role: 'operator', account: null } as const;

const actions = hostOperation({
  path: '/host/actions',
  summary: 'Lists what was done on this host, for all accounts or one, newest first.',
  params: { account: optional(text(255)), limit, before: optionalCursor },
  returns: z.object({
    actions: z.array(
      z.object({
        at: z.string(),
        by: z.string(),
        account: account.nullable(),
        what: z.string(),
        count: z.int(),
        detail: z.string(),
      }),
    ),
    next: nextCursor,
  }),
  async handle({ account, limit = DEFAULT_LISTED, before }, { history, names }) {
    const { rows, next } = await history.actions(account, limit, before);
    const nameOf = await names(rows.map((one) => one.account).filter((id) => id !== HOST));
    return {
      actions: rows.map(({ at, by, account, what, count, detail }) => ({
        at: toTime(at),
        by,
        account: account === HOST ? null : nameOf(account),
        what,
        count,
        detail,
      })),
      next,
    };
  },
});

/** Accounts and people. */
export const whoOperations = [accounts, people, sessions, actions];
