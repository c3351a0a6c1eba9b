import { frozen } from '../base/frozen.ts';
import type { Collection, Database, Filter, Patch, Row } from './driver/port.ts';
import { type AccountRow, accounts, type KeyRow, keys } from './rows/accounts.ts';
import { type CounterRow, counters, type UrlHourRow, type UrlRow, urlHours, urls } from './rows/counters.ts';
import {
  type DomainKeyRow,
  domainKeys,
  type InboundDomainRow,
  type InboundRouteRow,
  inboundDomains,
  inboundRoutes,
  type SenderDomainRow,
  senderDomains,
  type TrackingDomainRow,
  trackingDomains,
  type VerificationRow,
  verifications,
} from './rows/domains.ts';
import { type ExportRow, exportJobs } from './rows/exports.ts';
import { type LeaseRow, leases, type RevisionRow, revisions, type SecretRow, secrets } from './rows/hosts.ts';
import {
  type IpRequestRow,
  type IpRow,
  ipRequests,
  ips,
  type PlacementRow,
  type PoolRow,
  placements,
  pools,
} from './rows/ips.ts';
import { type RejectRow, rejects, type WhitelistRow, whitelists } from './rows/lists.ts';
import {
  type MessageEventRow,
  type MessageTagRow,
  type MetadataFieldRow,
  messageEvents,
  messages,
  messageTags,
  metadataFields,
  type ScheduledRow,
  type SentMessageRow,
  scheduled,
  type TagRemovalRow,
  tagRemovals,
} from './rows/messages.ts';
import { type NoticeRow, notices, type QuotaRow, quotas } from './rows/notices.ts';
import { type SubaccountRow, subaccounts } from './rows/subaccounts.ts';
import { type TemplateLabelRow, type TemplateRow, templateLabels, templates } from './rows/templates.ts';
import {
  type SigningKeyRow,
  signingKeys,
  type WebhookRow,
  type WebhookTallyRow,
  webhooks,
  webhookTallies,
} from './rows/webhooks.ts';

