import { subaccount, subaccountDetail } from './records.ts';
import type { Stage } from './stage.ts';
import { type Group, integer, required, string } from './types.ts';

const id = required(string('id'));
const rest = [string('name', { maxlength: 1024 }), string('notes'), integer('custom_quota', { above: 0 })];

async function made(stage: Stage): Promise<{ id: string }> {
  const one = `cust-${stage.fresh()}`;
  await stage.ok('/subaccounts/add', { id: one, name: 'ABC Widgets', notes: 'Free plan', custom_quota: 42 });
  return { id: one };
}

const unknown = (stage: Stage) => ({ id: `none-${stage.fresh()}` });

export const subaccounts: Group = {
  name: 'subaccounts',
  entries: [
    {
      path: '/subaccounts/list',
      params: [string('q')],
      returns: { array: subaccount },
      errors: {},
      names: ['q'],
      given: async (stage) => ({ q: (await made(stage)).id }),
    },
    {
      path: '/subaccounts/add',
      params: [required(string('id', { maxlength: 255 })), ...rest],
      returns: subaccount,
      given: (stage) => ({ id: `cust-${stage.fresh()}` }),
      errors: {},
      names: ['id'],
    },
    {
      path: '/subaccounts/info',
      params: [id],
      returns: subaccountDetail,
      given: made,
      errors: { Unknown_Subaccount: unknown },
      names: ['id'],
    },
    {
      path: '/subaccounts/update',
      params: [id, ...rest],
      beyondParams: { remove_custom_quota: 'the interface has no way back to a quota by reputation' },
      returns: subaccount,
      given: made,
      errors: { Unknown_Subaccount: unknown },
      names: ['id'],
    },
    {
      path: '/subaccounts/delete',
      params: [id],
      returns: subaccount,
      given: made,
      errors: { Unknown_Subaccount: unknown },
      names: ['id'],
    },
    {
      path: '/subaccounts/pause',
      params: [id],
      returns: subaccount,
      given: made,
      errors: { Unknown_Subaccount: unknown },
      names: ['id'],
    },
    {
      path: '/subaccounts/resume',
      params: [id],
      returns: subaccount,
      given: made,
      errors: { Unknown_Subaccount: unknown },
      names: ['id'],
    },
  ],
};
