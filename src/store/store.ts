import { createBoundedCache } from '../base/cache.ts';
import { frozen } from '../base/frozen.ts';
import { namesOf } from '../base/tables.ts';
import type { Collection, Database, Filter, Patch, Row } from './driver/port.ts';
import { allFeatures, type GatedRow, gated, understands } from './features.ts';
import { accounts, keys } from './rows/accounts.ts';
import { acmeChallenges, certificates } from './rows/certificates.ts';
import type { Declaration, OwnedRow } from './rows/collection.ts';
import { copies, copyParts } from './rows/copies.ts';
import { counters, urlHours, urls } from './rows/counters.ts';
import {
  domainKeys,
  inboundDomains,
  inboundRoutes,
  routingChanges,
  senderDomains,
  trackingDomains,
  verifications,
} from './rows/domains.ts';
import { exportJobs } from './rows/exports.ts';
import { hosts, leases, revisions, secrets } from './rows/hosts.ts';
import { ipRequests, ips, placements, pools } from './rows/ips.ts';
import { rejects, whitelists } from './rows/lists.ts';
import {
  messageEvents,
  messageNames,
  messages,
  messageTags,
  metadataFields,
  scheduled,
  tagRemovals,
} from './rows/messages.ts';
import { notices, quotas } from './rows/notices.ts';
import { pauses } from './rows/pauses.ts';
import { consoleSessions, enterLinks, people } from './rows/people.ts';
import { subaccounts } from './rows/subaccounts.ts';
import { templateLabels, templates } from './rows/templates.ts';
import { signingKeys, webhooks, webhookTallies } from './rows/webhooks.ts';

/** Every collection, by its name in the code. Each is declared under rows/; all types below derive from this list. */
export const COLLECTIONS = {
  accounts,
  keys,
  inboundDomains,
  inboundRoutes,
  signingKeys,
  revisions,
  routingChanges,
  counters,
  leases,
  exportJobs,
  ipRequests,
  ips,
  messageEvents,
  messageNames,
  messages,
  messageTags,
  notices,
  placements,
  pools,
  rejects,
  scheduled,
  secrets,
  senderDomains,
  domainKeys,
  verifications,
  quotas,
  subaccounts,
  tagRemovals,
  templates,
  templateLabels,
  webhooks,
  webhookTallies,
  whitelists,
  metadataFields,
  trackingDomains,
  urls,
  urlHours,
  people,
  enterLinks,
  consoleSessions,
  hosts,
  copies,
  copyParts,
  pauses,
  certificates,
  acmeChallenges,
};

type Collections = typeof COLLECTIONS;
type Name = keyof Collections;
type RowOf<N extends Name> =
  Collections[N] extends Declaration<infer R extends Row, string, string, boolean> ? R : never;
type AccessOf<N extends Name> = Collections[N]['access'];

/** All rows of all accounts: for the daemon's own parts and the command line, never for an API handler. */
export interface Store extends Opened {
  /** The same store, restricted to one account. */
  of(account: string): AccountStore;
  /** Whether this host may act on a row. */
  understands(row: GatedRow): boolean;
  ping(): Promise<void>;
  close(): Promise<void>;
}

type Opened = { readonly [N in Name]: Collection<RowOf<N>> };

/** The store restricted to one account: every filter and every new row gets its id. */
export interface AccountStore extends Views {
  readonly account: string;
}

/** The operations on an account's rows, by the declared access of a collection; none for other kinds of access. */
interface Operations {
  readonly own: keyof BoundCollection<OwnedRow>;
  readonly lent: 'one' | 'many' | 'change';
  readonly read: 'one' | 'many';
}

type Views = {
  readonly [N in Name as AccessOf<N> extends keyof Operations ? N : never]: View<RowOf<N>, AccessOf<N>>;
};
type View<R, A> = R extends OwnedRow
  ? A extends keyof Operations
    ? Pick<BoundCollection<R>, Operations[A]>
    : never
  : never;

