import { join } from 'node:path';
import { expect } from 'chai';
import { MongoClient } from 'mongodb';
import { systemClock } from '../../../src/base/clock.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import { openMongo, toMongoFilter, toMongoSort } from '../../../src/store/driver/mongo.ts';

import { createStage, startStages } from '../../support/contract/stage.ts';
import { ENTRIES } from '../../support/contract/table.ts';
import { mongoDriver, mongoServer, newDatabaseName } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { lacks } from '../../support/mongo-server.ts';
import { isServed, planFaults, planOf } from '../../support/plans.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { runTasks } from '../../support/run-tasks.ts';
import { tempDir } from '../../support/temp.ts';
import { PATIENCE } from '../../support/until.ts';
import { type Usage, watchUsages } from '../../support/usages.ts';

// Every query of the application has an index, so that it is as fast with a million rows.

/** These are read whole, on purpose; and an account has one request for an address at most, for a day at most. */
const WHOLE = /^(?:(?:inbound_domains|inbound_routes|accounts|leases|revisions|hosts) where anything|ip_requests )/;

describe('every filter and order that operations and tasks use', function () {
  this.timeout(60_000);
  let file: string;
  let usages: readonly Usage[];

  before(async () => {
    file = join(await tempDir(), 'store.db');
    const watched = watchUsages(
      await openEmbedded(
        { file, timeoutMs: 5000 * PATIENCE, room: NO_FLOOR },
        { log: createTestLog(), clock: systemClock },
      ),
    );
    const world = await startStages(undefined, { database: async () => watched.database });
    const stage = await createStage(world);
    // One after the other: some prepare their account by taking all its addresses away.
    for (const { path, given, errors } of ENTRIES) {
      for (const make of [given, ...Object.values(errors)]) await stage.call(path, await make(stage));
    }
    await world.clock.advance(100 * 86_400_000); // everything that can fall due has
    await runTasks(world);
    await world.stop();
    usages = [...watched.usages.values()].filter(({ name }) => !WHOLE.test(name));
  });

  it('was recorded', () => {
    expect(usages.length).to.be.above(30);
  });

  it('is served by an index of the embedded store', () => {
    const slow = usages.flatMap((usage) =>
      planFaults(usage, planOf(file, usage)).map((line) => `${usage.name}: ${line}`),
    );
    expect(slow).to.deep.equal([]);
  });

  it('is served by a declared index', () => {
    expect(usages.filter((usage) => !isServed(usage)).map(({ name }) => name)).to.deep.equal([]);
  });

  // Where there are no plans of MongoDB's kind, the declared indexes above have to do.
  if (mongoDriver && !lacks(mongoDriver.kind, 'plans'))
    it('is served by an index of MongoDB', async () => {
      const url = (await mongoServer()).url(newDatabaseName());
      const database = await openMongo(
        { url, timeoutMs: 5000 * PATIENCE },
        { log: createTestLog(), clock: systemClock },
      );
      const client = await new MongoClient(url).connect();
      for (const { spec, name, terms, slice, openOn } of usages) {
        await openOn(database);
        const command = {
          find: spec.name,
          filter: toMongoFilter(terms),
          sort: new Map(toMongoSort(slice, terms, spec.unique)),
          ...(slice.limit === null ? {} : { limit: Math.max(1, slice.limit) }),
        };
        const stages = JSON.stringify(
          (await client.db().command({ explain: command, verbosity: 'queryPlanner' }))['queryPlanner'].winningPlan,
        );
        expect(stages, name)
          .to.match(/IXSCAN|IDHACK|EXPRESS/)
          .and.to.not.match(/COLLSCAN|"SORT"/);
      }
      await client.close();
      await database.close();
    });
});
