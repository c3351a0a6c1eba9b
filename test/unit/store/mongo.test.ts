import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { openMongo } from '../../../src/store/driver/mongo.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Row,
  StoreAway,
} from '../../../src/store/driver/port.ts';
import { mongoDriver, mongoServer, newDatabaseName, ofItsOwn } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { type MongoProxy, startMongoProxy } from '../../support/mongo-proxy.ts';
import { lacks, type MongoProcess, type MongoServer, mongoKind, startMongo } from '../../support/mongo-server.ts';
import { failure, type Note, note, notes } from '../../support/store-notes.ts';
import { PATIENCE, until } from '../../support/until.ts';

type Command = Readonly<Record<string, unknown>>;

/**
 * Everything the adapter may send, with every part that a command may have. `txnNumber` is the driver's, on a replica
 * set.
 */
const COMMON = ['lsid', '$db', '$clusterTime', '$readPreference', 'txnNumber'];
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  createIndexes: ['indexes', 'writeConcern'],
  find: ['filter', 'sort', 'limit', 'singleBatch', 'batchSize'],
  getMore: ['collection', 'batchSize'],
  insert: ['documents', 'ordered', 'writeConcern'],
  delete: ['deletes', 'ordered', 'writeConcern'],
  findAndModify: ['query', 'update', 'new', 'remove', 'upsert', 'writeConcern'],
  endSessions: ['writeConcern'], // a courtesy at the end that waits for no answer; it writes nothing of ours
};
const WRITES = ['createIndexes', 'insert', 'delete', 'findAndModify'];
const OPERATORS = ['$eq', '$ne', '$in', '$gt', '$gte', '$lt', '$lte', '$set', '$inc'];

/** Names in a command that MongoDB could take for an operator. */
function operatorsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, item]) => [
    ...(name.startsWith('$') ? [name] : []),
    ...operatorsIn(item),
  ]);
}

