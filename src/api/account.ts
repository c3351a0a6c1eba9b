import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { createTurns } from '../base/turns.ts';
import { type AddressCheck, checkA, checkMx } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import type { Lists } from '../events/lists.ts';
import type { Numbers } from '../events/numbers.ts';
import { countReset, forgetSubaccount } from '../events/numbers.ts';
import type { Adding, Ownership } from '../inbound/ownership.ts';
import type { Acceptance, Lookup, Match, Routing, SigningKeys } from '../inbound/types.ts';
import type { ClickTracking } from '../mail/outgoing.ts';
import type { ReservedNames } from '../mail/reserved-names.ts';
import type { Spool } from '../queue/delivery.ts';
import type { TrackingDomains } from '../sending/domains/custom-domains.ts';
import type { DnsRecords, SenderDomains } from '../sending/domains/sender-domains.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import type { InboundDomainRow, SenderDomainRow, TrackingDomainRow } from '../store/rows/domains.ts';
import type { AccountStore, Store } from '../store/store.ts';
import type { AccountLimits } from './account-limits.ts';
import {
  type AccountMessages,
  type AccountQueue,
  type AccountWebhooks,
  bindMessages,
  bindQueue,
  bindWebhooks,
  type MessageDeps,
  type WebhookDeps,
} from './account-queue.ts';
import { createStartExport, type ExportLimits, type StartExport } from './export-files.ts';

/** Which payload is wanted: that of a sample message to `address`, hitting this route. */
export interface SampleArgs {
  readonly account: string;
  readonly address: string;
  readonly match: Match;
}

