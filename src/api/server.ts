import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { promisify } from 'node:util';
import type { RouterMiddleware } from '@koa/router';
import { frozen } from '../base/frozen.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Exposition, Figures } from '../base/prometheus.ts';
import type { Service } from '../base/service.ts';
import type { AccountRow, KeyCheckSettings } from '../store/rows/accounts.ts';
import type { UsageMeter } from '../store/usage.ts';
import type { JsonText } from '../webhooks/message-views.ts';
import type { Pulling } from '../webhooks/pulling.ts';
import type { Tapping } from '../webhooks/tapping.ts';
import { type AccountParts, createAccountParts, type OperationDeps, type OperationSettings } from './account.ts';
import { type AccountLimitSettings, createAccountLimits } from './account-limits.ts';
import { createApp, type SessionCalls } from './app.ts';
import type { BodySettings } from './body.ts';
import { createBodyParser } from './body-parser.ts';
import { createClientAddress, createDoor, type DoorSettings } from './door.ts';
import { refusal } from './errors.ts';
import { createJobs, type Jobs } from './jobs.ts';
import type { Operation } from './operation.ts';
import { OPERATIONS } from './operations/index.ts';
import { createFiles, createPages, type PageDeps, type PageSettings } from './pages/index.ts';
import { paramsOf } from './parameters.ts';
import { createPeers, type PeerSettings, type Peers } from './peers.ts';

export interface ApiSettings
  extends OperationSettings,
    BodySettings,
    DoorSettings,
    KeyCheckSettings,
    PageSettings,
    PeerSettings {
  /** Where to listen, or a socket passed in by systemd. */
  readonly listen: { readonly host: string; readonly port: number } | { readonly fd: number };
  readonly limits: AccountLimitSettings;
}

export interface ApiDeps
  extends Omit<OperationDeps, 'limits' | 'jobs' | 'pulling' | 'tapping'>,
    Pick<PageDeps, 'health' | 'instance' | 'tracking' | 'linkedFiles'> {
  readonly pulling: OperationDeps['pulling'] & Pick<Pulling, 'stop'>;
  readonly tapping: OperationDeps['tapping'] & Pick<Tapping, 'stop'>;
  /** What accounts use in the store. */
  readonly meter: UsageMeter;
  /** The console, or undefined. */
  readonly attached: AttachedApp | undefined;
  readonly metrics: Metrics & Exposition & Pick<Figures, 'level'>;
  /** This host, and this process of it. */
  readonly member: { id(): string; readonly incarnation: string };
}

/** An app at the same server with paths of its own, which runs operations without a key: the console. */
export interface AttachedApp {
  /** Operations that only it runs, counted with the others. */
  readonly operations: readonly Pick<Operation, 'path'>[];
  open(services: ApiServices): { readonly middleware: RouterMiddleware; stop(): void };
}

/** The services of the API for an attached app. */
export interface ApiServices extends SessionCalls {
  /** Those of accounts. They also find a thing on another host. */
  readonly operations: readonly Operation[];
  /** Runs an operation for an account by its path, without a call; `person` is who does it. Throws `Refusal`. */
  readonly operate: (path: string, account: AccountRow, params: object, person?: string) => Promise<unknown>;
  /** The parts of an account. */
  readonly partsOf: (account: AccountRow) => AccountParts;
  readonly jobs: Jobs;
  readonly askHosts: Peers['hosts'];
  /** The address of the client, behind proxies too. */
  readonly clientAddress: (req: IncomingMessage) => string;
}

/** The HTTP server: the API, its reference and the health checks. */
export interface Api extends Service {
  /** Where it listens. Throws before `start`. */
  address(): { readonly host: string; readonly port: number };
  /** How many connections are open. */
  connections(): Promise<number>;
  readonly handler: RequestListener;
  /**
   * Runs an operation for an account without a key or HTTP but by the same rules, for operators on the command line.
   * Returns the record, or the whole list. Throws `Refusal`.
   */
  run(path: string, account: AccountRow, params: Readonly<Record<string, unknown>>): Promise<unknown>;
}

// Limits against slow clients; working clients never reach them.
const HEADERS_MS = 10_000;
/** How often the server checks for slow clients. */
const CHECK_MS = 2_000;
/** Longer than the deadlines for bodies (body.ts), which answer with an error; this one catches what they missed. */
const REQUEST_MS = 180_000;
const KEEP_ALIVE_MS = 65_000; // longer than the 60 s of usual proxies, so that they close first
const MAX_HEADER_BYTES = 16_384;
/** Connections beyond the limit of the door, which answers or closes them. */
const MORE_CONNECTIONS = 200;
/** How long calls in progress may take to finish after `stop`. */
const STOP_MS = 10_000;
const SWEEP_MS = 20;

