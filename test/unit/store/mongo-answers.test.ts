import { Socket } from 'node:net';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { openMongo } from '../../../src/store/driver/mongo.ts';
import { type Database, StoreAway } from '../../../src/store/driver/port.ts';
import { createTestLog } from '../../support/log.ts';
import { emptyAnswer, type ScriptedMongo, startScriptedMongo } from '../../support/mongo-scripted.ts';
import { failure, note, notes } from '../../support/store-notes.ts';
import { PATIENCE, until } from '../../support/until.ts';

/** A heartbeat, which is not the hello of a new connection: that says which client it is. */
const HEARTBEAT = /hello(?!.*client)/is;

describe('the store on a server that speaks MongoDB', () => {
  let server: ScriptedMongo;
  let opened: Database | undefined;
  beforeEach(async () => {
    server = await startScriptedMongo();
  });
  afterEach(async () => {
    await opened?.close();
    await server.stop();
  });

  const open = async (
    options = '',
    pool: { maxConnections?: number; idleMs?: number } = {},
    timeoutMs = 5000 * PATIENCE,
  ) => {
    opened = await openMongo(
      { url: `${server.url}${options}`, timeoutMs, ...pool },
      { log: createTestLog(), clock: systemClock },
    );
    return opened.collection(notes);
  };

  it('is away while the server reports that its own database is: code 1', async () => {
    const rows = await open();
    expect(await rows.one({ id: '1' })).to.equal(undefined);
    server.answer(() => ({ ok: 0, code: 1, codeName: 'InternalError', errmsg: 'dial tcp: connection refused' }));
    for (const work of [
      () => rows.one({ id: '1' }),
      () => rows.many({}),
      () => rows.insert(note('1')),
      () => rows.change({ id: '1' }, { rank: 1 }),
      () => rows.add('1', { rank: 1 }, { account: 'a', rank: 0, body: '' }),
      () => rows.remove({ id: '1' }),
      () => rows.insertAll([note('1')]),
      () => rows.removeAll({ id: '1' }),
      () => opened?.ping(),
    ])
      expect(await failure(Promise.resolve(work()))).to.be.instanceOf(StoreAway);
    server.answer(() => ({ ok: 0, code: 9, codeName: 'FailedToParse', errmsg: 'a fault of ours' }));
    expect(await failure(rows.one({ id: '1' }))).to.not.be.instanceOf(StoreAway);
    server.answer(emptyAnswer);
    expect(await rows.one({ id: '1' })).to.equal(undefined);
  });

  it('is found again although the driver waits for ever on a socket that closed before its heartbeat', async () => {
    const write = Socket.prototype.write;
    let isHung = false;
    // When many connections are cut at once, this happens by itself in a third of the cases.
    Socket.prototype.write = function (this: Socket, ...args: any[]) {
      if (!isHung && this.remotePort === Number(new URL(server.url).port) && HEARTBEAT.test(String(args[0]))) {
        isHung = true;
        this.destroy();
      }
      return write.apply(this, args as any);
    };
    try {
      const rows = await open('?heartbeatFrequencyMS=500', {}, 200);
      await rows.one({ id: '1' });
      await until('the heartbeat', () => isHung);
      server.hangUp();
      await until('the server to be found', () =>
        rows.one({ id: '1' }).then(
          () => true,
          () => false,
        ),
      );
    } finally {
      Socket.prototype.write = write;
    }
  });

  it('judges each of several documents by its own error, and none if any result is unknown', async () => {
    const rows = await open();
    const all = [note('1'), note('2'), note('3')];
    const error = (index: number, code: number) => ({ index, code, errmsg: `error ${code}` });
    const answerWith = (more: object) =>
      server.answer((command) => (command === 'insert' ? { n: 1, ok: 1, ...more } : emptyAnswer(command)));
    answerWith({ writeErrors: [error(0, 11000), error(2, 121)] });
    expect(await rows.insertAll(all)).to.deep.equal(['duplicate', 'inserted', 'refused']);
    for (const unknown of [
      { writeErrors: [error(1, 11602)] },
      { writeErrors: [error(0, 11000)], writeConcernError: { code: 64, errmsg: 'waiting for replication timed out' } },
      { n: 3, writeConcernError: { code: 64, errmsg: 'waiting for replication timed out' } },
      { ok: 0, code: 10107, errmsg: 'not primary' },
    ]) {
      answerWith(unknown);
      expect(await failure(rows.insertAll(all)), JSON.stringify(unknown)).to.be.instanceOf(StoreAway);
    }
    answerWith({ ok: 0, code: 9, errmsg: 'a fault of ours' });
    expect(await failure(rows.insertAll(all))).to.not.be.instanceOf(StoreAway);
    server.answer((command) => (command === 'delete' ? { n: 2, ok: 1 } : emptyAnswer(command)));
    expect(await rows.removeAll({ rank: 1 })).to.equal(2);
  });

  it('sorts by the unique index that it searches by, and else breaks ties by the id', async () => {
    await open();
    const rows = await opened?.collection({ ...notes, indexes: [['rank']], unique: [['account', 'body']] });
    const sorts: unknown[] = [];
    server.answer((command, { sort }) => {
      if (command === 'find') sorts.push(sort);
      return emptyAnswer(command);
    });
    const page = { account: 'a', body: { range: { gt: 'x' } } };
    await rows?.many(page, { sort: 'body', limit: 5 });
    await rows?.many(page, { sort: '-body', limit: 5 });
    await rows?.many({ ...page, account: { in: ['a', 'b'] } }, { sort: 'body', limit: 5 });
    await rows?.many({ account: 'a' }, { sort: 'rank', limit: 5 });
    expect(sorts).to.deep.equal([{ body: 1 }, { body: -1 }, { body: 1, _id: 1 }, { rank: 1, _id: 1 }]);
  });

  /** The most connections during a hundred searches, of which the first five were answered late. */
  const burst = async (...given: Parameters<typeof open>) => {
    const rows = await open(...given);
    await rows.one({ id: '1' });
    let held = 0;
    server.answer((command) => (command === 'find' && held++ < 5 ? undefined : emptyAnswer(command)));
    const searches = Array.from({ length: 100 }, () => failure(rows.one({ id: '1' })));
    await until('five of them to wait', () => held >= 5);
    const peak = server.peak();
    await opened?.close();
    await Promise.all(searches);
    return peak;
  };

  it('opens no more connections than it may', async () => {
    expect(await burst('', { maxConnections: 5 })).to.be.within(5, 7); // and those that watch the server
  });

  it('lets the URL say how many', async () => {
    expect(await burst('?maxPoolSize=5', { maxConnections: 50 })).to.be.within(5, 7);
  });

  it('closes the connections of a burst when they are idle', async () => {
    const rows = await open('', { maxConnections: 20, idleMs: 200 });
    await Promise.all(Array.from({ length: 100 }, () => rows.one({ id: '1' })));
    expect(server.connections()).to.be.above(3);
    await until('the idle ones to be closed', () => server.connections() <= 2);
    expect(await rows.one({ id: '1' })).to.equal(undefined);
  });
});
