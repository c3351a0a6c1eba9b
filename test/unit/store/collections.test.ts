import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { toMongoIndexes } from '../../../src/store/driver/mongo.ts';
import type { CollectionSpec, Row } from '../../../src/store/driver/port.ts';
import type { KeyRow } from '../../../src/store/rows/accounts.ts';
import { collectionsOfAccounts, openStore, type Store } from '../../../src/store/store.ts';
import { openTestStore } from '../../support/store.ts';
import { tempDir } from '../../support/temp.ts';

/** Tables and indexes of databases that are in use. A new collection adds lines; those that are there never change. */
const KNOWN: unknown = JSON.parse(readFileSync(new URL('collections.json', import.meta.url), 'utf8'));

/** What `openStore` opens, in its order. */
async function openedSpecs(): Promise<readonly CollectionSpec<Row>[]> {
  const specs: CollectionSpec<Row>[] = [];
  await openStore({
    collection: async <R extends Row>(spec: CollectionSpec<R>) => {
      specs.push(spec as unknown as CollectionSpec<Row>); // all that is read of it are names
      return Object.create(null);
    },
    left: () => Infinity,
    ping: () => Promise.resolve(),
    close: () => Promise.resolve(),
  });
  return specs;
}

/** Columns and indexes in a new file of the embedded store. */
async function onDisk(): Promise<{ readonly columns: object; readonly indexes: readonly unknown[] }> {
  const dir = await tempDir();
  await (await openTestStore(undefined, dir)).close();
  const database = new DatabaseSync(join(dir, 'store.db'), { readOnly: true });
  const all = (sql: string) => database.prepare(sql).all();
  const columns = all("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").map(({ name }) => [
    name,
    all(`SELECT name FROM pragma_table_xinfo('${name}') ORDER BY cid`).map((column) => column['name']),
  ]);
  const indexes = all("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY name");
  database.close();
  return { columns: Object.fromEntries(columns), indexes: indexes.map(({ sql }) => sql) };
}

/** Indexes as MongoDB is asked for them, and what the drivers know of the rows. */
async function inMongo(): Promise<object> {
  const described = (await openedSpecs()).map(({ name, indexes, unique = [], dates, upkeep = false }) => [
    name,
    { indexes: toMongoIndexes(indexes, unique).map((index) => JSON.stringify(index)), dates, upkeep },
  ]);
  return Object.fromEntries(described);
}

/** What an account sees. */
const VISIBLE = [
  'keys',
  'inboundDomains',
  'inboundRoutes',
  'counters',
  'exportJobs',
  'ipRequests',
  'ips',
  'messageEvents',
  'messages',
  'messageTags',
  'notices',
  'placements',
  'pools',
  'rejects',
  'scheduled',
  'senderDomains',
  'subaccounts',
  'templates',
  'templateLabels',
  'webhooks',
  'webhookTallies',
  'whitelists',
  'metadataFields',
  'trackingDomains',
  'urls',
  'urlHours',
];

describe('the collections of the store', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  it('have the tables and indexes of existing databases, on disk and in MongoDB', async () => {
    expect({ embedded: await onDisk(), mongodb: await inMongo() }).to.deep.equal(KNOWN);
  });

  it('show an account its own rows, with only permitted operations', async () => {
    const mine = store.of('mine');
    // @ts-expect-error rows of no account
    expect(mine.leases).to.equal(undefined);
    // @ts-expect-error rows that only the daemon sees
    expect(mine.signingKeys).to.equal(undefined);
    // @ts-expect-error rows that only the daemon writes
    expect(mine.counters.insert).to.equal(undefined);
    // @ts-expect-error rows that the operator lends
    expect(mine.ips.remove).to.equal(undefined);
    // @ts-expect-error a field that is not of the row
    expect(await mine.keys.one({ key: 'x' })).to.equal(undefined);
    const rows: readonly KeyRow[] = await mine.keys.many({});
    expect(rows).to.deep.equal([]);
    expect(Object.keys(mine)).to.deep.equal(['account', ...VISIBLE]);
  });

  it('count as bytes of their account, except rows that the operator lends', async () => {
    const counted = collectionsOfAccounts(store).map(([{ name }]) => name);
    expect(counted.toSorted()).to.deep.equal(
      [...VISIBLE.filter((name) => name !== 'ips'), 'signingKeys', 'verifications', 'tagRemovals', 'messageNames']
        .map((name) => (name === 'exportJobs' ? 'exports' : name.replaceAll(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)))
        .toSorted(),
    );
  });
});
