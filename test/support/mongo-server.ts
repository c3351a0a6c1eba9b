import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { delimiter, join } from 'node:path';
import {
  answers,
  onPath as findOnPath,
  pipInstall,
  SECANTUS,
  SERVERS,
  URL_FORM,
  urlWithDatabase,
} from '../../src/cli/demo/database.ts';
import { filesFolder } from './files-folder.ts';
import { freePort } from './free-port.ts';
import { PATIENCE, until } from './until.ts';

/**
 * A real server for the suite of the store: what MONGODB_URL names, else a `mongod` on the PATH, else SecantusDB (a
 * server in Python over WiredTiger, which pip installs), else FerretDB (one over SQLite, built from ferretdb/ with Go).
 * TEST_MONGO=secantus, ferretdb or java asks for one of these; `java` is mongo-java-server, whose jars Maven brings. What
 * servers that share no code agree on is the protocol's.
 *
 * SecantusDB says hello as the primary of a replica set of one: the driver uses retryable writes with it, it can step
 * down, and it fails commands on request (`failCommand`). It is GPL: it runs as a process of its own in the tests, and
 * is no part of what is installed or shipped.
 *
 * FerretDB 1.24 with SQLite takes `writeConcern: { w: 'majority', j: true }` without a word, and says hello as a
 * standalone server, so the driver does not use retryable writes with it. createIndexes of several indexes that are
 * there panics in it and ends the connection; the store sends one a command. What else they do differently, `lacks`
 * says.
 */
export type MongoKind = 'url' | 'mongod' | 'secantus' | 'ferretdb' | 'java';

/** What a server may not have that a case of the suite is about. */
type Lack =
  /** findAndModify is one step, whatever other connections do. */
  | 'atomic changes'
  /** Text is ordered by code points, and not by UTF-16 code units. */
  | 'code points'
  /** $inc of what is no number is an error. */
  | 'strict sums'
  /** Plans of MongoDB's form. */
  | 'plans'
  /** An answer in several batches. */
  | 'getMore'
  /** Rows outlive the process. */
  | 'a disk'
  /** A limit is one for the time that a search takes, too. */
  | 'quick limits';

const LACKS: Readonly<Record<MongoKind, readonly Lack[]>> = {
  url: [],
  mongod: [],
  secantus: ['plans'], // its planner takes one field of an index and sorts the rest
  ferretdb: ['atomic changes', 'plans', 'quick limits'], // and lists in lists; no row of ours has one
  // mongo-java-server 1.47
  java: ['atomic changes', 'code points', 'strict sums', 'plans', 'getMore', 'a disk', 'quick limits'],
};

/** Whether a case must be left out on this kind of store, because its server is known to be at fault. */
export function lacks(kind: MongoKind | 'embedded', what: Lack): boolean {
  return kind !== 'embedded' && LACKS[kind].includes(what);
}

const FERRETDB = join(import.meta.dirname, 'ferretdb');
const BINARY = join(FERRETDB, 'ferretdb');
const JAVA = join(import.meta.dirname, 'mongo-java');
/** Its jars and its class, compiled once, by what they are made of: Java would compile the source at every start. */
const MADE_OF = ['pom.xml', 'Server.java'].map((name) => readFileSync(join(JAVA, name)));
const CACHE = join(import.meta.dirname, '../../node_modules/.cache');
const JARS = join(
  CACHE,
  `postern-mongo-java-${createHash('sha256').update(Buffer.concat(MADE_OF)).digest('hex').slice(0, 8)}`,
);

const onPath = (program: string) => findOnPath(program, process.env['PATH']);

/** The servers that are built or fetched: where each is then. The first that can be had is taken. */
const FETCHED = { secantus: SECANTUS, ferretdb: BINARY, java: JARS } as const;
type Fetched = keyof typeof FETCHED;

function isFetched(name: string | undefined): name is Fetched {
  return name !== undefined && name in FETCHED;
}

/** Which server there is, without building anything. */
export function mongoKind(): MongoKind | undefined {
  const wanted = process.env['TEST_MONGO'];
  if (isFetched(wanted)) return existsSync(FETCHED[wanted]) ? wanted : undefined;
  if (process.env['MONGODB_URL']) return 'url';
  if (onPath('mongod')) return 'mongod';
  return (['secantus', 'ferretdb'] as const).find((kind) => existsSync(FETCHED[kind]));
}

/**
 * Builds or fetches the server where there is none yet; throws when there is no way to one. Some minutes at the first
 * time.
 */
export function requireMongo(): void {
  const wanted = process.env['TEST_MONGO'];
  if (isFetched(wanted)) return existsSync(FETCHED[wanted]) ? undefined : FETCH[wanted]();
  const kind = mongoKind();
  if (kind && kind !== 'ferretdb') return;
  try {
    fetchSecantus();
  } catch (error) {
    if (kind) return;
    console.log(`no SecantusDB: ${error instanceof Error ? error.message : error}`);
    buildFerretdb();
  }
}

const FETCH: Readonly<Record<Fetched, () => void>> = {
  secantus: fetchSecantus,
  ferretdb: buildFerretdb,
  java: fetchJava,
};

function buildFerretdb(): void {
  if (!onPath('go')) throw new Error('no MONGODB_URL, no mongod on the PATH, no pip, and no Go to build FerretDB with');
  console.log('building FerretDB for the suite of the store (once)');
  execFileSync('go', ['build', '-p', '2', '-trimpath', '-buildvcs=false', '-o', BINARY, '.'], {
    cwd: FERRETDB,
    stdio: 'inherit',
  });
}

