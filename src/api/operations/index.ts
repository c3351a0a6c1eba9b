import type { Operation } from '../operation.ts';
import { actions, jobs } from './actions.ts';
import { bulkOperations } from './bulk.ts';
import { conversations } from './conversation.ts';
import { deliveries } from './deliveries.ts';
import { domainTools } from './domain-servers.ts';
import { endpoints } from './endpoints.ts';
import { exportOperations } from './exports.ts';
import { inboundHistory } from './history.ts';
import { inboundContent } from './inbound-content.ts';
import { inboundDomainOperations } from './inbound-domains.ts';
import { inboundPull } from './inbound-pull.ts';
import { inboundRouteOperations } from './inbound-routes.ts';
import { inboundSendRaw } from './inbound-send-raw.ts';
import { customDns, ipOperations } from './ips.ts';
import { apiKeys } from './keys.ts';
import { messagesContent } from './messages/content.ts';
import { messagesInfo } from './messages/info.ts';
import { messagesRaw } from './messages/raw.ts';
import { messagesResend } from './messages/resend.ts';
import { messagesScheduled } from './messages/scheduled.ts';
import { messagesSearch } from './messages/search.ts';
import { messagesSend } from './messages/send.ts';
import { messagesWaiting } from './messages/waiting.ts';
import { metadata } from './metadata.ts';
import { poolOperations } from './pools.ts';
import { rejectOperations } from './rejects.ts';
import { replyAddresses } from './reply-addresses.ts';
import { routeTools } from './route-tools.ts';
import { senderDomainOperations, senders } from './senders.ts';
import { subaccountOperations } from './subaccounts.ts';
import { tagOperations } from './tags.ts';
import { templateOperations } from './templates.ts';
import { urlOperations } from './urls.ts';
import { users } from './users.ts';
import { webhookOperations, webhookTools } from './webhooks.ts';
import { whitelistOperations } from './whitelists.ts';

const ALL = [
  ...users,
  ...apiKeys,
  ...messagesSend,
  ...messagesRaw,
  ...messagesSearch,
  ...messagesInfo,
  ...messagesContent,
  ...messagesScheduled,
  ...messagesWaiting,
  ...messagesResend,
  ...exportOperations,
  ...templateOperations,
  ...senders,
  ...senderDomainOperations,
  ...tagOperations,
  ...urlOperations,
  ...metadata,
  ...whitelistOperations,
  ...rejectOperations,
  ...subaccountOperations,
  ...ipOperations,
  ...poolOperations,
  ...customDns,
  ...inboundDomainOperations,
  ...inboundRouteOperations,
  ...inboundSendRaw,
  ...routeTools,
  ...replyAddresses,
  ...domainTools,
  ...webhookOperations,
  ...webhookTools,
  ...deliveries,
  ...endpoints,
  ...inboundContent,
  ...inboundPull,
  ...bulkOperations,
  ...inboundHistory,
  ...conversations,
  ...jobs,
  ...actions,
];

/** Every operation, in the order the reference shows them. */
export const OPERATIONS: readonly Operation[] = ALL;

/** An operation, with its types. */
export type DeclaredOperation = (typeof ALL)[number];
