import { expect } from 'chai';
import { withCircuitBreaker } from '../../../src/store/driver/circuit-breaker.ts';
import { type Collection, type Database, type Row, StoreAway, StoreFull } from '../../../src/store/driver/port.ts';
import { createTestClock } from '../../support/clock.ts';
import { failure, type Note, note, notes } from '../../support/store-notes.ts';
import { until } from '../../support/until.ts';

type Way = 'read' | 'write';

describe('a store that is known to be away', () => {
  const clock = createTestClock();
  /** What each way does now: it answers, it fails, or it hangs. */
  let now: Record<Way, 'answers' | 'hangs' | Error>;
  let asked: Record<Way, number>;
  let database: Database;
  let rows: Collection<Note>;

  const act = async (way: Way): Promise<undefined> => {
    asked[way]++;
    const state = now[way];
    if (state === 'hangs') return new Promise<never>(() => {});
    if (state !== 'answers') throw state;
    return undefined;
  };
  const away = new StoreAway('no answer');
  const fake = <R extends Row>(): Collection<R> => ({
    one: () => act('read'),
    many: () => act('read').then(() => []),
    insert: () => act('write').then(() => 'inserted'),
    insertAll: () => act('write').then(() => []),
    change: () => act('write'),
    add: (id, _, fresh) => act('write').then(() => Object.assign({ id }, fresh) as unknown as R),
    remove: () => act('write'),
    removeAll: () => act('write').then(() => 0),
  });

  beforeEach(async () => {
    now = { read: 'answers', write: 'answers' };
    asked = { read: 0, write: 0 };
    database = await withCircuitBreaker(
      {
        collection: async () => fake(),
        left: () => Infinity,
        ping: () => act('write'),
        close: async () => undefined,
      },
      { clock },
    );
    rows = await database.collection(notes);
  });
  afterEach(() => database.close());

  const OPERATIONS: Readonly<Record<Way, readonly (() => Promise<unknown>)[]>> = {
    read: [() => rows.one({ id: '1' }), () => rows.many({})],
    write: [
      () => rows.insert(note('1')),
      () => rows.change({ id: '1' }, { rank: 1 }),
      () => rows.add('1', { rank: 1 }, { account: 'a', rank: 0, body: '' }),
      () => rows.remove({ id: '1' }),
      () => rows.insertAll([note('1')]),
      () => rows.removeAll({ id: '1' }),
      () => database.ping(),
    ],
  };
  const ALL = [...OPERATIONS.read, ...OPERATIONS.write];

  /** The first operation that fails, and the first probe after it. */
  const goAway = async (...ways: Way[]) => {
    for (const way of ways) now[way] = away;
    const [first] = OPERATIONS[ways[0] ?? 'read'];
    expect(await failure(first?.() ?? Promise.resolve())).to.equal(away);
    await until('the probe', () => asked[ways[0] ?? 'read'] >= 2);
  };

  it('fails every operation at once, without a query', async () => {
    await goAway('read', 'write');
    asked = { read: 0, write: 0 };
    for (const operation of ALL) expect(await failure(operation())).to.be.instanceOf(StoreAway);
    expect(asked).to.deep.equal({ read: 0, write: 0 });
  });

  it('is probed in the background, and is available again when it answers, without a call', async () => {
    await goAway('read');
    asked.read = 0;
    await clock.advance(5000);
    expect(asked.read).to.be.within(9, 10);
    now.read = 'answers';
    await clock.advance(500);
    asked.read = 0;
    for (const operation of ALL) expect(await failure(operation())).to.equal(undefined);
    expect(asked.read).to.equal(2);
    await clock.advance(60_000);
    expect(asked.read, 'no probe any more').to.equal(2);
  });

  it('still reads when only writes fail, and does not write when reads fail', async () => {
    await goAway('write');
    asked = { read: 0, write: 0 };
    for (const operation of OPERATIONS.read) expect(await failure(operation())).to.equal(undefined);
    for (const operation of OPERATIONS.write) expect(await failure(operation())).to.be.instanceOf(StoreAway);
    expect(asked).to.deep.equal({ read: 2, write: 0 });
  });

  it('is not away for a failure of one operation: others wait for the probe, and run', async () => {
    now.read = away;
    const first = failure(rows.one({ id: '1' }));
    now.read = 'answers';
    const others = OPERATIONS.read.map((operation) => failure(operation()));
    expect([await first, ...(await Promise.all(others))]).to.deep.equal([away, undefined, undefined]);
  });

  it('delays callers only for a moment while the first probe hangs', async () => {
    now.read = away;
    const first = rows.one({ id: '1' });
    now.read = 'hangs';
    await failure(first);
    const waiting = ALL.map((operation) => failure(operation()));
    await clock.advance(50);
    for (const outcome of await Promise.all(waiting)) expect(outcome).to.be.instanceOf(StoreAway);
  });

  it('is not away when its disk is full, or when it answers with a fault', async () => {
    for (const error of [new StoreFull(), new Error('a fault')]) {
      now.write = error;
      expect(await failure(rows.insert(note('1')))).to.equal(error);
      now.write = 'answers';
      asked.write = 0;
      expect(await failure(rows.insert(note('1')))).to.equal(undefined);
      expect(asked.write, 'no probe').to.equal(1);
    }
  });

  it('is not queried after it is closed', async () => {
    await goAway('read');
    await database.close();
    asked.read = 0;
    await clock.advance(5000);
    expect(asked.read).to.equal(0);
  });
});
