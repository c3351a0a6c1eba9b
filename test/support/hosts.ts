import { type Clock, systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { openMongo } from '../../src/store/driver/mongo.ts';
import { createSignInLink } from '../../src/store/rows/people.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { type ChildDaemon, spawnDaemon } from './child.ts';
import { postern, type Ran } from './command.ts';
import { type Browser, createBrowser } from './console.ts';
import { createCaller, KEY, startDaemon, type TestDaemon } from './daemon.ts';
import { mongoServer, newDatabaseName } from './database.ts';
import { createTestLog } from './log.ts';
import { type MailServer, startMailServer } from './mail-server.ts';
import { type MongoProxy, startMongoProxy } from './mongo-proxy.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import { tempDir } from './temp.ts';
import { PATIENCE } from './until.ts';
import { startZone, type Zone, type ZoneRecords } from './zone.ts';

/** One of the hosts that share a store: its spool stays when it stops. */
export interface Host extends Pick<TestDaemon, 'api' | 'ask' | 'base' | 'log' | 'smtp' | 'submission'> {
  /** Where its queue is. */
  readonly dir: string;
  /** Its wire to the store. */
  readonly store: Pick<MongoProxy, 'cut' | 'mend' | 'commands' | 'failNext'>;
  /** What waits in its queue or was given up there, as `postern queue list …options` shows it. */
  queue(...options: string[]): Promise<any[]>;
  /** Runs `postern …argv` on its data, and on the store by its wire. */
  cli(...argv: string[]): Promise<Ran>;
  down(): Promise<void>;
  up(): Promise<void>;
}

export interface Hosts {
  readonly a: Host;
  readonly b: Host;
  readonly server: MailServer;
  readonly hook: Receiver;
  readonly zone: Zone;
  /** Their store, opened by the test. */
  readonly rows: Store;
  /** Runs `postern …argv` on the store of both. */
  cli(...argv: string[]): Promise<Ran>;
  /** The same on the host whose data is in `dir`. */
  cliIn(dir: string, ...argv: string[]): Promise<Ran>;
  /** A third host, as a process of its own that can be killed; with the same `dir` it is the same one. */
  spawn(dir: string, env?: Readonly<Record<string, string>>): Promise<ChildDaemon & Pick<Host, 'api' | 'ask'>>;
  /** Subjects that the server of to.test has got so far. */
  arrived(): string[];
  stop(): Promise<void>;
}

/** What the DNS has at first. */
export const RECORDS: ZoneRecords = {
  'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
  'mx.to.test': { A: ['127.0.0.1'] },
};

/**
 * Two whole daemons, each with a spool of its own, over one MongoDB-protocol server; to.test takes the mail that they
 * send.
 */
export async function startHosts(
  env: Readonly<Record<string, string>> = {},
  /** What B understands of rows, if it is an older version. */
  features?: readonly string[],
  /** Settings of each. */
  own: (name: 'a' | 'b') => Readonly<Record<string, string>> = () => ({}),
  clockOf: (name: 'a' | 'b') => Clock = () => systemClock,
): Promise<Hosts> {
  const server = await startMailServer();
  const hook = await startReceiver();
  const zone = await startZone(RECORDS);
  const mongo = await mongoServer();
  const database = newDatabaseName();
  const cliDir = await tempDir();
  const settings = {
    POSTERN_DNS__SERVERS: zone.server,
    POSTERN_DNS__TIMEOUT_MS: '5000',
    POSTERN_OUTBOUND__MX_PORT: String(server.port),
    POSTERN_MAIL__MX_PORT: String(server.port),
    POSTERN_PUBLIC_URL: 'https://postern.test',
    POSTERN_OUTBOUND__MTA_STS: 'false',
    POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50',
    ...env,
  };
  const [a, b] = [await startHost('a'), await startHost('b')];
  const opened = { url: mongo.url(database), timeoutMs: 5000 * PATIENCE };
  const rows = await openStore(await openMongo(opened, { log: createTestLog(), clock: systemClock }));

  async function startHost(name: 'a' | 'b'): Promise<Host & { stop(): Promise<void> }> {
    const dir = await tempDir();
    const store = await startMongoProxy(mongo.address);
    const url = mongo.url(database, store.address);
    const begin = () =>
      startDaemon(
        {
          ...settings,
          POSTERN_HOSTNAME: `${name}.postern.test`,
          POSTERN_STORE__URL: url,
          ...own(name),
        },
        { dir, clock: clockOf(name), ...(name === 'b' && features && { features }) },
      );
    let running: TestDaemon | undefined = await begin();
    const daemon = () => {
      if (!running) throw new Error(`${name} is down`);
      return running;
    };
    const down = async () => {
      await running?.stop();
      running = undefined;
    };
    const cli = (...argv: string[]) => postern(argv, { POSTERN_STORE__URL: url, POSTERN_DATA_DIR: dir });
    return {
      dir,
      store,
      down,
      cli,
      queue: async (...options) => (await cli('queue', 'list', '--json', ...options)).json(),
      get base() {
        return daemon().base;
      },
      get smtp() {
        return daemon().smtp;
      },
      get submission() {
        return daemon().submission;
      },
      get log() {
        return daemon().log;
      },
      api: (path, params) => daemon().api(path, params),
      ask: (path, params) => daemon().ask(path, params),
      async up() {
        running = await begin();
      },
      async stop() {
        store.mend();
        await down();
        await store.close();
      },
    };
  }

  const spawned: ChildDaemon[] = [];
  return {
    a,
    b,
    server,
    hook,
    zone,
    rows,
    cli: (...argv) => postern(argv, { POSTERN_STORE__URL: mongo.url(database), POSTERN_DATA_DIR: cliDir }),
    cliIn: (dir, ...argv) => postern(argv, { POSTERN_STORE__URL: mongo.url(database), POSTERN_DATA_DIR: dir }),
    async spawn(dir, more = {}) {
      const child = await spawnDaemon(dir, {
        ...settings,
        POSTERN_HOSTNAME: 'c.postern.test',
        POSTERN_STORE__URL: mongo.url(database),
        ...more,
      });
      spawned.push(child);
      return { ...child, ...createCaller(child.base, KEY) };
    },
    arrived: () => server.mails.map(({ raw }) => /^Subject: (.*?)\r?$/m.exec(raw)?.[1] ?? ''),
    async stop() {
      // Only a test that failed leaves one.
      await Promise.all(spawned.filter((child) => child.running()).map((child) => child.end('SIGKILL')));
      await Promise.all([a.stop(), b.stop()]);
      await rows.close();
      await Promise.all([server.stop(), hook.stop(), zone.stop()]);
    },
  };
}

/** An operator at the console of a host. */
export async function operatorAt({ rows }: Pick<Hosts, 'rows'>, { base }: Pick<Host, 'base'>): Promise<Browser> {
  const token = await createSignInLink(rows, null, { clock: systemClock, ids: createIds(systemClock) });
  const browser = createBrowser(Number(new URL(base).port));
  await browser.press(`/console/enter/${token}`);
  return browser;
}

/** In the API's time format, this number of seconds from now; whole ones, so up to one more. */
export function inSeconds(seconds: number): string {
  return new Date(Date.now() + seconds * 1000 + 999).toISOString().slice(0, 19).replace('T', ' ');
}

/** What a message of the tests may have beside its subject: `message` as in the call, the rest beside that. */
export interface More {
  readonly send_at?: string;
  readonly ip_pool?: string;
  readonly message?: object;
}

/** Has a host send a message to to.test, and answers its id. */
export async function send(host: Pick<Host, 'api'>, subject: string, more: More = {}): Promise<string> {
  return (await submit(host, subject, more))._id;
}

/** The same, and answers the record of its recipient. */
export async function submit(
  { api }: Pick<Host, 'api'>,
  subject: string,
  { message, ...rest }: More = {},
): Promise<any> {
  const [sent] = await api('/messages/send', {
    message: { from_email: 'news@sender.test', subject, text: 'x', to: [{ email: 'jo@to.test' }], ...message },
    ...rest,
  });
  return sent;
}
