import { exportJobs } from './exports.ts';
import { inbound } from './inbound.ts';
import { ips } from './ips.ts';
import { rejects, whitelists } from './lists.ts';
import { senders } from './senders.ts';
import { subaccounts } from './subaccounts.ts';
import { tags } from './tags.ts';
import { templates } from './templates.ts';
import type { Entry, Group } from './types.ts';
import { webhooks } from './webhooks.ts';

/** The whole documented interface, in the order of its document. */
export const TABLE: readonly Group[] = [
  templates,
  exportJobs,
  whitelists,
  rejects,
  ips,
  senders,
  tags,
  subaccounts,
  webhooks,
  inbound,
];

/** Groups of operations that the documented interface does not have, each with the reason. */
export const BEYOND: Readonly<Record<string, string>> = {
  users: 'official clients ping with it before anything else',
  keys: 'the keys of an account, for the console and for scripts that replace them',
  messages: 'what official clients send with',
  urls: 'links with their clicks and tracking domains, in official clients',
  metadata: 'fields of the activity, in official clients',
  jobs: 'how far a replay of thousands is',
  actions: 'what was done for an account, and by whose key',
  endpoints: 'the URLs of routes and webhooks, which only a server that delivers itself knows',
  allowlists: 'the later name of the whitelists in official clients',
};

/** Operations of documented groups that the document does not have, and official clients do. */
export const LATER: ReadonlySet<string> = new Set(['/senders/delete-domain']);

/** How many operations the document has in each group, counted there. */
export const COUNTS: Readonly<Record<string, number>> = {
  templates: 8,
  exports: 5,
  whitelists: 3,
  rejects: 3,
  ips: 13,
  senders: 7,
  tags: 5,
  subaccounts: 7,
  webhooks: 5,
  inbound: 9,
};

export const ENTRIES: readonly Entry[] = TABLE.flatMap(({ entries }) => entries);
