import { rejectEntry, whitelistEntry } from './records.ts';
import type { Stage } from './stage.ts';
import { boolean, type Group, required, string } from './types.ts';

const email = required(string('email', { format: 'email' }));
// rejects/add and rejects/delete name no format; an address has one all the same.
const address = required(string('email', { format: 'email' }));
const subaccount = string('subaccount', { maxlength: 255 });

const someone = (stage: Stage) => ({ email: `${stage.fresh()}@example.com` });
const noSubaccount = (stage: Stage) => ({ ...someone(stage), subaccount: `none ${stage.fresh()}` });

async function whitelisted(stage: Stage): Promise<{ email: string }> {
  const who = someone(stage);
  await stage.ok('/whitelists/add', { ...who, comment: 'a friend' });
  return who;
}

async function rejected(stage: Stage): Promise<{ email: string }> {
  const who = someone(stage);
  await stage.ok('/rejects/add', { ...who, comment: 'asked to' });
  return who;
}

export const whitelists: Group = {
  name: 'whitelists',
  entries: [
    {
      path: '/whitelists/add',
      params: [email, string('comment', { maxlength: 255 })],
      returns: { struct: { email: 'string', added: 'boolean' } },
      given: someone,
      errors: {},
      names: ['email'],
    },
    {
      path: '/whitelists/list',
      params: [string('email')],
      returns: { array: whitelistEntry },
      errors: {},
      names: ['email'],
      given: async (stage) => ({ email: (await whitelisted(stage)).email.slice(0, -4) }),
      limit: {
        most: 1000,
        async fill(stage, count) {
          const { email: first } = await whitelisted(stage);
          const row = await stage.store.whitelists.one({ account: stage.account, email: first });
          if (!row) throw new Error('no row');
          await each(count, (i) =>
            stage.store.whitelists.insert({
              ...row,
              id: row.id.replace(first, `x${i}@example.com`),
              email: `x${i}@example.com`,
            }),
          );
        },
      },
    },
    {
      path: '/whitelists/delete',
      params: [email],
      returns: { struct: { email: 'string', deleted: 'boolean' } },
      given: whitelisted,
      errors: {},
      names: ['email'],
    },
  ],
};

export const rejects: Group = {
  name: 'rejects',
  entries: [
    {
      path: '/rejects/add',
      params: [address, string('comment'), subaccount],
      returns: { struct: { email: 'string', added: 'boolean' } },
      given: someone,
      errors: { Unknown_Subaccount: noSubaccount },
      names: ['email'],
    },
    {
      path: '/rejects/list',
      params: [string('email'), boolean('include_expired'), subaccount],
      returns: { array: rejectEntry },
      names: ['email'],
      // One that somebody added, and one that a bounce brought about, with the sender whose mail it was.
      async given(stage) {
        const { email: first } = await rejected(stage);
        await stage.sent({ email: `${first}.example` }, ['send', 'hard_bounce']);
        return { email: first };
      },
      errors: {
        Unknown_Subaccount: (stage) => ({ subaccount: `none ${stage.fresh()}` }),
        ServiceUnavailable: () => ({}),
      },
      limit: {
        most: 1000,
        async fill(stage, count) {
          const { email: first } = await rejected(stage);
          const row = await stage.store.rejects.one({ account: stage.account, email: first });
          if (!row) throw new Error('no row');
          await each(count, (i) =>
            stage.store.rejects.insert({
              ...row,
              id: row.id.replace(first, `x${i}@example.com`),
              email: `x${i}@example.com`,
            }),
          );
        },
      },
    },
    {
      path: '/rejects/delete',
      params: [address, subaccount],
      returns: { struct: { email: 'string', deleted: 'boolean', subaccount: 'string or null' } },
      given: rejected,
      errors: { Invalid_Reject: someone, Unknown_Subaccount: noSubaccount },
      names: ['email'],
    },
  ],
};

/** `work` for 0 to `count` - 1, a hundred at a time. */
export async function each(count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < count; from += 100) {
    await Promise.all(Array.from({ length: Math.min(100, count - from) }, (_, i) => work(from + i)));
  }
}
