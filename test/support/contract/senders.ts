import { hour, sender, senderDetail, senderDomain } from './records.ts';
import type { Stage } from './stage.ts';
import { type Group, pages, required, string } from './types.ts';

const domain = required(string('domain', { format: 'domain' }));
const address = required(string('address', { format: 'email' }));

async function sending(stage: Stage): Promise<{ address: string }> {
  const who = `${stage.fresh()}@example.com`;
  await stage.sent({ sender: who }, ['send', 'open', 'open']);
  return { address: who };
}

const unknown = (stage: Stage) => ({ address: `${stage.fresh()}@example.com` });
const aDomain = (stage: Stage) => ({ domain: `${stage.fresh()}.example.com` });

export const senders: Group = {
  name: 'senders',
  entries: [
    {
      path: '/senders/list',
      params: [],
      beyondParams: pages,
      returns: { array: sender },
      given: async (stage) => {
        await sending(stage);
        return {};
      },
      errors: {},
    },
    {
      path: '/senders/domains',
      params: [],
      beyondParams: pages,
      returns: { array: senderDomain },
      given: async (stage) => {
        await stage.ok('/senders/add-domain', aDomain(stage));
        return {};
      },
      errors: {},
    },
    {
      path: '/senders/add-domain',
      params: [domain],
      returns: senderDomain,
      given: aDomain,
      errors: {},
      names: ['domain'],
    },
    {
      path: '/senders/check-domain',
      params: [domain],
      returns: senderDomain,
      given: aDomain,
      errors: {},
      names: ['domain'],
    },
    {
      path: '/senders/verify-domain',
      params: [domain, required(string('mailbox'))],
      given: (stage) => ({ ...aDomain(stage), mailbox: 'postmaster' }),
      errors: {},
      names: ['domain'],
      returns: { struct: { status: { oneOf: ['sent', 'already_verified'] }, domain: 'string', email: 'string' } },
    },
    {
      path: '/senders/info',
      params: [address],
      returns: senderDetail,
      given: sending,
      errors: { Unknown_Sender: unknown },
      names: ['address'],
    },
    {
      path: '/senders/time-series',
      params: [address],
      returns: { array: hour },
      given: sending,
      errors: { Unknown_Sender: unknown },
      names: ['address'],
    },
  ],
};