/** The parts of the daemon that operations work with. */
export interface OperationDeps {
  readonly store: Store;
  readonly limits: AccountLimits;
  readonly spool: Spool;
  readonly routing: Routing;
  readonly ownership: Ownership;
  readonly names: ReservedNames;
  readonly acceptance: Acceptance;
  readonly signingKeys: SigningKeys;
  readonly resolver: Resolver;
  /** webhookexists: why nothing answers at the URL, in words for the caller; undefined when something does. */
  readonly urlFault: (url: string) => Promise<string | undefined>;
  /** The payload of a sample message, as JSON would hold it: an array with one event. */
  readonly sample: (args: SampleArgs) => Promise<unknown>;
  readonly lists: Lists;
  readonly outbox: WebhookDeps['outbox'];
  readonly senderDomains: SenderDomains;
  readonly trackingDomains: TrackingDomains;
  readonly numbers: Numbers;
  readonly submitting: MessageDeps['submitting'];
  readonly scheduling: MessageDeps['scheduling'];
  readonly releasing: MessageDeps['releasing'];
  /** Has a task of this host run now, because there is something to do for it. */
  readonly poke: (task: string) => void;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface OperationSettings {
  readonly hostname: string;
  /** What an MX may name beside our hostname. */
  readonly mxHosts: readonly string[];
  readonly maxMessageBytes: number;
  readonly exports: ExportLimits;
  /** What is tracked of a message that does not say. */
  readonly tracking: { readonly opens: boolean; readonly clicks: ClickTracking };
  /** Dedicated addresses: whether they can be asked for, and from which reputation on. */
  readonly ips: { readonly provisioning: 'free' | 'off'; readonly minReputation: number };
}

/** `Lists` of one account. */
export interface AccountLists {
  reject(entry: Omit<Parameters<Lists['reject']>[0], 'account'>): ReturnType<Lists['reject']>;
  unreject(email: string, subaccount: string): ReturnType<Lists['unreject']>;
  whitelist(email: string, detail: string | null): ReturnType<Lists['whitelist']>;
  unwhitelist(email: string): ReturnType<Lists['unwhitelist']>;
}

/** `Ownership` of one account. */
export interface AccountInboundDomains {
  add(name: string, domain: string): Promise<Adding>;
  find(name: string): Promise<InboundDomainRow | undefined>;
  settle(row: InboundDomainRow): Promise<InboundDomainRow | undefined>;
  remove(name: string): Promise<InboundDomainRow | undefined>;
}

/** `SenderDomains` of one account. */
export interface AccountSenderDomains {
  add(domain: string): Promise<SenderDomainRow>;
  check(domain: string): Promise<SenderDomainRow>;
  records(domain: string): Promise<DnsRecords>;
  verify(domain: string, mailbox: string): ReturnType<SenderDomains['verify']>;
}

/** `TrackingDomains` of one account. */
export interface AccountTrackingDomains {
  add(domain: string): Promise<TrackingDomainRow>;
  test(row: TrackingDomainRow): Promise<TrackingDomainRow>;
  owned(rows: readonly TrackingDomainRow[]): Promise<ReadonlySet<string>>;
}

/** Everything an operation can reach, bound to one account: no handler can name another. */
export interface AccountParts extends AccountQueue {
  readonly account: AccountRow;
  readonly store: AccountStore;
  readonly settings: OperationSettings;
  now(): Date;
  /** A token of 128 random bits that nobody can guess. */
  newToken(): string;
  /** A route id that was never given out: `<account number>.<sequence>`. */
  newRouteId(): Promise<string>;
  /** Tells this host at once, and the others by the revision, that a domain or its routes changed. */
  routingChanged(domain: string): Promise<void>;
  /** Inbound domains of the account, claims included. */
  readonly inbound: AccountInboundDomains;
  /** Domains that no account can have. */
  readonly names: ReservedNames;
  /** As `Routing.lookup`; what belongs to another account is not ours. */
  lookup(mailbox: string, domain: string): Lookup;
  /** Why nothing answers at a webhook URL, in words for the caller; undefined when something does. */
  urlFault(url: string): Promise<string | undefined>;
  sample(address: string, match: Match): Promise<unknown>;
  /** Whether an MX of the domain names us; `unknown` when DNS did not say. */
  mxIsOurs(domain: string): Promise<boolean | 'unknown'>;
  /** Whether an address record of the domain points to the address. */
  pointsTo(domain: string, ip: string): Promise<AddressCheck>;
  /** Runs what the account does under that name one after the other in this process, for rows that several calls would rewrite at once. */
  inTurn<T>(name: string, run: () => Promise<T>): Promise<T>;
  /** undefined: the store is away and the key was never seen. */
  signingKey(url: string): Promise<string | undefined>;
  newSigningKey(url: string): Promise<string>;
  /** A URL that changes keeps its key, unless the new one has a key already. */
  carryKey(from: string, to: string): Promise<void>;
  /** Rejects and whitelist of the account. */
  readonly lists: AccountLists;
  /** Sender domains of the account, by their A-labels. */
  readonly senderDomains: AccountSenderDomains;
  /** Tracking domains of the account, by their A-labels. */
  readonly trackingDomains: AccountTrackingDomains;
  readonly startExport: StartExport;
  readonly webhooks: AccountWebhooks;
  /** `id` of the key that the call was made with. */
  readonly apiKey: string | null;
  /** Mail that the account sends. */
  readonly messages: AccountMessages;
  /** Counts that an entry which events had made was taken off the rejection list; '' for that of the whole account. */
  countReset(subaccount: string): Promise<void>;
  /** Removes the numbers and the rejection list of a subaccount. */
  forgetSubaccount(slug: string): Promise<void>;
  /** Deletes the numbers of something that is deleted. */
  forgetNumbers(kind: 'template' | 'subaccount', key: string): Promise<void>;
  /** Deletes the numbers of a tag and takes it off messages that were sent. */
  removeTag(tag: string): Promise<void>;
}

/** Binds the parts to an account. */
export function createAccountParts(
  settings: OperationSettings,
  deps: OperationDeps,
): (account: AccountRow, apiKey?: string) => AccountParts {
  const { store, limits, routing, clock } = deps;
  const inTurn = createTurns();
  return (account, apiKey) => ({
    ...bindQueue(deps, account.id),
    account,
    store: limits.limited(store.of(account.id)),
    settings,
    now: () => new Date(clock.now()),
    newToken: () => deps.ids.key(),
    newRouteId: async () =>
      `${account.number}.${(await store.revisions.add(`routes:${account.id}`, { count: 1 }, { count: 0 })).count}`,
    routingChanged: (domain) => routing.changed(domain),
    inbound: bindOwnership(deps, account.id),
    names: deps.names,
    lookup(mailbox, domain) {
      const found = routing.lookup(mailbox, domain);
      return found.kind === 'matched' && found.match.account !== account.id ? { kind: 'not-ours' } : found;
    },
    urlFault: deps.urlFault,
    sample: (address, match) => deps.sample({ account: account.id, address, match }),
    async mxIsOurs(domain) {
      const found = await checkMx(deps.resolver, domain, [settings.hostname, ...settings.mxHosts]);
      return found === 'unknown' ? found : found.valid;
    },
    inTurn: (name, run) => inTurn(`${account.id} ${name}`, run),
    pointsTo: (domain, ip) => checkA(deps.resolver, domain, ip),
    signingKey: async (url) => (await deps.signingKeys.keysFor(account.id, url))?.[0],
    newSigningKey: (url) => deps.signingKeys.rotate(account.id, url),
    carryKey: (from, to) => deps.signingKeys.carryOver(account.id, from, to),
    lists: bindLists(deps, account.id),
    senderDomains: bindSenderDomains(deps, account.id),
    trackingDomains: bindTrackingDomains(deps, account.id),
    startExport: createStartExport(settings.exports, {
      store: limits.limited(store.of(account.id)),
      now: () => new Date(clock.now()),
      poke: deps.poke,
    }),
    webhooks: bindWebhooks(deps, account),
    apiKey: apiKey ?? null,
    messages: bindMessages(deps, account.id),
    countReset: (subaccount) => countReset(deps, account.id, subaccount),
    forgetSubaccount: (slug) => forgetSubaccount(deps, account.id, slug),
    forgetNumbers: (kind, key) => deps.numbers.forget(account.id, kind, key),
    removeTag: (tag) => deps.numbers.removeTag(account.id, tag),
  });
}

function bindOwnership(
  { ownership, limits }: Pick<OperationDeps, 'ownership' | 'limits'>,
  account: string,
): AccountInboundDomains {
  return {
    async add(name, domain) {
      if (!(await ownership.find(account, name))) await limits.check(account, 'inbound_domains');
      return ownership.add(account, name, domain);
    },
    find: (name) => ownership.find(account, name),
    settle: (row) => ownership.settle(row),
    remove: (name) => ownership.remove(account, name),
  };
}

function bindSenderDomains(
  { senderDomains, limits, store }: Pick<OperationDeps, 'senderDomains' | 'limits' | 'store'>,
  account: string,
): AccountSenderDomains {
  /** Each of these makes the row of a domain that was not there. */
  const room = async (domain: string) => {
    if (!(await store.of(account).senderDomains.one({ domain }))) await limits.check(account, 'sender_domains');
  };
  return {
    async add(domain) {
      await room(domain);
      return senderDomains.add(account, domain);
    },
    async check(domain) {
      await room(domain);
      return senderDomains.check(account, domain);
    },
    records: (domain) => senderDomains.records(account, domain),
    async verify(domain, mailbox) {
      await room(domain);
      return senderDomains.verify(account, domain, mailbox);
    },
  };
}

function bindTrackingDomains(
  { trackingDomains, limits }: Pick<OperationDeps, 'trackingDomains' | 'limits'>,
  account: string,
): AccountTrackingDomains {
  return {
    async add(domain) {
      await limits.check(account, 'tracking_domains');
      return trackingDomains.add(account, domain);
    },
    test: (row) => trackingDomains.test(row),
    owned: (rows) => trackingDomains.owned(account, rows),
  };
}

function bindLists({ lists, limits }: Pick<OperationDeps, 'lists' | 'limits'>, account: string): AccountLists {
  return {
    async reject(entry) {
      await limits.check(account, 'rejects');
      return lists.reject({ ...entry, account });
    },
    unreject: (email, subaccount) => lists.unreject(account, email, subaccount),
    async whitelist(email, detail) {
      await limits.check(account, 'whitelists');
      return lists.whitelist(account, email, detail);
    },
    unwhitelist: (email) => lists.unwhitelist(account, email),
  };
}
