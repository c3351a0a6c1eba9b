import { z } from 'zod';
import { limitOf, nextCursor, optionalCursor, toTime } from '../../api/operations/fields.ts';
import { optional, text } from '../../base/schema.ts';
import { HOST } from '../../journal/actions.ts';
import { account, hostOperation } from './operation.ts';

// Whose mail it is, and who did what.

const DAY_MS = 86_400_000;
const MAX_LISTED = 200;
const limit = limitOf(MAX_LISTED, 50);

const accounts = hostOperation({
  path: '/host/accounts',
  access: 'host',
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
  async handle({ limit, after = 0 }, call) {
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

const actions = hostOperation({
  path: '/host/actions',
  access: 'host',
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
  async handle({ account, limit, before }, { history, names }) {
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

/** Accounts, and the list of actions. */
export const whoOperations = [accounts, actions];
