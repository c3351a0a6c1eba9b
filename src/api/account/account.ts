import { createKeyedMutex } from '../../base/concurrency.ts';
import type { Tools } from '../../base/tools.ts';
import type { NameServers } from '../../dns/name-servers.ts';
import type { Resolver } from '../../dns/types.ts';
import type { CounterRemoval } from '../../events/counter-removal.ts';
import { countEntryRemoval, forgetSubaccount } from '../../events/counter-removal.ts';
import type { Lists } from '../../events/lists.ts';
import type { FormatName, PostStyle } from '../../inbound/formats.ts';
import type { Ownership } from '../../inbound/ownership.ts';
import { mayBeOutdated } from '../../inbound/routing.ts';
import type { Acceptance, Lookup, Match, Routing } from '../../inbound/types.ts';
import type { History } from '../../journal/history.ts';
import type { Notes } from '../../journal/types.ts';
import type { ReservedNames } from '../../mail/addresses/reserved-names.ts';
import { wildcardsAbove } from '../../mail/addresses/wildcard-domain.ts';
import type { ClickTracking } from '../../mail/outgoing.ts';
import type { AttemptRecord, Spool } from '../../queue/delivery.ts';
import type { Dispatcher } from '../../queue/dispatcher.ts';
import type { EndpointPauses } from '../../queue/endpoint-pauses.ts';
import type { Scanning } from '../../scan/scanning.ts';
import type { SenderDomains } from '../../sending/domains/sender-domains.ts';
import type { TrackingDomains } from '../../sending/domains/tracking-domains.ts';
import type { Scheduling } from '../../sending/scheduling.ts';
import type { Releasing } from '../../sending/sending-quota.ts';
import type { Submitting } from '../../sending/submit.ts';
import type { KeyUses } from '../../store/key-uses.ts';
import { type AccountRow, addKey, type KeyRow, keyName, revokeKey } from '../../store/rows/accounts.ts';
import type { InboundDomainRow, InboundRouteRow, TrackingDomainRow } from '../../store/rows/domains.ts';
import type { TokenSecret } from '../../store/rows/hosts.ts';
import type { Store } from '../../store/store.ts';
import type { MessageViews } from '../../webhooks/message-views.ts';
import type { Pulling } from '../../webhooks/pulling.ts';
import type { Sample, SampleMail } from '../../webhooks/render/renderer.ts';
import type { SigningKeys } from '../../webhooks/signing.ts';
import type { Tapping } from '../../webhooks/tapping.ts';
import type { Trials } from '../../webhooks/trials.ts';
import { invalid, orRefuse, refusal } from '../errors.ts';
import { bindBulk } from './account-bulk.ts';
import { bindActions, bindHistory, createQueryShares } from './account-history.ts';
import type { AccountLimits } from './account-limits.ts';
import { bindPulling, createWaits } from './account-pulling.ts';
import { bindEndpoints, bindMessages, bindQueue, bindWebhooks, type QueuedMail } from './account-queue.ts';
import type { Jobs } from './jobs.ts';

export interface OperationSettings {
  readonly hostname: string;
  /** Host names that an MX record may have besides `hostname`. */
  readonly mxHosts: readonly string[];
  /** The format of new routes that name none. */
  readonly defaultFormat: FormatName;
  readonly maxMessageBytes: number;
  /** Export jobs that an account may start in 24 hours; each takes disk space for its archive. */
  readonly exports: { readonly perDay: number };
  /** Tracking of messages that do not set it themselves. */
  readonly tracking: { readonly opens: boolean; readonly clicks: ClickTracking };
  /** Dedicated addresses: whether they can be requested, and the minimum reputation. */
  readonly ips: { readonly provisioning: 'free' | 'off'; readonly minReputation: number };
}

/** The explanations of refusals for people. */
export interface RefusalTexts {
  readonly reasons: readonly string[];
  adviceOf(reason: string): string;
}

