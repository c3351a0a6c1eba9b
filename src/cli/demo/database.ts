import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants, existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { Db, MongoClient } from 'mongodb';
import { errorText } from '../../base/errors.ts';
import { type Io, Unavailable } from '../command.ts';
import type { Cleanup } from './cleanup.ts';
import { freePort } from './free-port.ts';

const CACHE = join(import.meta.dirname, '../../../node_modules/.cache');
/**
 * The folder of SecantusDB after it is fetched: a server in Python over WiredTiger. It is GPL: it runs as a process of
 * its own on a developer's machine, and is not installed or shipped with Postern.
 */
export const SECANTUS = join(CACHE, 'postern-secantus');
/** Also later ones of 0.7, including beta versions, because the named version is one. */
const SECANTUS_VERSION = 'secantusdb~=0.7.0b3';

/** Arguments of python3 that install SecantusDB into a folder of its own. */
export const pipInstall = (folder: string): readonly string[] => [
  ...['-m', 'pip', 'install', '--quiet', '--no-input', '--disable-pip-version-check', '--root-user-action=ignore'],
  ...['--target', folder, SECANTUS_VERSION],
];

/** Commands that start a server whose data is in `dir`. */
export const SERVERS = {
  mongod: (dir: string, port: number): readonly string[] => [
    'mongod',
    ...['--bind_ip', '127.0.0.1', '--port', String(port)],
    ...['--dbpath', dir, '--nounixsocket'],
  ],
  secantus: (dir: string, port: number): readonly string[] => [
    'python3',
    join(SECANTUS, 'bin/secantusd-py'),
    '--host=127.0.0.1',
    `--port=${port}`,
    `--storage-path=${dir}`,
    '--cache-size=128M',
    '--log-level=ERROR',
    '--enable-test-commands',
  ],
} as const;

