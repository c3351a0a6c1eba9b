import type { Clock } from '../base/clock.ts';
import type { Resolver } from '../dns/types.ts';
import { checkMx } from '../dns/checks.ts';
import type { Acceptance, Accepted, Arrival, Lookup, Match, Routed, Routing, SigningKeys } from '../inbound/types.ts';
import type { AttemptRecord, QueuedDelivery, Selection, Spool } from '../spool/types.ts';
import type { AccountRow } from '../store/accounts.ts';
import type { AccountStore, Store } from '../store/store.ts';
import type { Log } from '../base/log.ts';

/** Which payload is wanted: that of a sample message to `address`, hitting this route. */
export interface SampleArgs {
  readonly account: string;
  readonly address: string;
  readonly match: Match;
}

/** The parts of the daemon that operations work with. */
export interface OperationDeps {
  readonly store: Store;
  readonly spool: Spool;
  readonly routing: Routing;
  readonly acceptance: Acceptance;
  readonly signingKeys: SigningKeys;
  readonly resolver: Resolver;
  /** webhookexists: whether something answers at the URL. */
  readonly urlExists: (url: string) => Promise<boolean>;
  /** The payload of a sample message, as JSON would hold it: an array with one event. */
  readonly sample: (args: SampleArgs) => Promise<unknown>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface OperationSettings {
  readonly hostname: string;
  /** What an MX may name beside our hostname. */
  readonly mxHosts: readonly string[];
  readonly maxMessageBytes: number;
}

type OwnSelection = Omit<Selection, 'account'>;

/** Everything an operation can reach, bound to one account: no handler can name another. */
export interface AccountParts {
  readonly account: AccountRow;
  readonly store: AccountStore;
  readonly settings: OperationSettings;
  now(): Date;
  /** A route id that was never given out: `<account number>.<sequence>`. */
  newRouteId(): Promise<string>;
  /** Tells this host at once, and the others by the revision, that a domain or its routes changed. */
  routingChanged(domain: string): Promise<void>;
  /** As `Routing.lookup`; what belongs to another account is not ours. */
  lookup(mailbox: string, domain: string): Lookup;
  urlExists(url: string): Promise<boolean>;
  sample(address: string, match: Match): Promise<unknown>;
  /** Whether an MX of the domain names us; `unknown` when DNS did not say. */
  mxIsOurs(domain: string): Promise<boolean | 'unknown'>;
  /** undefined: the store is away and the key was never seen. */
  signingKey(url: string): Promise<string | undefined>;
  newSigningKey(url: string): Promise<string>;
  backlog(): number;
  deliveries(selection: OwnSelection, limit: number): Promise<QueuedDelivery[]>;
  attempts(delivery: QueuedDelivery): Promise<AttemptRecord[]>;
  replay(selection: OwnSelection): Promise<number>;
  /** Sends what waits for a route to another URL. The route must have been found in the account's store. */
  redirect(route: { readonly id: string; readonly account: string }, url: string): Promise<void>;
  /** Takes responsibility for a message. */
  accept(arrival: Arrival, routed: readonly Routed[], bytes: Uint8Array): Promise<Accepted>;
}

const CHUNK_BYTES = 65_536;

/** Binds the parts to an account. */
export function createAccountParts(settings: OperationSettings, deps: OperationDeps): (account: AccountRow) => AccountParts {
  const { store, spool, routing, clock } = deps;
  return (account) => {
    const own = (selection: OwnSelection) => ({ ...selection, account: account.id });
    return {
      account,
      store: store.of(account.id),
      settings,
      now: () => new Date(clock.now()),
      newRouteId: async () => `${account.number}.${(await store.revisions.add(`routes:${account.id}`, { count: 1 }, { count: 0 })).count}`,
      async routingChanged(domain) {
        try {
          await store.revisions.add('routing', { count: 1 }, { count: 0 });
        } finally {
          await routing.refresh(domain);
        }
      },
      lookup(mailbox, domain) {
        const found = routing.lookup(mailbox, domain);
        return found.kind === 'matched' && found.match.account !== account.id ? { kind: 'not-ours' } : found;
      },
      urlExists: deps.urlExists,
      sample: (address, match) => deps.sample({ account: account.id, address, match }),
      async mxIsOurs(domain) {
        const found = await checkMx(deps.resolver, domain, [settings.hostname, ...settings.mxHosts]);
        return found === 'unknown' ? found : found.valid;
      },
      signingKey: async (url) => (await deps.signingKeys.keysFor(account.id, url))?.[0],
      newSigningKey: (url) => deps.signingKeys.rotate(account.id, url),
      backlog: () => spool.backlog(account.id),
      deliveries: (selection, limit) => spool.list(own(selection), limit),
      attempts: (delivery) => delivery.account === account.id ? spool.attempts(delivery.id) : Promise.resolve([]),
      replay: (selection) => spool.replay(own(selection), clock.now()),
      async redirect(route, url) {
        if (route.account === account.id) await spool.redirect(route.id, url);
      },
      accept: (arrival, routed, bytes) => accept(deps, arrival, routed, bytes),
    };
  };
}

async function accept({ spool, acceptance, log }: OperationDeps, arrival: Arrival, routed: readonly Routed[], bytes: Uint8Array): Promise<Accepted> {
  if (!spool.hasRoom()) return { outcome: 'full' };
  const { messageId, body } = acceptance.begin();
  try {
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) await body.write(bytes.subarray(at, at + CHUNK_BYTES));
    return await acceptance.accept(messageId, arrival, routed, await body.finish());
  } catch (error) {
    await body.abort();
    log.error('api.fault', { part: 'acceptance', error });
    return { outcome: 'fault' };
  }
}
