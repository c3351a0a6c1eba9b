import { join } from 'node:path';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createPrometheus } from '../../../src/base/prometheus.ts';
import type { Task } from '../../../src/base/service.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { measured } from '../../../src/store/driver/measured.ts';
import {
  type CollectionSpec,
  type Database,
  DuplicateRow,
  type Filter,
  type Row,
  StoreAway,
} from '../../../src/store/driver/port.ts';
import { openStore } from '../../../src/store/store.ts';
import { createLeases } from '../../../src/tasks/lease.ts';
import { createScheduler } from '../../../src/tasks/scheduler.ts';
import { createTestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { readScrape } from '../../support/metrics.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { tempDir } from '../../support/temp.ts';

interface Thing extends Row {
  readonly name: string;
}
const THINGS: CollectionSpec<Thing> = { name: 'things', indexes: [], dates: [] };

/** A database that fails on request. */
async function openFailing() {
  const real = await openEmbedded(
    { file: join(await tempDir(), 'store.db'), timeoutMs: 5000, room: NO_FLOOR },
    { log: createTestLog(), clock: systemClock },
  );
  let failure: Error | undefined;
  const database: Database = {
    ...real,
    async collection<R extends Row>(spec: CollectionSpec<R>) {
      const rows = await real.collection(spec);
      return { ...rows, one: (filter: Filter<R>) => (failure ? Promise.reject(failure) : rows.one(filter)) };
    },
  };
  return {
    database,
    fail(error: Error | undefined) {
      failure = error;
    },
  };
}

function start() {
  const clock = createTestClock();
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  return { clock, metrics, read: async () => readScrape(await metrics.text()) };
}

describe('store metrics', () => {
  it('distinguish unavailable, failed and negative results of operations', async () => {
    const { clock, metrics, read } = start();
    const { database, fail } = await openFailing();
    const things = await measured(database, { clock, metrics }).collection(THINGS);
    const ask = () =>
      things.one({ id: 'x' }).then(
        () => 'answered',
        (error: Error) => error.name,
      );
    expect(await ask()).to.equal('answered');
    fail(new StoreAway('away'));
    expect(await ask()).to.equal('StoreAway');
    expect((await read()).of('postern_store_away')).to.equal(1);
    fail(new Error('broken'));
    expect(await ask()).to.equal('Error');
    fail(new DuplicateRow('there'));
    expect(await ask()).to.equal('DuplicateRow');
    fail(undefined);
    await ask();
    const { of, sum } = await read();
    expect(of('postern_store_away')).to.equal(0);
    expect(of('postern_store_errors_total{operation="one",reason="away"}')).to.equal(1);
    expect(of('postern_store_errors_total{operation="one",reason="fault"}')).to.equal(1);
    expect(sum('postern_store_errors_total')).to.equal(2);
    expect(of('postern_store_operation_seconds_count{operation="one"}')).to.equal(5);
    await database.close();
  });
});

for (const driver of drivers)
  describe(`task metrics, ${driver.name}`, () => {
    it('show how often each ran, with what result, and its last success', async () => {
      const { clock, metrics, read } = start();
      const database = await driver.open();
      const store = await openStore(database);
      const ends: (() => Promise<undefined>)[] = [
        async () => undefined,
        () => Promise.reject(new Error('broken')),
        () => Promise.reject(new StoreAway('away')),
      ];
      const task: Task = { run: () => ends.shift()?.() ?? Promise.resolve(undefined) };
      const scheduler = createScheduler(
        { purge: task },
        { purge: '0 0 1 1 *' },
        {
          leases: createLeases({ holder: 'one' }, { store, clock }),
          clock,
          log: createTestLog(),
          metrics,
        },
      );
      const ranAt = clock.now() / 1000;
      for (let i = 0; i < 3; i++) {
        await scheduler.run('purge');
        await clock.advance(1000);
      }
      const { of } = await read();
      for (const result of ['done', 'failed', 'skipped'])
        expect(of(`postern_task_runs_total{task="purge",result="${result}"}`), result).to.equal(1);
      expect(of('postern_task_last_success_timestamp_seconds{task="purge"}')).to.equal(ranAt);
      expect(of('postern_task_seconds_count{task="purge"}')).to.equal(3);
      await scheduler.stop();
      await store.close();
    });
  });
