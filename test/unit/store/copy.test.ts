import { expect } from 'chai';
import { MongoClient } from 'mongodb';
import { systemClock } from '../../../src/base/clock.ts';
import { CopyRefused, copyStore, STORED } from '../../../src/store/copy.ts';
import { openMongo } from '../../../src/store/driver/mongo.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Row,
  StoreAway,
} from '../../../src/store/driver/port.ts';
import { embedded, mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
import { allRows, fillStore } from '../../support/filled-store.ts';
import { createTestLog } from '../../support/log.ts';
import { startMongoProxy } from '../../support/mongo-proxy.ts';
import { failure } from '../../support/store-notes.ts';
import { PATIENCE } from '../../support/until.ts';

const DIRECTIONS = mongoDriver
  ? [
      [embedded, mongoDriver],
      [mongoDriver, embedded],
      [mongoDriver, mongoDriver],
    ]
  : [[embedded, embedded]];

/** A database whose calls go through `around`. */
function watched(database: Database, around: (name: string, call: () => Promise<unknown>) => Promise<any>): Database {
  return {
    ...database,
    collection: async <R extends Row>(spec: CollectionSpec<R>) => {
      const rows: Collection<R> = await database.collection(spec);
      return Object.fromEntries(
        Object.entries(rows).map(([name, call]) => [
          name,
          (...args: unknown[]) => around(name, () => (call as (...given: unknown[]) => Promise<unknown>)(...args)),
        ]),
      ) as unknown as Collection<R>;
    },
  };
}

const quietly = { resume: false, onProgress: () => undefined };
const again = { ...quietly, resume: true };

for (const [source, target] of DIRECTIONS) {
  if (!source || !target) throw new Error('no pair');
  describe(`a copy of the store, from ${source.name} to ${target.name}`, function () {
    this.timeout(60_000);
    let from: Database;
    let to: Database;
    beforeEach(async () => {
      [from, to] = [await source.open(), await target.open()];
    });
    afterEach(() => Promise.all([from.close(), to.close()]));

    const templates = async (database: Database) => {
      const spec = STORED.find(({ name }) => name === 'templates');
      if (!spec) throw new Error('no templates');
      return database.collection(spec);
    };

    it('has every row of every collection, with its dates, its nulls and its odd names', async () => {
      const rows = await fillStore(from);
      const copied = await copyStore({ from, to }, quietly);
      expect(copied.map(({ collection }) => collection)).to.deep.equal(STORED.map(({ name }) => name));
      expect(copied.reduce((sum, one) => sum + one.rows, 0)).to.equal(rows);
      expect(await allRows(to)).to.deep.equal(await allRows(from));
    });

    it('is refused where there are rows, unless it continues a copy', async () => {
      await fillStore(from);
      await (await templates(to)).insert({ id: 'other', name: 'theirs' });
      const refused = await failure(copyStore({ from, to }, quietly));
      expect(refused)
        .to.be.instanceOf(CopyRefused)
        .with.property('message')
        .match(/TO is not empty \(templates\)/);
      expect(Object.values(await allRows(to)).flat()).to.have.length(1);
    });

    it('continues where it was interrupted, and changes nothing that is there', async () => {
      await fillStore(from, 10);
      let left = 200;
      const dying = watched(to, async (name, call) => {
        if (name === 'insert' && left-- <= 0) throw new StoreAway('cut');
        return call();
      });
      expect(await failure(copyStore({ from, to: dying }, quietly)))
        .to.be.instanceOf(StoreAway)
        .with.property('message')
        .match(/^TO is unavailable: cut/);
      const before = Object.values(await allRows(to)).flat().length - 1; // without the mark of the copy
      expect(before).to.be.within(150, 220);
      const copied = await copyStore({ from, to }, again);
      expect(copied.reduce((sum, one) => sum + one.there, 0)).to.equal(before);
      expect(await allRows(to)).to.deep.equal(await allRows(from));
    });

    it('does not mind that answers are lost after the rows were written', async () => {
      await fillStore(from, 5);
      const forgetful = watched(to, async (name, call) => {
        if (name === 'insert') await call();
        return call();
      });
      await copyStore({ from, to: forgetful }, quietly);
      expect(await allRows(to)).to.deep.equal(await allRows(from));
    });

    for (const [what, row, message] of [
      [
        'the same id with other contents',
        { id: 'templates 1 é', name: 'theirs' },
        /templates: row templates 1 é is in TO/,
      ],
      [
        'a row that FROM does not have',
        { id: 'zz', account: 'zz', slug: 'zz' },
        /templates: FROM has .* rows, and TO has/,
      ],
      [
        'the unique values of another row',
        { id: 'x', account: 'account 1', slug: 'slug 1' },
        /TO has another row with the unique values of templates 1 é/,
      ],
    ] as const)
      it(`never reports success if TO has ${what}`, async () => {
        await fillStore(from);
        await (await templates(to)).insert(row);
        const refused = await failure(copyStore({ from, to }, again));
        expect(refused).to.be.instanceOf(CopyRefused).with.property('message').match(message);
        expect(await (await templates(to)).one({ id: row.id })).to.include(row);
      });

    it('says when FROM was changed meanwhile', async () => {
      await fillStore(from);
      const onProgress = ({ doing, collection }: { doing: string; collection: string }) => {
        if (doing === 'copying' && collection === 'usage') changed ??= change();
      };
      let changed: Promise<unknown> | undefined;
      const change = async () => (await templates(from)).change({ id: 'templates 1 é' }, { name: 'new' });
      const waits = watched(from, async (_, call) => {
        await changed;
        return call();
      });
      expect(await failure(copyStore({ from: waits, to }, { resume: false, onProgress })))
        .to.be.instanceOf(CopyRefused)
        .with.property('message')
        .match(/^templates: FROM changed during the copy/);
    });

    it('holds a bounded number of bytes of rows of 1 MB and more', async () => {
      const rows = await templates(from);
      const html = 'é'.repeat(512 * 1024);
      for (let n = 0; n < 30; n++) await rows.insert({ id: `t${n}`, account: 'a', slug: `${n}`, html });
      await rows.insert({ id: 'large', account: 'a', slug: 'large', html: html.repeat(8) });
      let most = 0;
      const measured = watched(from, async (_, call) => {
        const answer = await call();
        most = Math.max(most, JSON.stringify(answer ?? null).length);
        return answer;
      });
      await copyStore({ from: measured, to }, quietly);
      expect(await allRows(to)).to.deep.equal(await allRows(from));
      expect(most).to.be.below(16 * 1024 ** 2);
    });
  });
}

if (mongoDriver)
  describe('a copy of the store over a wire that is cut', function () {
    this.timeout(60_000);
    it('says which side is away, and continues when it is back', async () => {
      const from = await embedded.open();
      await fillStore(from, 20);
      const server = await mongoServer();
      const proxy = await startMongoProxy(server.address);
      const name = newDatabaseName();
      const open = (url: string) =>
        openMongo({ url, timeoutMs: 1000 * PATIENCE }, { log: createTestLog(), clock: systemClock });
      const cut = await open(server.url(name, proxy.address));
      const onProgress = ({ collection }: { collection: string }) => {
        if (collection === 'messages') proxy.cut();
      };
      expect(await failure(copyStore({ from, to: cut }, { resume: false, onProgress })))
        .to.be.instanceOf(StoreAway)
        .with.property('message')
        .match(/^TO is unavailable/);
      proxy.mend();
      await cut.close();
      await proxy.close();
      const to = await open(server.url(name));
      await copyStore({ from, to }, again);
      expect(await allRows(to)).to.deep.equal(await allRows(from));
      await Promise.all([from.close(), to.close()]);
    });

    it('refuses values of other programs in MongoDB that no row of ours can have', async () => {
      const url = (await mongoServer()).url(newDatabaseName());
      const client = await new MongoClient(url).connect();
      await client
        .db()
        .collection<{ _id: string; data: Buffer }>('templates')
        .insertOne({ _id: 'theirs', data: Buffer.from('bytes') });
      await client.close();
      const from = await openMongo({ url, timeoutMs: 5000 * PATIENCE }, { log: createTestLog(), clock: systemClock });
      const to = await embedded.open();
      expect(await failure(copyStore({ from, to }, quietly)))
        .to.be.instanceOf(Error)
        .with.property('message')
        .match(/templates/);
      await Promise.all([from.close(), to.close()]);
    });
  });