/** Everything of all accounts: for the daemon's own parts and the command line, never for an API handler. */
export interface Store {
  readonly accounts: Collection<AccountRow>;
  readonly keys: Collection<KeyRow>;
  readonly inboundDomains: Collection<InboundDomainRow>;
  readonly inboundRoutes: Collection<InboundRouteRow>;
  readonly signingKeys: Collection<SigningKeyRow>;
  readonly revisions: Collection<RevisionRow>;
  readonly counters: Collection<CounterRow>;
  readonly leases: Collection<LeaseRow>;
  readonly exportJobs: Collection<ExportRow>;
  readonly ipRequests: Collection<IpRequestRow>;
  readonly ips: Collection<IpRow>;
  readonly messageEvents: Collection<MessageEventRow>;
  readonly messages: Collection<SentMessageRow>;
  readonly messageTags: Collection<MessageTagRow>;
  readonly notices: Collection<NoticeRow>;
  readonly placements: Collection<PlacementRow>;
  readonly pools: Collection<PoolRow>;
  readonly rejects: Collection<RejectRow>;
  readonly scheduled: Collection<ScheduledRow>;
  readonly secrets: Collection<SecretRow>;
  readonly senderDomains: Collection<SenderDomainRow>;
  readonly domainKeys: Collection<DomainKeyRow>;
  readonly verifications: Collection<VerificationRow>;
  readonly quotas: Collection<QuotaRow>;
  readonly subaccounts: Collection<SubaccountRow>;
  readonly tagRemovals: Collection<TagRemovalRow>;
  readonly templates: Collection<TemplateRow>;
  readonly templateLabels: Collection<TemplateLabelRow>;
  readonly webhooks: Collection<WebhookRow>;
  readonly webhookTallies: Collection<WebhookTallyRow>;
  readonly whitelists: Collection<WhitelistRow>;
  readonly metadataFields: Collection<MetadataFieldRow>;
  readonly trackingDomains: Collection<TrackingDomainRow>;
  readonly urls: Collection<UrlRow>;
  readonly urlHours: Collection<UrlHourRow>;
  /** The same store as one account sees it. */
  of(account: string): AccountStore;
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** What one account can reach: every filter and every new row carries its id, whatever the caller says. */
export interface AccountStore {
  readonly account: string;
  readonly keys: BoundCollection<KeyRow>;
  readonly inboundDomains: BoundCollection<InboundDomainRow>;
  readonly inboundRoutes: BoundCollection<InboundRouteRow>;
  readonly counters: Pick<BoundCollection<CounterRow>, 'one' | 'many'>;
  readonly exportJobs: BoundCollection<ExportRow>;
  readonly ipRequests: BoundCollection<IpRequestRow>;
  /** Addresses come from the operator's inventory and go back to it; both are beyond an account. */
  readonly ips: Pick<BoundCollection<IpRow>, 'one' | 'many' | 'change'>;
  readonly messageEvents: BoundCollection<MessageEventRow>;
  readonly messages: BoundCollection<SentMessageRow>;
  readonly messageTags: BoundCollection<MessageTagRow>;
  readonly notices: BoundCollection<NoticeRow>;
  readonly placements: BoundCollection<PlacementRow>;
  readonly pools: BoundCollection<PoolRow>;
  readonly rejects: BoundCollection<RejectRow>;
  readonly scheduled: BoundCollection<ScheduledRow>;
  readonly senderDomains: BoundCollection<SenderDomainRow>;
  readonly subaccounts: BoundCollection<SubaccountRow>;
  readonly templates: BoundCollection<TemplateRow>;
  readonly templateLabels: BoundCollection<TemplateLabelRow>;
  readonly webhooks: BoundCollection<WebhookRow>;
  readonly webhookTallies: BoundCollection<WebhookTallyRow>;
  readonly whitelists: BoundCollection<WhitelistRow>;
  readonly metadataFields: BoundCollection<MetadataFieldRow>;
  readonly trackingDomains: BoundCollection<TrackingDomainRow>;
  readonly urls: Pick<BoundCollection<UrlRow>, 'one' | 'many'>;
  readonly urlHours: Pick<BoundCollection<UrlHourRow>, 'one' | 'many'>;
}

/** A row that belongs to an account. */
export interface Owned extends Row {
  readonly account: string;
}

export interface BoundCollection<R extends Owned> {
  one(filter: Unowned<Filter<R>>): ReturnType<Collection<R>['one']>;
  many(filter: Unowned<Filter<R>>, page?: Parameters<Collection<R>['many']>[1]): ReturnType<Collection<R>['many']>;
  insert(row: Omit<R, 'account'>): ReturnType<Collection<R>['insert']>;
  change(filter: Unowned<Filter<R>>, patch: Unowned<Patch<R>>): ReturnType<Collection<R>['change']>;
  remove(filter: Unowned<Filter<R>>): ReturnType<Collection<R>['remove']>;
}

type Unowned<T> = Omit<T, 'account'>;

/** Opens every collection on a database. */
export async function openStore(database: Database): Promise<Store> {
  const store = {
    accounts: await database.collection(accounts),
    keys: await database.collection(keys),
    inboundDomains: await database.collection(inboundDomains),
    inboundRoutes: await database.collection(inboundRoutes),
    signingKeys: await database.collection(signingKeys),
    revisions: await database.collection(revisions),
    counters: await database.collection(counters),
    leases: await database.collection(leases),
    exportJobs: await database.collection(exportJobs),
    ipRequests: await database.collection(ipRequests),
    ips: await database.collection(ips),
    messageEvents: await database.collection(messageEvents),
    messages: await database.collection(messages),
    messageTags: await database.collection(messageTags),
    notices: await database.collection(notices),
    placements: await database.collection(placements),
    pools: await database.collection(pools),
    rejects: await database.collection(rejects),
    scheduled: await database.collection(scheduled),
    secrets: await database.collection(secrets),
    senderDomains: await database.collection(senderDomains),
    domainKeys: await database.collection(domainKeys),
    verifications: await database.collection(verifications),
    quotas: await database.collection(quotas),
    subaccounts: await database.collection(subaccounts),
    tagRemovals: await database.collection(tagRemovals),
    templates: await database.collection(templates),
    templateLabels: await database.collection(templateLabels),
    webhooks: await database.collection(webhooks),
    webhookTallies: await database.collection(webhookTallies),
    whitelists: await database.collection(whitelists),
    metadataFields: await database.collection(metadataFields),
    trackingDomains: await database.collection(trackingDomains),
    urls: await database.collection(urls),
    urlHours: await database.collection(urlHours),
  };
  return frozen({
    ...store,
    of: (account) =>
      frozen({
        account,
        keys: bind(store.keys, account),
        inboundDomains: bind(store.inboundDomains, account),
        inboundRoutes: bind(store.inboundRoutes, account),
        counters: bind(store.counters, account),
        exportJobs: bind(store.exportJobs, account),
        ipRequests: bind(store.ipRequests, account),
        ips: bind(store.ips, account),
        messageEvents: bind(store.messageEvents, account),
        messages: bind(store.messages, account),
        messageTags: bind(store.messageTags, account),
        notices: bind(store.notices, account),
        placements: bind(store.placements, account),
        pools: bind(store.pools, account),
        rejects: bind(store.rejects, account),
        scheduled: bind(store.scheduled, account),
        senderDomains: bind(store.senderDomains, account),
        subaccounts: bind(store.subaccounts, account),
        templates: bind(store.templates, account),
        templateLabels: bind(store.templateLabels, account),
        webhooks: bind(store.webhooks, account),
        webhookTallies: bind(store.webhookTallies, account),
        whitelists: bind(store.whitelists, account),
        metadataFields: bind(store.metadataFields, account),
        trackingDomains: bind(store.trackingDomains, account),
        urls: bind(store.urls, account),
        urlHours: bind(store.urlHours, account),
      }),
    ping: () => database.ping(),
    close: () => database.close(),
  });
}

function bind<R extends Owned>(collection: Collection<R>, account: string): BoundCollection<R> {
  // TypeScript cannot see that `{ ...Omit<T, 'account'>, account }` is T for a generic T; this is the one place that says so.
  const mine = <T>(value: Unowned<T>) => ({ ...value, account }) as T;
  return frozen({
    one: (filter) => collection.one(mine<Filter<R>>(filter)),
    many: (filter, page) => collection.many(mine<Filter<R>>(filter), page),
    insert: (row) => collection.insert(mine<R>(row)),
    change: (filter, patch) => collection.change(mine<Filter<R>>(filter), mine<Patch<R>>(patch)),
    remove: (filter) => collection.remove(mine<Filter<R>>(filter)),
  });
}