/** The parts of the daemon that operations work with. */
export interface OperationDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly store: Store;
  readonly keyUses: KeyUses;
  readonly tokenSecret: TokenSecret;
  readonly limits: AccountLimits;
  readonly spool: Spool;
  readonly dispatcher: Pick<Dispatcher, 'lanes' | 'preparing' | 'retry' | 'probe'>;
  readonly pauses: Pick<EndpointPauses, 'count' | 'pause' | 'resume'>;
  /** Undefined without scanners. */
  readonly scanning: Pick<Scanning, 'waitsFor'> | undefined;
  readonly pulling: Pick<Pulling, 'pull' | 'end'>;
  readonly tapping: Pick<Tapping, 'tap'>;
  readonly submitting: Submitting;
  readonly scheduling: Pick<Scheduling, 'cancel' | 'move'>;
  readonly releasing: Releasing;
  /** Caches the webhooks of accounts. */
  readonly outbox: { forget(account: string): void };
  readonly routing: Routing;
  readonly ownership: Ownership;
  readonly names: ReservedNames;
  readonly acceptance: Acceptance;
  readonly signingKeys: SigningKeys;
  readonly resolver: Resolver;
  readonly nameServers: NameServers;
  readonly history: History;
  readonly notes: Notes;
  readonly jobs: Jobs;
  readonly refusals: RefusalTexts;
  readonly urlFault: (url: string, format?: FormatName) => Promise<string | undefined>;
  /** Builds the post for a sample message to `address` that matches this route. */
  readonly sample: (args: {
    readonly account: string;
    readonly address: string;
    readonly match: Match;
    readonly style: PostStyle;
  }) => Promise<Sample>;
  /** Makes a sample message to an address. */
  readonly sampleMail: SampleMail;
  readonly views: MessageViews;
  readonly trials: Trials;
  readonly lists: Lists;
  readonly senderDomains: SenderDomains;
  readonly trackingDomains: TrackingDomains;
  readonly counterRemoval: CounterRemoval;
  readonly poke: (task: string) => void;
}

/** Some of the parts. */
export type Deps<P extends keyof OperationDeps> = Pick<OperationDeps, P>;

/** Everything an operation can reach, bound to one account; handlers cannot name another. */
export type AccountParts = Omit<ReturnType<PartsOf>, 'refuse' | 'orRefuse'>;
/**
 * The parts of an account, for an actor: an API key (the `id` of its row), a person at the console, or the command
 * line. `gone` is aborted when the client hangs up.
 */
export type PartsOf = ReturnType<typeof createAccountParts>;

/** Binds the parts to an account. Each part is created when an operation first reads it. */
export function createAccountParts(settings: OperationSettings, deps: OperationDeps) {
  const { store, limits, clock, ids } = deps;
  const turns = createKeyedMutex('run');
  const waits = createWaits();
  const queryShares = createQueryShares();
  const never = new AbortController().signal;
  const now = () => new Date(clock.now());
  const newToken = () => ids.key();
  const invalidField = (field: string, text: string) => invalid({ [field]: text });

  // A class, because creating an object with getters costs as much as creating the parts.
  class Bound {
    readonly account: AccountRow;
    /** `id` of the API key of the call; null without one (console, command line). */
    readonly apiKey: string | null;
    /** The person at the console; null without one. */
    readonly person: string | null;
    /** Aborted when the client hangs up. */
    readonly gone: AbortSignal;

    // Shared by all accounts:
    readonly settings = settings;
    readonly resolver = deps.resolver;
    readonly nameServers = deps.nameServers;
    /** Shows messages of its queue. */
    readonly views = deps.views;
    readonly refusals = deps.refusals;
    /** Domains that no account can have. */
    readonly names = deps.names;
    readonly now = now;
    /** Returns a token of 128 random bits. */
    readonly newToken = newToken;
    /** Checks that a webhook URL answers. Returns the error text for the caller, or undefined if it does. */
    readonly urlFault = deps.urlFault;
    /** Wakes a task of this host that has work. */
    readonly poke = deps.poke;
    /** Creates an error. Throw it. */
    readonly refuse = refusal;
    readonly orRefuse = orRefuse;
    /** Creates a ValidationError for one field. Throw it. */
    readonly invalid = invalidField;

    constructor(account: AccountRow, apiKey: string | undefined, person: string | undefined, gone: AbortSignal) {
      this.account = account;
      this.apiKey = apiKey ?? null;
      this.person = person ?? null;
      this.gone = gone;
    }

    /** Its rows, with its limits enforced. */
    get store() {
      return limits.limited(store.of(this.account.id));
    }
    /** Its API keys. */
    get keys() {
      return bindKeys(deps, this.account.id);
    }
    /** Its inbound domains, claims included, and their routes. */
    get inbound() {
      return bindInbound(deps, this.account);
    }
    /** Its inbound mail on this host's queue. */
    get queue() {
      return bindQueue(deps, this.account.id);
    }
    /** Its inbound mail that it fetches. */
    get pulling() {
      return bindPulling(deps, waits, this.account.id, this.gone);
    }
    /** Its inbound mail and refusals in the history of this host. */
    get history() {
      return bindHistory(deps, queryShares, this.account.id);
    }
    /** Its log of actions. */
    get actions() {
      return bindActions(deps, store.of(this.account.id), this);
    }
    /** Bulk changes of its inbound mail. */
    get bulk() {
      return bindBulk(deps, this.history, this.account.id);
    }
    /** Finds a job of this process by its id. */
    get job() {
      return (id: string) => deps.jobs.find(this.account.id, id);
    }
    /** The state of the URLs of its routes and webhooks on this host. */
    get endpoints() {
      return bindEndpoints(deps, this.account.id);
    }
    /** The keys that sign POSTs to its URLs. */
    get signingKeys() {
      return bindSigningKeys(deps, this.account.id);
    }
    /** Trial posts of its inbound mail, and of samples. */
    get trials() {
      return bindTrials(deps, this.account.id);
    }
    /** Its rejection list and its allow list. */
    get lists() {
      return bindLists(deps, this.account.id);
    }
    /** Changes to its statistics. */
    get counters() {
      return bindCounters(deps, this.account.id);
    }
    /** Its sender domains, by their A-labels. */
    get senderDomains() {
      return bindSenderDomains(deps, this.account.id);
    }
    /** Its tracking domains, by their A-labels. */
    get trackingDomains() {
      return bindTrackingDomains(deps, this.account.id);
    }
    /** The queues and caches of its webhooks. */
    get webhooks() {
      return bindWebhooks(deps, this.account);
    }
    /** Mail that it sends. */
    get messages() {
      return bindMessages(deps, this.account.id);
    }
    /**
     * Serializes work of the account under one name in this process, for rows that concurrent calls would overwrite.
     */
    get inTurn() {
      return <T>(name: string, run: () => Promise<T>): Promise<T> => turns(`${this.account.id} ${name}`, run);
    }
  }

  return (account: AccountRow, apiKey?: string, person?: string, gone: AbortSignal = never) =>
    new Bound(account, apiKey, person, gone);
}