/** A collection restricted to the rows of one account. */
export interface BoundCollection<R extends OwnedRow> {
  one(filter: Unowned<Filter<R>>): ReturnType<Collection<R>['one']>;
  many(filter: Unowned<Filter<R>>, page?: Parameters<Collection<R>['many']>[1]): ReturnType<Collection<R>['many']>;
  insert(row: Omit<R, 'account'>): ReturnType<Collection<R>['insert']>;
  change(filter: Unowned<Filter<R>>, patch: Unowned<Patch<R>>): ReturnType<Collection<R>['change']>;
  remove(filter: Unowned<Filter<R>>): ReturnType<Collection<R>['remove']>;
}

type Unowned<T> = Omit<T, 'account'>;

/** Cached account views: every API call needs one, and binding all collections takes longer than a small call. */
const MAX_VIEWS = 200;

/** Opens every collection on a database. `features`: those that this host understands; absent: all. */
export async function openStore(database: Database, features?: ReadonlySet<string>): Promise<Store> {
  const specs: { readonly [N in Name]: Declaration<RowOf<N>, string, string, boolean> } = COLLECTIONS;
  async function open<N extends Name>(name: N): Promise<Collection<RowOf<N>>> {
    const spec = specs[name];
    const rows = await database.collection<RowOf<N>>(spec);
    return spec.features ? gated(rows, spec.features, features) : rows;
  }
  // biome-ignore lint/plugin: TypeScript cannot follow types from name to name through a loop
  const opened = {} as Opened;
  for (const name of NAMES) Object.assign(opened, { [name]: await open(name) });
  const views = createBoundedCache<AccountStore>({ most: MAX_VIEWS, keepUsed: true });
  return frozen({
    ...opened,
    of(account) {
      const view = views.get(account) ?? frozen({ account, ...viewsOf(opened, account) });
      views.set(account, view);
      return view;
    },
    understands: (row) => understands(features, row),
    ping: () => database.ping(),
    close: () => database.close(),
  });
}

const NAMES = namesOf(COLLECTIONS);

/** Every feature of the collections; `parts` has this version's features of fields with several (`Need.each`). */
export function featuresOf(parts: Readonly<Record<string, readonly string[]>>): readonly string[] {
  return NAMES.flatMap((name) => {
    const declaration: { readonly features?: object | undefined } = COLLECTIONS[name];
    return declaration.features ? allFeatures(declaration.features, parts) : [];
  }).sort();
}
const VISIBLE = NAMES.filter((name): name is keyof Views => !['none', 'hidden'].includes(COLLECTIONS[name].access));

function viewsOf(store: Opened, account: string): Views {
  // biome-ignore lint/plugin: as in openStore
  const views = {} as Views;
  for (const name of VISIBLE) {
    const { one, many, insert, change, remove } = bind<OwnedRow>(store[name], account);
    const { access } = COLLECTIONS[name];
    if (access === 'own') Object.assign(views, { [name]: frozen({ one, many, insert, change, remove }) });
    else Object.assign(views, { [name]: frozen(access === 'lent' ? { one, many, change } : { one, many }) });
  }
  return views;
}

function bind<R extends OwnedRow>(collection: Collection<R>, account: string): BoundCollection<R> {
  // biome-ignore lint/plugin: TypeScript cannot follow a generic type through `{ ...rest, account }`
  const mine = <T>(value: Unowned<T>) => ({ ...value, account }) as T;
  return {
    one: (filter) => collection.one(mine<Filter<R>>(filter)),
    many: (filter, page) => collection.many(mine<Filter<R>>(filter), page),
    insert: (row) => collection.insert(mine<R>(row)),
    change: (filter, patch) => collection.change(mine<Filter<R>>(filter), mine<Patch<R>>(patch)),
    remove: (filter) => collection.remove(mine<Filter<R>>(filter)),
  };
}

/** Every collection whose rows count towards an account's bytes, with its declaration. */
export function collectionsOfAccounts(store: Store) {
  return NAMES.filter((name) => !['none', 'lent'].includes(COLLECTIONS[name].access)).map(
    (name) => [COLLECTIONS[name], store[name]] as const,
  );
}
