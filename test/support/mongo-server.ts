import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { freePort } from './free-port.ts';
import { place } from './place.ts';
import { until } from './until.ts';

/**
 * A real server for the suite of the store: what MONGODB_URL names, else a `mongod` on the PATH, else FerretDB (a server that
 * speaks MongoDB's protocol over SQLite) built from ferretdb/ with Go.
 *
 * What FerretDB 1.24 with SQLite does differently, so that the suite makes an exception for it:
 * - findAndModify is not atomic over several connections (database.ts, `crowded`);
 * - findAndModify that breaks a unique index fails with code 1 (InternalError) instead of 11000;
 * - lists in lists are refused.
 * It takes `writeConcern: { w: 'majority', j: true }` without a word, and says hello as a standalone server, so the driver
 * does not use retryable writes with it.
 */
export type MongoKind = 'url' | 'mongod' | 'ferretdb';

const FERRETDB = join(import.meta.dirname, 'ferretdb');
const BINARY = join(FERRETDB, 'ferretdb');

function onPath(program: string): string | undefined {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((dir) => join(dir, program));
  return places.find((place) => {
    try {
      accessSync(place, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Which server there is, without building anything. */
export function mongoKind(): MongoKind | undefined {
  if (process.env['MONGODB_URL']) return 'url';
  if (onPath('mongod')) return 'mongod';
  return existsSync(BINARY) ? 'ferretdb' : undefined;
}

/** Builds FerretDB where there is no server yet; throws when there is no way to one. Some minutes at the first time. */
export function requireMongo(): void {
  if (mongoKind()) return;
  if (!onPath('go')) throw new Error('no MONGODB_URL, no mongod on the PATH, and no Go to build FerretDB with');
  console.log('building FerretDB for the suite of the store (once)');
  execFileSync('go', ['build', '-p', '2', '-trimpath', '-buildvcs=false', '-o', BINARY, '.'], { cwd: FERRETDB, stdio: 'inherit' });
}

/** A server that runs; a process of ours can be killed, halted and started again on the same port and files. */
export interface MongoServer {
  readonly kind: MongoKind;
  /** A URL with `database` in it; `at` is another address to reach the server at (a proxy). */
  url(database: string, at?: string): string;
  readonly address: { readonly host: string; readonly port: number };
  /** Null when the process is not ours. */
  readonly process: MongoProcess | null;
  stop(): Promise<void>;
}

export interface MongoProcess {
  kill(): Promise<void>;
  start(): Promise<void>;
  halt(): void;
  resume(): void;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => { socket.destroy(); resolve(true); });
    socket.once('error', () => resolve(false));
  });
}

function createProcess(kind: 'mongod' | 'ferretdb', dir: string, port: number): MongoProcess {
  let child: ChildProcess | undefined;
  const command = kind === 'mongod'
    ? ['mongod', '--bind_ip', '127.0.0.1', '--port', String(port), '--dbpath', dir, '--nounixsocket']
    : [BINARY, '-listen', `127.0.0.1:${port}`, '-dir', dir];
  process.once('exit', () => child?.kill('SIGKILL')); // a run that is broken off leaves no server behind
  return {
    async start() {
      child = spawn(command[0] ?? '', command.slice(1), { stdio: 'ignore' });
      await until(`${kind} to listen`, () => answers(port));
    },
    async kill() {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const gone = new Promise((resolve) => child?.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
    },
    halt() { child?.kill('SIGSTOP'); },
    resume() { child?.kill('SIGCONT'); },
  };
}

const URL_FORM = /^(mongodb(?:\+srv)?:\/\/)((?:[^@/]*@)?)([^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/;

function named(url: string, database: string, at?: string): string {
  const [, scheme = '', login = '', hosts = '', own = '', query = ''] = URL_FORM.exec(url) ?? [];
  const params = new URLSearchParams(query);
  if (login !== '' && !params.has('authSource')) params.set('authSource', own || 'admin');
  if (at !== undefined) params.set('directConnection', 'true');
  return `${at === undefined ? scheme : 'mongodb://'}${login}${at ?? hosts}/${database}?${params}`;
}

/** Starts the server that there is. */
export async function startMongo(kind: MongoKind): Promise<MongoServer> {
  const given = process.env['MONGODB_URL'];
  if (kind === 'url' && given) {
    const [host = '', port = '27017'] = (URL_FORM.exec(given)?.[3] ?? '').split(',')[0]?.split(':') ?? [];
    return { kind, address: { host, port: Number(port) }, process: null, url: (database, at) => named(given, database, at), stop: async () => {} };
  }
  const own = kind === 'mongod' ? kind : 'ferretdb';
  const dir = await mkdtemp(join(place(), 'postern-mongo-'));
  const port = await freePort();
  const server = createProcess(own, dir, port);
  await server.start();
  return {
    kind: own,
    address: { host: '127.0.0.1', port },
    process: server,
    url: (database, at) => named(`mongodb://127.0.0.1:${port}/`, database, at),
    async stop() {
      await server.kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