function bindKeys(deps: Deps<'store' | 'keyUses' | 'tokenSecret' | 'limits' | 'clock' | 'ids'>, account: string) {
  const { store, keyUses, tokenSecret, limits } = deps;
  return {
    /** The keys that are not revoked, oldest first. */
    valid: () => store.keys.many({ account, revokedAt: null }, { sort: 'createdAt' }),
    /** The id of a key for people. */
    async nameOf(row: KeyRow) {
      return keyName(row, await tokenSecret.read());
    },
    lastUse: (row: KeyRow) => keyUses.lastUse(row),
    async add(label: string) {
      await limits.check(account);
      return addKey(store, account, label, deps);
    },
    /** The row must be one of `valid`. */
    revoke: ({ id }: KeyRow) => revokeKey(store, id, deps),
  };
}

function bindInbound(
  { ownership, routing, limits, store, sample }: Deps<'ownership' | 'routing' | 'limits' | 'store' | 'sample'>,
  { id: account, number }: AccountRow,
) {
  return {
    find: (name: string) => ownership.find(account, name),
    async add(name: string, domain: string) {
      if (!(await ownership.find(account, name))) await limits.check(account, 'inbound_domains');
      return ownership.add(account, name, domain);
    },
    /** The account's row of the domain that covers a name: its own, or that of the nearest wildcard. */
    async covering(name: string): Promise<InboundDomainRow | undefined> {
      for (const one of [name, ...wildcardsAbove(name)]) {
        const row = await ownership.find(account, one);
        if (row) return row;
      }
      return undefined;
    },
    settle: (row: InboundDomainRow) => ownership.settle(row),
    remove: (name: string) => ownership.remove(account, name),
    /** Returns a new route id, `<account number>.<sequence>`; ids are never reused. */
    async newRouteId() {
      return `${number}.${(await store.revisions.add(`routes:${account}`, { count: 1 }, { count: 0 })).count}`;
    },
    /** Changes a domain or its routes: in force on this host when it resolves, and announced to the others. */
    change: <T>(domain: string, make: () => Promise<T>) => routing.change(domain, make),
    /** Applies the changes that other hosts have made, for `lookup`, `choices` and `routesTo`. */
    refresh: () => routing.refresh(),
    /** As `Routing.lookup`, but a match of another account is `not-ours`, and a miss is confirmed from the store. */
    async lookup(mailbox: string, domain: string, sender?: string): Promise<Lookup> {
      let found = routing.lookup(mailbox, domain, sender);
      if (mayBeOutdated(found, mailbox)) {
        await routing.refresh();
        found = routing.lookup(mailbox, domain, sender);
      }
      return found.kind === 'matched' && found.match.account !== account ? { kind: 'not-ours' } : found;
    },
    routesTo: (url: string, limit: number) => routing.routesTo(account, url, limit),
    choices: (mailbox: string, domain: string) =>
      routing.ownerOf(domain) === account ? routing.choices(mailbox, domain) : [],
    /** The payload that would be posted for a message to the address. */
    sample: (address: string, match: Match, style: PostStyle) => sample({ account, address, match, style }),
  };
}

