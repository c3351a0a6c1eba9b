import { accounts, type AccountRow } from './accounts.ts';
import type { Collection, Database, Filter, Patch, Row } from './collection.ts';
import { counters, type CounterRow } from './counters.ts';
import { inboundDomains, type InboundDomainRow } from './inbound-domains.ts';
import { inboundRoutes, type InboundRouteRow } from './inbound-routes.ts';
import { keys, type KeyRow } from './keys.ts';
import { revisions, type RevisionRow } from './revisions.ts';
import { signingKeys, type SigningKeyRow } from './signing-keys.ts';

/** Everything of all accounts: for the daemon's own parts and the command line, never for an API handler. */
export interface Store {
  readonly accounts: Collection<AccountRow>;
  readonly keys: Collection<KeyRow>;
  readonly inboundDomains: Collection<InboundDomainRow>;
  readonly inboundRoutes: Collection<InboundRouteRow>;
  readonly signingKeys: Collection<SigningKeyRow>;
  readonly revisions: Collection<RevisionRow>;
  readonly counters: Collection<CounterRow>;
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
  readonly counters: Pick<BoundCollection<CounterRow>, 'many'>;
}

interface Owned extends Row {
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
  };
  return Object.freeze({
    ...store,
    of: (account: string) => Object.freeze({
      account,
      keys: bind(store.keys, account),
      inboundDomains: bind(store.inboundDomains, account),
      inboundRoutes: bind(store.inboundRoutes, account),
      counters: bind(store.counters, account),
    }),
    ping: () => database.ping(),
    close: () => database.close(),
  });
}

function bind<R extends Owned>(collection: Collection<R>, account: string): BoundCollection<R> {
  // TypeScript cannot see that `{ ...Omit<T, 'account'>, account }` is T for a generic T; this is the one place that says so.
  const mine = <T>(value: Unowned<T>) => ({ ...value, account }) as T;
  return Object.freeze({
    one: (filter: Unowned<Filter<R>>) => collection.one(mine<Filter<R>>(filter)),
    many: (filter: Unowned<Filter<R>>, page?: Parameters<Collection<R>['many']>[1]) => collection.many(mine<Filter<R>>(filter), page),
    insert: (row: Omit<R, 'account'>) => collection.insert(mine<R>(row)),
    change: (filter: Unowned<Filter<R>>, patch: Unowned<Patch<R>>) =>
      collection.change(mine<Filter<R>>(filter), mine<Patch<R>>(patch)),
    remove: (filter: Unowned<Filter<R>>) => collection.remove(mine<Filter<R>>(filter)),
  });
}
