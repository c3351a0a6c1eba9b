import { spawn } from 'node:child_process';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { type Database, filterTerms, StoreAway, toSlice } from '../../../src/store/driver/port.ts';

import { changeSql, removeSql, selectSql } from '../../../src/store/driver/sql.ts';
import { type Shape, shapeOf } from '../../../src/store/driver/values.ts';
import { openStore } from '../../../src/store/store.ts';
import { createTestLog } from '../../support/log.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { failure, note, notes } from '../../support/store-notes.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import { startedThreads, type WarmWorker } from '../../support/warm-threads.ts';

describe('the embedded store', () => {
  let file: string;
  let log: ReturnType<typeof createTestLog>;
  const opened: Database[] = [];

  const open = async (timeoutMs = 10_000) => {
    const database = await openEmbedded({ file, timeoutMs, room: NO_FLOOR }, { log, clock: systemClock });
    opened.push(database);
    return database;
  };

  beforeEach(async () => {
    file = join(await tempDir(), 'deep', 'store.db');
    log = createTestLog();
  });
  afterEach(async () => {
    for (const database of opened.splice(0)) await database.close();
  });

  it('writes ahead with a full sync, to a file that only its owner can read', async () => {
    await open();
    expect(log.of('store.connected').map(({ fields }) => fields)).to.deep.equal([
      { driver: 'embedded', journal: 'wal', synchronous: 'full' },
    ]);
    expect((await stat(file)).mode & 0o777).to.equal(0o600);
    expect((await stat(`${file}-wal`)).mode & 0o777).to.equal(0o600);
  });

  it('reports a file that is not a database', async () => {
    file = join(await tempDir(), 'store.db');
    await writeFile(file, 'this is a text and not a database, and long enough to be looked at as one'.repeat(50));
    const error = await failure(open());
    expect(error).to.be.instanceOf(StoreAway);
    expect(String(error)).to.contain('not a database').and.to.contain(file);
  });

  it('keeps its rows when it is opened again', async () => {
    const first = await open();
    await (await first.collection(notes)).insert(note('1', { body: 'kept' }));
    await first.close();
    expect(await (await (await open()).collection(notes)).one({ id: '1' })).to.deep.equal(note('1', { body: 'kept' }));
  });

  it('lets concurrent writes share a sync', async () => {
    const rows = await (await open()).collection(notes);
    const before = commitsIn(await readFile(`${file}-wal`));
    await Promise.all(Array.from({ length: 200 }, (_, i) => rows.insert(note(`n${i}`))));
    const commits = commitsIn(await readFile(`${file}-wal`)) - before;
    expect(commits).to.be.within(1, 20);
  });

  it('has every acknowledged row after repeated kills of its process', async () => {
    const acknowledged: string[] = [];
    for (let round = 0; round < 3; round++) {
      const child = spawn(
        process.execPath,
        [join(import.meta.dirname, '../../support/store-writer.ts'), 'insert', file, `r${round}`],
        {
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      );
      const exit = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      await until('rows to be written', () => text.length > 4000);
      child.kill('SIGKILL');
      expect(await exit).to.equal('SIGKILL');
      acknowledged.push(...text.split('\n').slice(0, -1));
    }
    const rows = await (await open()).collection(notes);
    const found = new Set((await rows.many({})).map(({ id }) => id));
    expect(acknowledged.length).to.be.above(600);
    expect(acknowledged.filter((id) => !found.has(id))).to.deep.equal([]);
  }).timeout(60_000);

  it('shares its file with another process that writes at the same time', async () => {
    const rows = await (await open()).collection(notes);
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, '../../support/store-writer.ts'), 'add', file, '100'],
      {
        stdio: 'inherit',
      },
    );
    const exit = new Promise((resolve) => child.once('exit', resolve));
    await until('the other process to write', async () => (await rows.one({ id: 'sum' })) !== undefined);
    for (let i = 0; i < 100; i++) await rows.add('sum', { rank: 1 }, { account: 'a', rank: 0, body: '' });
    expect(await exit).to.equal(0);
    expect((await rows.one({ id: 'sum' }))?.rank).to.equal(200);
  }).timeout(60_000);

  it('is unavailable while another process locks the file for too long, and logs the start and end once', async () => {
    const rows = await (await open(150)).collection(notes);
    const other = new DatabaseSync(file);
    other.exec('BEGIN IMMEDIATE');
    const errors = await Promise.all([1, 2, 3].map((i) => failure(rows.insert(note(`n${i}`)))));
    expect(errors.every((error) => error instanceof StoreAway)).to.equal(true);
    other.exec('ROLLBACK');
    other.close();
    await until('the store to be back', async () => (await failure(rows.insert(note('after')))) === undefined);
    expect(log.of('store.away')).to.have.length(1);
    expect(log.of('store.back')).to.have.length(1);
  });

  it('fails pending operations when its thread dies, and starts another', async () => {
    const threads: WarmWorker[] = [];
    const seen = (thread: WarmWorker) => {
      threads.push(thread);
    };
    startedThreads.on('thread', seen);
    const rows = await (await open()).collection(notes);
    await rows.insert(note('before'));
    const asked = Array.from({ length: 20 }, (_, i) => failure(rows.insert(note(`n${i}`))));
    await threads[0]?.terminate();
    for (const error of await Promise.all(asked))
      expect(error === undefined || error instanceof StoreAway).to.equal(true);
    expect(await rows.insert(note('after'))).to.equal('inserted');
    expect(await rows.one({ id: 'before' })).to.deep.equal(note('before'));
    expect(threads).to.have.length(2);
    startedThreads.off('thread', seen);
  });

  it('finishes pending operations before it closes, and is unavailable afterwards', async () => {
    const database = await open();
    const rows = await database.collection(notes);
    const asked = Array.from({ length: 20 }, (_, i) => rows.insert(note(`n${i}`)));
    await database.close();
    expect(await Promise.all(asked)).to.deep.equal(Array.from({ length: 20 }, () => 'inserted'));
    expect(await failure(rows.one({ id: 'n1' }))).to.be.instanceOf(StoreAway);
    await database.close();
  });

  it('finds by an index for every declared query, in order without sorting', async () => {
    const declared: Declared[] = [];
    const database = await open();
    await openStore({
      ...database,
      collection(spec) {
        declared.push({ shape: shapeOf(spec), indexes: [['id'], ...spec.indexes, ...(spec.unique ?? [])] });
        return database.collection(spec);
      },
    });
    const sqlite = new DatabaseSync(file, { readOnly: true });
    const plans = declared.flatMap((collection) =>
      statementsOf(collection).map((sql) => ({
        sql,
        steps: sqlite
          .prepare(`EXPLAIN QUERY PLAN ${sql}`)
          .all()
          .map(({ detail }) => String(detail)),
      })),
    );
    sqlite.close();
    expect(plans.length).to.be.above(50);
    const slow = plans.filter(
      ({ steps }) =>
        steps.some((step) => /TEMP B-TREE/.test(step) || (/^SCAN/.test(step) && !/^SCAN json_each/.test(step))) ||
        !steps.some((step) => /^SEARCH/.test(step)),
    );
    expect(slow).to.deep.equal([]);
  });
});

