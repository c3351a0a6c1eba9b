import { HOOK_EVENTS, webhook } from './records.ts';
import type { Stage } from './stage.ts';
import { type Group, integer, pages, required, string, strings } from './types.ts';

const id = required(integer('id'));
const url = required(string('url', { format: 'url' }));
const description = string('description');
const events = strings('events', { each: [{ oneOf: HOOK_EVENTS }] });

const hook = (stage: Stage) => ({ url: `https://app.example.com/hooks/${stage.fresh()}` });
const made = async (stage: Stage) => ({
  id: (await stage.ok('/webhooks/add', { ...hook(stage), description: 'all of it', events: [...HOOK_EVENTS] })).id,
});
const unknown = () => ({ id: 999_999_999 });

export const webhooks: Group = {
  name: 'webhooks',
  entries: [
    {
      path: '/webhooks/list',
      params: [],
      beyondParams: pages,
      returns: { array: webhook },
      given: async (stage) => {
        await made(stage);
        return {};
      },
      errors: {},
    },
    { path: '/webhooks/add', params: [url, description, events], returns: webhook, given: hook, errors: {} },
    {
      path: '/webhooks/info',
      params: [id],
      returns: webhook,
      given: made,
      errors: { Unknown_Webhook: unknown },
      names: ['id'],
    },
    {
      path: '/webhooks/update',
      params: [id, url, description, events],
      returns: webhook,
      given: async (stage) => ({ ...(await made(stage)), ...hook(stage) }),
      errors: { Unknown_Webhook: (stage) => ({ ...unknown(), ...hook(stage) }) },
      names: ['id'],
    },
    {
      path: '/webhooks/delete',
      params: [id],
      returns: webhook,
      given: made,
      errors: { Unknown_Webhook: unknown },
      names: ['id'],
    },
  ],
};