export function createApi(settings: ApiSettings, deps: ApiDeps): Api {
  const clientAddress = createClientAddress(settings.trustedProxies);
  const limits = createAccountLimits(settings.limits, deps);
  const jobs = createJobs(deps);
  const parser = createBodyParser(deps);
  const partsOf = createAccountParts(settings, { ...deps, limits, jobs });

  const peers = createPeers(settings, {
    ...deps,
    operations: OPERATIONS,
    partsOf,
    files: createFiles(settings, deps),
  });
  const operations = OPERATIONS.map(peers.across);

  async function run(path: string, account: AccountRow, params: object, person?: string): Promise<unknown> {
    const operation = operations.find((one) => one.path === path);
    if (!operation) throw refusal('Unknown_Operation', `There is no operation ${path}`);
    const answer = await operation.run(paramsOf(params), partsOf(account, undefined, person));
    if ('text' in answer) return JSON.parse(await toText(answer.text.content));
    if (!('pages' in answer)) return answer.record;
    const records: unknown[] = [];
    for await (const page of answer.pages) records.push(...page);
    return records;
  }

  let stopAttached = () => {};
  const openAttached = ({ operations: own, open }: AttachedApp) => ({
    operations: own,
    middleware(calls: SessionCalls) {
      const opened = open({
        ...calls,
        operations,
        operate: run,
        partsOf: (account) => partsOf(account),
        jobs,
        askHosts: peers.hosts,
        clientAddress,
      });
      stopAttached = opened.stop;
      return opened.middleware;
    },
  });
  const app = createApp(settings, {
    ...deps,
    operations,
    limits,
    parser,
    clientAddress,
    partsOf,
    peers: peers.middleware,
    attached: deps.attached && openAttached(deps.attached),
    pages: createPages(settings, {
      ...deps,
      operations: OPERATIONS,
      clientAddress,
      fetchFile: peers.fetchFile,
      hasConsole: deps.attached !== undefined,
    }),
  });
  const koa = app.callback();
  const door = createDoor(settings, { ...deps, clientAddress });
  const handler: RequestListener = (req, res) => {
    req.url = originForm(req.url ?? '/');
    if (door.admits(req, res)) void koa(req, res);
  };
  const server = createBoundedServer(settings.maxConnections + MORE_CONNECTIONS, handler);
  server.on('connection', door.knock);
  // The body reader answers `Expect: 100-continue`.
  server.on('checkContinue', handler);

  return frozen({
    handler,
    run,
    address: () => addressOf(server),
    connections: () => promisify(server.getConnections.bind(server))(),
    async start() {
      await listen(server, settings.listen);
      deps.log.info('api.listening', { ...addressOf(server) });
    },
    async stop() {
      stopAttached();
      door.close();
      // First, so that jobs end while calls do; and again for one that such a call has started.
      void jobs.stop();
      deps.tapping.stop();
      // Calls that wait for mail are answered now.
      await deps.pulling.stop();
      await stop(server);
      await parser.stop();
      await jobs.stop();
    },
  });
}

async function toText(content: JsonText['content']): Promise<string> {
  return Buffer.concat(content instanceof Uint8Array ? [content] : await content.toArray()).toString();
}

function createBoundedServer(maxConnections: number, handler: RequestListener): Server {
  const server = createServer(
    {
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      connectionsCheckingInterval: CHECK_MS,
    },
    handler,
  );
  server.maxConnections = maxConnections;
  return server;
}

/**
 * The path and query of a request target. The absolute form that proxies send may hold a host on which URL parsers
 * throw.
 */
function originForm(target: string): string {
  const path = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  return path.startsWith('/') ? path : `/${path}`;
}

async function listen(server: Server, where: ApiSettings['listen']): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen('fd' in where ? { fd: where.fd } : { host: where.host, port: where.port }, () => {
    server.off('error', reject);
    resolve();
  });
  await promise;
}

function addressOf(server: Server): { host: string; port: number } {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the API does not listen on an address');
  return { host: address.address, port: address.port };
}

async function stop(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  // Not the injected clock: stopping must not depend on time that a test has stopped.
  const force = setTimeout(() => server.closeAllConnections(), STOP_MS);
  // A keep-alive connection becomes idle only when its call ends, and then must be closed here.
  const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
  await closed;
  clearTimeout(force);
  clearInterval(sweep);
}