interface Declared {
  readonly shape: Shape;
  readonly indexes: readonly (readonly string[])[];
}

/** What each declared index is there for: equality on its first fields, a condition on the next, order by the last. */
function statementsOf({ shape, indexes }: Declared): string[] {
  const value = (field: string) => (shape.dates.has(field) ? new Date(0) : 'x');
  const select = (filter: object, sort?: string) =>
    selectSql(shape, filterTerms(shape, filter), toSlice(shape, { limit: 9, ...(sort ? { sort } : {}) })).sql;
  const conditions = (field: string) => [
    value(field),
    { in: [value(field)] },
    { range: { gte: value(field) } },
    { range: { lt: value(field) } },
    ...(shape.dates.has(field) ? [] : [{ startsWith: 'x' }]),
    ...(field === 'id' ? [] : [null, { in: [value(field), null] }]),
  ];
  return indexes.flatMap((fields) =>
    fields.flatMap((field, i) => {
      const equal = Object.fromEntries(fields.slice(0, i).map((name) => [name, value(name)]));
      const terms = filterTerms(shape, { ...equal, [field]: value(field) });
      const sorted =
        i < fields.length - 1
          ? []
          : i > 0
            ? [select(equal, field), select(equal, `-${field}`)]
            : [select({ [field]: { range: { gt: value(field) } } }, `-${field}`)];
      return [
        ...conditions(field).map((condition) => select({ ...equal, [field]: condition })),
        ...sorted,
        changeSql(shape, terms, { x: 1 }).sql,
        removeSql(shape, terms).sql,
      ];
    }),
  );
}

/**
 * Commits in a write-ahead log (sqlite.org/fileformat2.html section 4.1): frames that name the size of the database
 * after them.
 */
function commitsIn(log: Buffer): number {
  const frame = 24 + (log.length > 32 ? log.readUInt32BE(8) : 0);
  let commits = 0;
  for (let at = 32; at + frame <= log.length; at += frame) if (log.readUInt32BE(at + 4) > 0) commits++;
  return commits;
}
