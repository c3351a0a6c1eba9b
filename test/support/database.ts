import { randomBytes } from 'node:crypto';
import { MongoClient } from 'mongodb';
import { systemClock } from '../../src/base/clock.ts';
import type { Log } from '../../src/base/log.ts';
import { openMongo } from '../../src/store/driver/mongo.ts';
import type { CollectionSpec, Database, Row } from '../../src/store/driver/port.ts';
import { afterFile } from './cleanup.ts';
import { createTestLog } from './log.ts';
import { lacks, type MongoKind, type MongoServer, mongoKind, startMongo } from './mongo-server.ts';
import { borrowDatabase } from './shared-database.ts';
import { PATIENCE } from './until.ts';

/** A driver of the store and a way to an empty database of its own. */
export interface TestDriver {
  readonly name: string;
  /** What the server behind it is, for the few things that a compatible server lacks. */
  readonly kind: 'embedded' | MongoKind;
  open(options?: OpenOptions): Promise<Database>;
}

interface OpenOptions {
  readonly log?: Log;
  /**
   * For many writers of one row. FerretDB 1.24 and mongo-java-server 1.47 read, change and write a document without a
   * lock, so findAndModify on one document from several connections loses updates; there, and only there, such a
   * database gets a single connection.
   */
  readonly crowded?: boolean;
}

/** Of this one there is always an empty database, whichever store is tested. */
export const embedded: TestDriver = {
  name: 'embedded',
  kind: 'embedded',
  open: ({ log = createTestLog() } = {}) => borrowDatabase(log),
};

const kind = mongoKind();
/** Suites that run once for each store set the current one. */
const only = process.env['TEST_STORE'];
let server: Promise<MongoServer> | undefined;
const databases: string[] = [];

/** The one server of this file, or of this process, started when first asked for. */
export function mongoServer(): Promise<MongoServer> {
  if (!kind) throw new Error('no server');
  return (server ??= startMongo(kind));
}

/** A name for a database that is dropped after the run. */
export function newDatabaseName(): string {
  const name = `postern_test_${randomBytes(6).toString('hex')}`;
  databases.push(name);
  return name;
}

const mongo: TestDriver | undefined = kind && {
  name: `MongoDB (${kind})`,
  kind,
  async open({ log = createTestLog(), crowded = false } = {}) {
    const url = (await mongoServer()).url(newDatabaseName());
    return openMongo(
      { url: crowded && lacks(kind, 'atomic changes') ? `${url}maxPoolSize=1` : url, timeoutMs: 5000 * PATIENCE },
      { log, clock: systemClock },
    );
  },
};

/** Every driver that can run here, or the one that was asked for. */
export const drivers: readonly TestDriver[] = (mongo ? [embedded, mongo] : [embedded]).filter(
  ({ name }) => !only || name.startsWith(only),
);
if (drivers.length === 0) throw new Error(`there is no store ${only} here`);

/** Undefined when there is no server, or it is not its turn. */
export const mongoDriver = only === embedded.name ? undefined : mongo;

/** The same declaration under a name that no other test uses. */
export function ofItsOwn<R extends Row>(spec: CollectionSpec<R>): CollectionSpec<R> {
  return { ...spec, name: `${spec.name}_${randomBytes(4).toString('hex')}` };
}

afterFile(async () => {
  const running = await server;
  if (!running?.stays) {
    server = undefined;
    return running?.stop();
  }
  const client = new MongoClient(running.url('admin'));
  for (const name of databases.splice(0)) await client.db(name).dropDatabase();
  await client.close();
});
