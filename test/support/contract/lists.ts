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
