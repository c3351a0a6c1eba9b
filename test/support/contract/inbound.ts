import { inboundDomain, inboundRoute } from './records.ts';
import type { Stage } from './stage.ts';
import { type Group, required, string, strings } from './types.ts';

const known = required(string('domain'));
const routeId = required(string('id'));
const exists = { format: 'url' } as const;

async function added(stage: Stage): Promise<{ domain: string }> {
  const domain = `${stage.fresh()}.example.com`;
  await stage.ok('/inbound/add-domain', { domain });
  return { domain };
}

const route = (stage: Stage) => ({ pattern: 'mailbox-*', url: `https://app.example.com/hooks/${stage.fresh()}` });
const routed = async (stage: Stage) => ({
  id: (await stage.ok('/inbound/add-route', { ...(await added(stage)), ...route(stage) })).id,
});
const unknownDomain = (stage: Stage) => ({ domain: `${stage.fresh()}.example.com` });
const unknownRoute = () => ({ id: '1.999999' });

export const inbound: Group = {
  name: 'inbound',
  entries: [
    {
      path: '/inbound/domains',
      params: [],
      returns: { array: inboundDomain },
      given: async (stage) => {
        await added(stage);
        return {};
      },
      errors: {},
    },
    {
      path: '/inbound/add-domain',
      params: [known],
      returns: inboundDomain,
      given: unknownDomain,
      errors: {},
      names: ['domain'],
      shared: 'mail to a domain goes to one account, so a second claim is refused in words',
    },
    {
      path: '/inbound/check-domain',
      params: [known],
      returns: inboundDomain,
      given: added,
      errors: { Unknown_InboundDomain: unknownDomain },
      names: ['domain'],
    },
    {
      path: '/inbound/delete-domain',
      params: [known],
      returns: inboundDomain,
      given: added,
      errors: { Unknown_InboundDomain: unknownDomain },
      names: ['domain'],
    },
    {
      path: '/inbound/routes',
      params: [known],
      returns: { array: inboundRoute },
      errors: { Unknown_InboundDomain: unknownDomain },
      names: ['domain'],
      async given(stage) {
        const where = await added(stage);
        await stage.ok('/inbound/add-route', { ...where, ...route(stage) });
        return where;
      },
    },
    {
      path: '/inbound/add-route',
      params: [known, required(string('pattern')), required(string('url', exists))],
      returns: inboundRoute,
      beyondParams: {
        batch_events: 'how many messages may share a POST',
        format: 'the form of its posts',
        raw: 'whether the raw message is in them',
        attachments: 'how attachments reach the receiver',
        link_over: 'the size of those that are never links',
        facts: 'whether they say what a person sees',
        password: 'a password for them',
        order: 'which of its mail goes out one after another',
        action: 'what it does with mail',
        when: 'which mail it takes',
        tags: 'what it says of mail',
        priority: 'its position among the routes',
        also: 'further URLs',
      },
      names: ['domain'],
      given: async (stage) => ({ ...(await added(stage)), ...route(stage) }),
      errors: { Unknown_InboundDomain: (stage) => ({ ...unknownDomain(stage), ...route(stage) }) },
    },
    {
      path: '/inbound/update-route',
      params: [routeId, string('pattern'), string('url', exists)],
      returns: inboundRoute,
      beyondParams: {
        batch_events: 'how many messages may share a POST',
        format: 'the form of its posts',
        raw: 'whether the raw message is in them',
        attachments: 'how attachments reach the receiver',
        link_over: 'the size of those that are never links',
        facts: 'whether they say what a person sees',
        password: 'a password for them',
        order: 'which of its mail goes out one after another',
        action: 'what it does with mail',
        when: 'which mail it takes',
        tags: 'what it says of mail',
        priority: 'its position among the routes',
        also: 'further URLs',
      },
      given: routed,
      errors: { Unknown_InboundRoute: unknownRoute },
      names: ['id'],
    },
    {
      path: '/inbound/delete-route',
      params: [routeId],
      returns: inboundRoute,
      given: routed,
      errors: { Unknown_InboundRoute: unknownRoute },
      names: ['id'],
    },
    {
      path: '/inbound/send-raw',
      params: [
        required(string('raw_message')),
        strings('to'),
        string('mail_from'),
        string('helo'),
        string('client_address'),
      ],
      errors: {},
      returns: { array: { struct: { email: 'string', pattern: 'string', url: 'string' } } },
      names: ['to'],
      async given(stage) {
        const { domain } = await added(stage);
        await stage.ok('/inbound/add-route', { domain, ...route(stage) });
        return {
          raw_message: `From: ann@example.com\r\nTo: mailbox-1@${domain}\r\nSubject: Hi\r\n\r\nText`,
          to: [`mailbox-1@${domain}`],
        };
      },
    },
  ],
};