function bindSigningKeys({ signingKeys }: Deps<'signingKeys'>, account: string) {
  return {
    /** Undefined if the store is unavailable and the key is not cached. */
    of: async (url: string) => (await signingKeys.keysFor(account, url))?.[0],
    rotate: (url: string) => signingKeys.rotate(account, url),
    /** When a URL changes, keeps its key, unless the new URL already has one. */
    carryOver: (from: string, to: string) => signingKeys.carryOver(account, from, to),
  };
}

function bindTrials(deps: Deps<'trials' | 'signingKeys' | 'limits' | 'sampleMail'>, account: string) {
  const { trials, signingKeys, limits, sampleMail } = deps;
  return {
    /**
     * Posts the event of a delivery, which must come from the account's queue, to another URL. The key of that URL
     * signs if there is one, else the key of the delivery's URL; `keyUrl` is the one used. Undefined if the store is
     * unavailable. Throws RequestLimitExceeded.
     */
    async post(mail: QueuedMail, url: string): Promise<{ attempt: AttemptRecord; keyUrl: string } | undefined> {
      const end = limits.trial(account);
      try {
        const own = await signingKeys.keysIfAny(account, url);
        const keyUrl = own ? url : mail.delivery.url;
        const keys = own ?? (await signingKeys.keysFor(account, keyUrl));
        return keys && { attempt: await trials.post(mail, url, keys), keyUrl };
      } finally {
        end();
      }
    },
    /**
     * Posts the event of a sample message to `address`, which matched `match`, to one of the account's routes,
     * signed as its mail is. Undefined if the store is unavailable. Throws RequestLimitExceeded.
     */
    async postSample(
      address: string,
      { id: routeId, url }: Pick<InboundRouteRow, 'id' | 'url'>,
      match: Parameters<SampleMail>[1],
    ): Promise<AttemptRecord | undefined> {
      const end = limits.trial(account);
      try {
        const keys = await signingKeys.keysFor(account, url);
        if (!keys) return undefined;
        const mail = sampleMail(address, match);
        return await trials.post({ ...mail, delivery: { ...mail.delivery, routeId } }, url, keys);
      } finally {
        end();
      }
    },
  };
}

function bindLists({ lists, limits }: Deps<'lists' | 'limits'>, account: string) {
  return {
    async reject(entry: Omit<Parameters<Lists['reject']>[0], 'account'>) {
      await limits.check(account, 'rejects');
      return lists.reject({ ...entry, account });
    },
    unreject: (email: string, subaccount: string) => lists.unreject(account, email, subaccount),
    async whitelist(email: string, detail: string | null) {
      await limits.check(account, 'whitelists');
      return lists.whitelist(account, email, detail);
    },
    unwhitelist: (email: string) => lists.unwhitelist(account, email),
  };
}

function bindCounters(deps: Deps<'counterRemoval' | 'lists' | 'store' | 'clock'>, account: string) {
  return {
    /** Counts the removal of a rejection list entry that events had created; '' is the list of the whole account. */
    countReset: (subaccount: string) => countEntryRemoval(deps, account, subaccount),
    /** Deletes the statistics and the rejection list of a subaccount. */
    forgetSubaccount: (slug: string) => forgetSubaccount(deps, account, slug),
    /** Deletes the statistics of a deleted template or subaccount. */
    forget: (kind: 'template' | 'subaccount', key: string) => deps.counterRemoval.removeCounters(account, kind, key),
    /** Deletes the statistics of a tag and removes it from sent messages. */
    removeTag: (tag: string) => deps.counterRemoval.removeTag(account, tag),
  };
}

function bindSenderDomains(
  { senderDomains, limits, store }: Deps<'senderDomains' | 'limits' | 'store'>,
  account: string,
) {
  /** `add`, `check` and `verify` create the row of a domain that has none. */
  const checkLimit = async (domain: string) => {
    if (!(await store.of(account).senderDomains.one({ domain }))) await limits.check(account, 'sender_domains');
  };
  return {
    async add(domain: string) {
      await checkLimit(domain);
      return senderDomains.add(account, domain);
    },
    async check(domain: string) {
      await checkLimit(domain);
      return senderDomains.check(account, domain);
    },
    records: (domain: string) => senderDomains.records(account, domain),
    async verify(domain: string, mailbox: string) {
      await checkLimit(domain);
      return senderDomains.verify(account, domain, mailbox);
    },
  };
}

function bindTrackingDomains({ trackingDomains, limits }: Deps<'trackingDomains' | 'limits'>, account: string) {
  return {
    async add(domain: string) {
      await limits.check(account, 'tracking_domains');
      return trackingDomains.add(account, domain);
    },
    test: (row: TrackingDomainRow) => trackingDomains.test(row),
    owned: (rows: readonly TrackingDomainRow[]) => trackingDomains.owned(account, rows),
  };
}