if (mongoDriver)
  describe(`the store on MongoDB (${mongoDriver.kind})`, () => {
    const opened: Database[] = [];
    let log: ReturnType<typeof createTestLog>;

    const open = async (url: string, timeoutMs = 5000) => {
      const database = await openMongo({ url, timeoutMs: timeoutMs * PATIENCE }, { log, clock: systemClock });
      opened.push(database);
      return database;
    };

    beforeEach(() => {
      log = createTestLog();
    });
    afterEach(async () => {
      for (const database of opened.splice(0)) await database.close();
    });

    describe('sends', () => {
      let commands: [string, Command][];
      const getMore = mongoDriver && lacks(mongoDriver.kind, 'getMore') ? [] : ['getMore'];
      before(async () => {
        commands = await recorded();
      });

      /** Everything the port can do, once. */
      const useAll = async (database: Database) => {
        const rows = await database.collection(ofItsOwn<Note>({ ...notes, unique: [['body', 'rank']] }));
        await Promise.all(Array.from({ length: 150 }, (_, i) => rows.insert(note(`n${i}`, { rank: i, body: '$gt' }))));
        await rows.insert(note('n1'));
        await rows.many({}, { sort: '-rank' });
        await rows.many(
          {
            account: { in: ['$where', null] },
            rank: { range: { gt: 1, gte: 1, lt: 9, lte: 9 } },
            body: { startsWith: '$' },
          },
          { sort: 'id', limit: 5 },
        );
        await rows.many({ account: null, rank: { exists: true }, body: { exists: false } });
        await rows.one({ id: '$gt' });
        await rows.change({ id: 'n1' }, { body: '$rank', rank: -1 });
        await rows.change({ id: 'n1' }, {});
        await rows.add('n1', { rank: 1 }, { account: 'a', rank: 0, body: '' });
        await rows.add('new', { rank: 1 }, { account: 'a', rank: 0, body: '' });
        await rows.add('new', {}, { account: 'a', rank: 0, body: '' });
        await rows.remove({ body: '$rank' });
        await database.ping();
        await database.close();
      };

      const recorded = async (options = '') => {
        const sent: [string, Command][] = [];
        const url = (await mongoServer()).url(newDatabaseName());
        const settings = { url: `${url}${options}`, timeoutMs: 5000 * PATIENCE };
        await useAll(
          await openMongo(settings, {
            clock: systemClock,
            log: createTestLog(),
            onCommand: (name, command) => {
              sent.push([name, command]);
            },
          }),
        );
        return sent;
      };

      it('only the commands of a short list', () => {
        const names = new Set(commands.map(([name]) => name));
        expect([...names].filter((name) => !(name in ALLOWED))).to.deep.equal([]);
        expect([...names]).to.include.members(['createIndexes', 'find', 'insert', 'findAndModify', ...getMore]);
        for (const [name, command] of commands) {
          expect([name, ...(ALLOWED[name] ?? []), ...COMMON], name).to.include.members(Object.keys(command));
          expect(command['upsert'], 'an upsert').to.be.oneOf([undefined, false]);
        }
      });

      it('every write with w: majority and j: true, for any URL', async () => {
        for (const sent of [commands, await recorded('w=1&journal=false&readPreference=secondaryPreferred')]) {
          const writes = sent.filter(([name]) => WRITES.includes(name));
          expect(writes.length).to.be.above(150);
          expect(
            writes.filter(([, { writeConcern }]) => JSON.stringify(writeConcern) !== '{"w":"majority","j":true}'),
          ).to.deep.equal([]);
        }
      });

      it('only the operators of the port, and values only as values', () => {
        const parts = commands.flatMap(([, command]) => [command['filter'], command['query'], command['update']]);
        expect([...new Set(parts.flatMap(operatorsIn))].filter((name) => !OPERATORS.includes(name))).to.deep.equal([]);
        expect(
          commands.flatMap(([, { update }]) => (Array.isArray(update) ? [update] : [])),
          'an update pipeline',
        ).to.deep.equal([]);
      });

      it('no transaction', () => {
        expect(
          commands.filter(([, command]) => 'startTransaction' in command || 'autocommit' in command),
        ).to.deep.equal([]);
      });
    });

    describe('when an answer is lost', () => {
      let proxy: MongoProxy;
      let rows: Collection<Note>;

      beforeEach(async () => {
        const server = await mongoServer();
        proxy = await startMongoProxy(server.address);
        rows = await (await open(server.url(newDatabaseName(), proxy.address))).collection(notes);
        await rows.insert(note('1', { rank: 5, body: 'free' }));
      });
      afterEach(() => proxy.close());

      /**
       * On a replica set the driver asks again and gets the first answer; elsewhere the store says that it does not
       * know.
       */
      const lost = async <T>(command: string, work: () => Promise<T>): Promise<T | undefined> => {
        proxy.failNext(({ name }) => name === command, 'answer lost');
        try {
          return await work();
        } catch (error) {
          expect(error).to.be.instanceOf(StoreAway);
          return undefined;
        }
      };

      it('an insert is done once, and the same again is a duplicate', async () => {
        expect(await lost('insert', () => rows.insert(note('2')))).to.be.oneOf([undefined, 'inserted']);
        expect(await rows.one({ id: '2' })).to.deep.equal(note('2'));
        expect(await rows.insert(note('2'))).to.equal('duplicate');
      });

      it('an addition is done once', async () => {
        const answer = await lost('findAndModify', () =>
          rows.add('1', { rank: 1 }, { account: 'a', rank: 0, body: '' }),
        );
        expect(answer?.rank).to.be.oneOf([undefined, 6]);
        expect((await rows.one({ id: '1' }))?.rank).to.equal(6);
      });

      it('an addition that creates its row is done once', async () => {
        const answer = await lost('insert', () => rows.add('2', { rank: 1 }, { account: 'a', rank: 10, body: '' }));
        expect(answer?.rank).to.be.oneOf([undefined, 11]);
        expect((await rows.one({ id: '2' }))?.rank).to.equal(11);
      });

      it('a change is done once, and is not reported as without a match', async () => {
        const answer = await lost(
          'findAndModify',
          async () => (await rows.change({ id: '1', body: 'free' }, { body: 'taken' })) ?? 'none',
        );
        expect(answer).to.be.deep.oneOf([undefined, note('1', { rank: 5, body: 'taken' })]);
        expect((await rows.one({ id: '1' }))?.body).to.equal('taken');
      });

      it('a search is repeated', async () => {
        expect(await lost('find', () => rows.one({ id: '1' }))).to.deep.equal(note('1', { rank: 5, body: 'free' }));
      });
    });

    it('creates missing indexes, while another daemon runs and for a later version', async () => {
      const url = (await mongoServer()).url(newDatabaseName());
      const spec: CollectionSpec<Note> = {
        ...notes,
        indexes: [...notes.indexes, ['body']],
        unique: [['account', 'rank']],
      };
      const [one, two] = [await open(url), await open(url)];
      for (let n = 0; n < 20; n++) {
        const both = await Promise.all(
          [one, two].map((database) => database.collection({ ...spec, name: `notes${n}` })),
        );
        expect(
          await Promise.all(both.map((rows, at) => rows.insert(note(`${n} ${at}`, { rank: at })))),
          `round ${n}`,
        ).to.deep.equal(['inserted', 'inserted']);
      }
      const later = await (await open(url)).collection({
        ...spec,
        name: 'notes0',
        indexes: [['body', 'rank'], ...spec.indexes],
      });
      expect(await later.insert(note('again', { rank: 0 })), 'the unique one holds').to.equal('duplicate');
      expect(await later.many({ body: '' }, { sort: 'rank' })).to.be.an('array');
      expect(log.of('store.away')).to.deep.equal([]);
    });

    it('rejects an invalid URL', async () => {
      expect(await failure(open('http://127.0.0.1/'))).to.be.instanceOf(Error);
    });

    const kind = mongoKind();
    if (kind !== 'url' && kind)
      describe('with an unreliable server', () => {
        let server: MongoServer;
        let own: MongoProcess;
        /** An operation that may take 700 ms is over by then, with the time that a busy machine takes to notice. */
        const IN_TIME_MS = 3000 * PATIENCE;
        const unique: CollectionSpec<Note> = { ...notes, unique: [['body']] };

        beforeEach(async () => {
          server = await startMongo(kind);
          if (!server.process) throw new Error('not ours to kill');
          own = server.process;
        });
        afterEach(async () => {
          own.resume();
          for (const database of opened.splice(0)) await database.close();
          await server.stop();
        });

        const timed = async (work: Promise<unknown>) => {
          const from = performance.now();
          return { error: await failure(work), ms: performance.now() - from };
        };

        it('is unavailable in time when it is killed, available when it is back, and logs each once', async () => {
          const database = await open(server.url('postern'), 700);
          const rows = await database.collection(unique);
          await rows.insert(note('1', { body: 'kept' }));
          await own.kill();
          for (const work of [() => rows.one({ id: '1' }), () => rows.insert(note('2')), () => database.ping()]) {
            const { error, ms } = await timed(work());
            expect(error).to.be.instanceOf(StoreAway);
            expect(ms).to.be.below(IN_TIME_MS);
          }
          await own.start();
          await until('the store to be back', async () => (await failure(database.ping())) === undefined);
          if (!lacks(server.kind, 'a disk'))
            expect(await rows.one({ id: '1' })).to.deep.equal(note('1', { body: 'kept' }));
          expect(
            ['store.connected', 'store.away', 'store.back'].map(
              (event) => log.lines.filter((line) => line.event === event).length,
            ),
          ).to.deep.equal([1, 1, 1]);
        });

        it('is unavailable in time when it hangs, with 20 operations running', async () => {
          const rows = await (await open(server.url('postern'), 700)).collection(unique);
          await rows.insert(note('1', { body: 'kept' }));
          await own.halt();
          const outcomes = await Promise.all(Array.from({ length: 20 }, () => timed(rows.one({ id: '1' }))));
          expect(outcomes.filter(({ error, ms }) => !(error instanceof StoreAway) || ms >= IN_TIME_MS)).to.deep.equal(
            [],
          );
          own.resume();
          await until('the store to be back', async () => (await failure(rows.one({ id: '1' }))) === undefined);
          expect(log.of('store.away')).to.have.length(1);
        });

        it('opens without a server, and creates its indexes when there is one', async () => {
          await own.kill();
          const database = await open(server.url('postern'), 300);
          const rows = await database.collection(unique);
          expect(await failure(rows.insert(note('1', { body: 'same' })))).to.be.instanceOf(StoreAway);
          expect(await failure(database.ping())).to.be.instanceOf(StoreAway);
          await own.start();
          await until('the store to be there', async () => (await failure(database.ping())) === undefined);
          expect(
            await until('an insert', async () => rows.insert(note('1', { body: 'same' })).catch(() => undefined)),
          ).to.be.oneOf(['inserted', 'duplicate']);
          expect(await rows.insert(note('2', { body: 'same' }))).to.equal('duplicate');
          expect(log.lines.map(({ event }) => event)).to.deep.equal(['store.away', 'store.back']);
        });

        it('is permanently unavailable once it is closed, also without a server', async () => {
          await own.kill();
          const database = await open(server.url('postern'), 300);
          const rows: Collection<Row> = await database.collection({ name: 'notes', indexes: [], dates: [] });
          const asked = failure(rows.one({ id: '1' }));
          await database.close();
          expect(await asked).to.be.instanceOf(StoreAway);
          expect(await failure(rows.one({ id: '1' }))).to.be.instanceOf(StoreAway);
        });
      });
  });