/** The path of a program; undefined if it is not in PATH. */
export function onPath(program: string, path: string | undefined): string | undefined {
  const files = (path ?? '').split(delimiter).map((dir) => join(dir, program));
  return files.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

export const URL_FORM = /^(mongodb(?:\+srv)?:\/\/)((?:[^@/]*@)?)([^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/;

/** A MongoDB URL with another database in it; `at` is another address to reach the server at. */
export function urlWithDatabase(url: string, database: string, at?: string): string {
  const [, scheme = '', login = '', hosts = '', own = '', query = ''] = URL_FORM.exec(url) ?? [];
  const params = new URLSearchParams(query);
  if (login !== '' && !params.has('authSource')) params.set('authSource', own || 'admin');
  if (at !== undefined) params.set('directConnection', 'true');
  return `${at === undefined ? scheme : 'mongodb://'}${login}${at ?? hosts}/${database}?${params}`;
}

/** How long a server may take to start, and to answer. Milliseconds. */
const START_MS = 60_000;
const ANSWER_MS = 5000;
const FETCH_MS = 600_000;

const HOW =
  'several hosts need a database with the protocol of MongoDB: set MONGODB_URL, install mongod, or install python3 ' +
  'with pip in a clone of the sources, where the demo fetches SecantusDB by itself';

/** A database for the demo: its name for people, and its URL. It ends with the demo. */
export async function openDemoDatabase(
  folder: string,
  cleanup: Cleanup,
  io: Io,
  ending: AbortSignal,
): Promise<{ readonly name: string; readonly url: string }> {
  const given = io.env['MONGODB_URL'];
  if (given) return openGiven(given, cleanup);
  if (onPath('mongod', io.env['PATH'])) return { name: 'mongod', url: await start('mongod', folder, cleanup, io) };
  if (!existsSync(SECANTUS)) await fetchSecantus(io, ending);
  return { name: 'SecantusDB', url: await start('secantus', folder, cleanup, io) };
}

/**
 * A database of its own on the server that the environment names, which is dropped at the end. If the demo is killed,
 * the next one drops it.
 */
async function openGiven(given: string, cleanup: Cleanup): Promise<{ name: string; url: string }> {
  if (!URL_FORM.test(given)) throw new Unavailable('MONGODB_URL is not a URL of MongoDB (mongodb://HOST:PORT/)');
  const { MongoClient } = await import('mongodb');
  const url = urlWithDatabase(given, `postern_demo_${randomBytes(6).toString('hex')}`);
  const client = new MongoClient(url, { serverSelectionTimeoutMS: ANSWER_MS });
  try {
    await client.db().command({ ping: 1 });
  } catch (error) {
    await client.close();
    throw new Unavailable(`the server of MONGODB_URL does not answer: ${errorText(error)}`);
  }
  await mark(client);
  await sweep(client).catch(() => undefined);
  let marking = Promise.resolve();
  const timer = setInterval(() => {
    marking = mark(client).catch(() => undefined);
  }, MARK_MS);
  cleanup.add(async () => {
    clearInterval(timer);
    await marking;
    await client.db().dropDatabase();
    await client.close();
  });
  return { name: 'the server of MONGODB_URL', url };
}

const OURS = /^postern_demo_[\da-f]{12}$/;
/** The collection that a running demo writes the time into, by the clock of the server. */
const MARKS = 'demo';
const MARK = { name: 'runs' };
const MARK_MS = 60_000;
const LEFT_MS = 3_600_000;

async function mark(client: MongoClient): Promise<void> {
  await client
    .db()
    .collection(MARKS)
    .updateOne(MARK, { $currentDate: { at: true } }, { upsert: true });
}

/** Drops the databases of demos that were killed: those without a mark within the hour. A server may not allow it. */
async function sweep(client: MongoClient): Promise<void> {
  const { databases } = await client.db().admin().listDatabases({ nameOnly: true });
  const now = await markedAt(client.db());
  for (const { name } of databases) {
    const at = OURS.test(name) ? await markedAt(client.db(name)) : undefined;
    if (now && at && now.getTime() - at.getTime() > LEFT_MS) await client.db(name).dropDatabase();
  }
}

async function markedAt(db: Db): Promise<Date | undefined> {
  const at: unknown = (await db.collection(MARKS).findOne(MARK))?.['at'];
  return at instanceof Date ? at : undefined;
}

/** Fetches into a temporary folder, so that an interrupted fetch leaves nothing. */
async function fetchSecantus(io: Io, signal: AbortSignal): Promise<void> {
  if (!onPath('python3', io.env['PATH'])) throw new Unavailable(HOW);
  const made = `${SECANTUS}.${io.pid}`;
  try {
    await mkdir(CACHE, { recursive: true });
    accessSync(CACHE, constants.W_OK);
    io.out(`Fetching SecantusDB, a database for tests, by pip into ${CACHE} (once)\n`);
    await promisify(execFile)('python3', pipInstall(made), { timeout: FETCH_MS, env: toEnv(io), signal });
    await rename(made, SECANTUS);
  } catch (error) {
    const reason = error instanceof Error ? error.message.trim().split('\n').at(-1) : String(error);
    throw new Unavailable(`${HOW} (${reason})`);
  } finally {
    await rm(made, { recursive: true, force: true });
  }
}

async function start(kind: keyof typeof SERVERS, folder: string, cleanup: Cleanup, io: Io): Promise<string> {
  const dir = join(folder, 'database');
  await mkdir(dir);
  const port = await freePort();
  const [program = '', ...args] = SERVERS[kind](dir, port);
  // Not in our process group: Ctrl-C is for the demo, which ends the hosts first.
  const child = spawn(program, args, { stdio: 'ignore', detached: true, env: { ...toEnv(io), PYTHONPATH: SECANTUS } });
  cleanup.addProcess(child, 'SIGKILL');
  let isRunning = true;
  for (const end of ['error', 'exit'])
    child.once(end, () => {
      isRunning = false;
    });
  const until = performance.now() + START_MS;
  while (!(await answers(port))) {
    if (!isRunning || performance.now() > until) throw new Unavailable(`${program} does not start. ${HOW}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return `mongodb://127.0.0.1:${port}/postern`;
}

const toEnv = ({ env }: Io): Record<string, string> =>
  Object.fromEntries(Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));

/** Whether a server listens on a port of 127.0.0.1. */
export async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  const isUp = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isUp;
}