/** With the packages that it needs, into a folder of its own, as the jars of the one in Java. */
function fetchSecantus(): void {
  if (!onPath('python3')) throw new Error('SecantusDB needs python3 with pip on the PATH');
  console.log('installing SecantusDB for the suite of the store (once)');
  const made = `${SECANTUS}.${process.pid}`;
  execFileSync('python3', pipInstall(made), {
    stdio: ['ignore', 'inherit', 'pipe'], // and pip speaks of other programs of this machine too
    timeout: 600_000,
  });
  moveInto(made, SECANTUS);
}

/** Into a folder beside its final one, so that a fetch that was cut off is none. */
function fetchJava(): void {
  if (!onPath('mvn') || !onPath('javac')) throw new Error('TEST_MONGO=java needs a JDK and mvn on the PATH');
  console.log('fetching mongo-java-server for the suite of the store (once)');
  const made = `${JARS}.${process.pid}`;
  const goal = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies';
  execFileSync('mvn', ['--batch-mode', '--quiet', '-f', join(JAVA, 'pom.xml'), goal, `-DoutputDirectory=${made}`], {
    stdio: 'inherit',
  });
  execFileSync('javac', ['-cp', join(made, '*'), '-d', made, join(JAVA, 'Server.java')], { stdio: 'inherit' });
  moveInto(made, JARS);
}

/** Another run may have fetched the same meanwhile. */
function moveInto(made: string, path: string): void {
  try {
    renameSync(made, path);
  } catch (error) {
    if (!existsSync(path)) throw error;
    rmSync(made, { recursive: true });
  }
}

/** A server that runs; a process of ours can be killed, halted and started again on the same port and files. */
export interface MongoServer {
  readonly kind: MongoKind;
  /** A URL with `database` in it; `at` is another address to reach the server at (a proxy). */
  url(database: string, at?: string): string;
  readonly address: { readonly host: string; readonly port: number };
  /** Null when the process is not ours. */
  readonly process: MongoProcess | null;
  /** Whether it stays until this process ends: with many files of tests, most of what Java does is starting. */
  readonly stays: boolean;
  stop(): Promise<void>;
}

export interface MongoProcess {
  kill(): Promise<void>;
  start(): Promise<void>;
  /**
   * Resolves when it has stopped: the signal is taken by one thread after the other, and a question may still be
   * answered.
   */
  halt(): Promise<void>;
  resume(): void;
}

/** It runs for seconds: what the compiler and the collector of a long life would do costs more than it brings. */
const SHORT_LIVED = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto'];

const COMMANDS: Readonly<Record<Exclude<MongoKind, 'url'>, (dir: string, port: number) => readonly string[]>> = {
  ...SERVERS,
  ferretdb: (dir, port) => [BINARY, '-listen', `127.0.0.1:${port}`, '-dir', dir],
  java: (_dir, port) => [
    'java',
    '-Xmx1g',
    ...SHORT_LIVED,
    '-cp',
    [JARS, join(JARS, '*')].join(delimiter),
    'Server',
    String(port),
  ],
};

function createProcess(kind: Exclude<MongoKind, 'url'>, dir: string, port: number): MongoProcess {
  let child: ChildProcess | undefined;
  const command = COMMANDS[kind](dir, port);
  const kill = () => child?.kill('SIGKILL');
  return {
    async start() {
      process.once('exit', kill); // a run that is broken off leaves no server behind
      child = spawn(command[0] ?? '', command.slice(1), {
        stdio: ['pipe', 'ignore', 'ignore'],
        env: { ...process.env, PYTHONPATH: SECANTUS },
      });
      // It may run until this process ends, and must not keep it from that.
      child.unref();
      if (child.stdin instanceof Socket) child.stdin.unref();
      await until(`${kind} to listen`, () => answers(port), 30_000 * PATIENCE);
    },
    async kill() {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const gone = new Promise((resolve) => child?.once('exit', resolve));
      kill();
      await gone;
      process.off('exit', kill);
    },
    async halt() {
      child?.kill('SIGSTOP');
      await until(`${kind} to stand still`, () => standsStill(child?.pid));
    },
    resume() {
      child?.kill('SIGCONT');
    },
  };
}

/** Whether every thread of a process is stopped; unknown without /proc. */
function standsStill(pid: number | undefined): boolean {
  if (pid === undefined || !existsSync(`/proc/${pid}/task`)) return true;
  return readdirSync(`/proc/${pid}/task`).every((thread) =>
    /\) T /.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8')),
  );
}

/** Starts the server that there is. */
export async function startMongo(kind: MongoKind): Promise<MongoServer> {
  const given = process.env['MONGODB_URL'];
  if (kind === 'url' && given) {
    const [host = '', port = '27017'] = (URL_FORM.exec(given)?.[3] ?? '').split(',')[0]?.split(':') ?? [];
    return {
      kind,
      address: { host, port: Number(port) },
      process: null,
      stays: true,
      url: (database, at) => urlWithDatabase(given, database, at),
      stop: async () => {},
    };
  }
  const own = kind === 'url' ? 'ferretdb' : kind;
  const dir = await mkdtemp(join(filesFolder(), 'postern-mongo-'));
  const port = await freePort();
  const server = createProcess(own, dir, port);
  await server.start();
  return {
    kind: own,
    address: { host: '127.0.0.1', port },
    process: server,
    stays: own === 'java',
    url: (database, at) => urlWithDatabase(`mongodb://127.0.0.1:${port}/`, database, at),
    async stop() {
      await server.kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
