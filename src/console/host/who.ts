import { z } from 'zod';
import { askAll, cursoredPage, joinPages, localCursor } from '../../api/hosts/join-hosts.ts';
import { cursorOfHosts, limitOf, nextOfHosts, toTime } from '../../api/operations/fields.ts';
import { DAY_MS } from '../../base/clock.ts';
import { optional, text } from '../../base/schema.ts';
import { HOST } from '../../journal/actions.ts';
import { account, fromHost, type LocalCall } from './operation.ts';
import { perHostOperation } from './per-host.ts';

// Accounts with their mail, and the list of actions.

const MAX_LISTED = 200;
const limit = limitOf(MAX_LISTED, 50);

const accountParams = { limit, after: optional(z.int().min(0)) };

const day = z.object({ received: z.int(), delivered: z.int(), given_up: z.int(), refused: z.int(), sent: z.int() });
type Day = z.output<typeof day>;

const accountList = z.object({
  accounts: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      number: z.int(),
      created_at: z.string(),
      waiting: z.int(),
      day,
    }),
  ),
  next: z.int().nullable(),
});
type AccountList = z.output<typeof accountList>;

async function listAccounts(
  { limit, after = 0 }: z.output<z.ZodObject<typeof accountParams>>,
  call: LocalCall,
): Promise<AccountList> {
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
}

const accounts = perHostOperation({
  path: '/host/accounts',
  access: 'host',
  summary: 'Lists the accounts with their mail of the last 24 hours, by number.',
  params: accountParams,
  returns: accountList,
  handle: listAccounts,
  across: {
    part: accountList,
    own: listAccounts,
    async join(hosts) {
      // Accounts are rows of the store, so all hosts list the same ones.
      const [own, ...others] = await askAll(hosts);
      const { accounts = [], next = null } = own ?? {};
      const more = others.map((one) => new Map(one.accounts.map((account) => [account.id, account])));
      const sum = (account: AccountList['accounts'][number]) =>
        more
          .flatMap((of) => of.get(account.id) ?? [])
          .reduce(
            (all, { waiting, day }) => ({ ...all, waiting: all.waiting + waiting, day: addDay(all.day, day) }),
            account,
          );
      return { accounts: accounts.map(sum), next };
    },
  },
});

const addDay = (a: Day, b: Day): Day => ({
  received: a.received + b.received,
  delivered: a.delivered + b.delivered,
  given_up: a.given_up + b.given_up,
  refused: a.refused + b.refused,
  sent: a.sent + b.sent,
});

const actionParams = { account: optional(text(255)), limit, before: cursorOfHosts };

const action = z.object({
  host: fromHost,
  at: z.string(),
  by: z.string(),
  account: account.nullable(),
  what: z.string(),
  count: z.int(),
  detail: z.string(),
});

async function findActions({ account, limit, before }: z.output<z.ZodObject<typeof actionParams>>, call: LocalCall) {
  const { rows, next } = await call.history.actions(account, limit, localCursor(before, call));
  const nameOf = await call.names(rows.map((one) => one.account).filter((id) => id !== HOST));
  return {
    rows: rows.map(({ n, at, by, account, what, count, detail }) => ({
      n,
      at,
      record: {
        at: toTime(at),
        by,
        account: account === HOST ? null : nameOf(account),
        what,
        count,
        detail,
      },
    })),
    next,
  };
}

const actions = perHostOperation({
  path: '/host/actions',
  access: 'host',
  summary: 'Lists what was done on the hosts, for all accounts or one, newest first.',
  params: actionParams,
  returns: z.object({ actions: z.array(action), next: nextOfHosts }),
  async handle(given, call) {
    const { rows, next } = await findActions(given, call);
    return { actions: rows.map(({ record }) => record), next };
  },
  across: {
    part: cursoredPage(action),
    async own(given, call) {
      const { rows, next } = await findActions(given, call);
      const host = call.settings.hostname;
      return { rows: rows.map((row) => ({ ...row, record: { host, ...row.record } })), next };
    },
    async join(hosts, { before, limit }) {
      const { records, next } = await joinPages(hosts, { before, limit });
      return { actions: records, next };
    },
  },
});

/** Accounts, and the list of actions. */
export const whoOperations = [accounts, actions];
