import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { type Counter, type Metrics, NO_METRICS } from '../base/metrics.ts';
import type { Exposition } from '../base/prometheus.ts';
import type { Service } from '../base/service.ts';
import { type AccountRow, createKeyCheck, type KeyCheckSettings } from '../store/rows/accounts.ts';
import type { Store } from '../store/store.ts';
import type { UsageMeter } from '../store/usage.ts';
import { createAccountParts, type OperationDeps, type OperationSettings } from './account.ts';
import { type AccountLimitSettings, createAccountLimits } from './account-limits.ts';
import { createApp, operationAt } from './app.ts';
import { type BodySettings, createBodyReader } from './body.ts';
import { createClientAddress, createDoor, type DoorSettings } from './door.ts';
import { missing, refusal } from './errors.ts';
import { createExportFiles, type ExportFileSettings } from './export-files.ts';
import type { Operation } from './operation.ts';
import { OPERATIONS } from './operations/index.ts';
import { createMetricsPage, createPages, type PageDeps } from './pages.ts';
import { paramsOf } from './parameters.ts';
import { createTrackPages, type Tracking } from './track-pages.ts';
import { createVerifyPage } from './verify-page.ts';

export interface ApiSettings extends OperationSettings, BodySettings, DoorSettings, KeySettings, ExportFileSettings {
  /** Where to listen, or a socket that was handed over (systemd). */
  readonly listen: { readonly host: string; readonly port: number } | { readonly fd: number };
  readonly limits: AccountLimitSettings;
  /** How the outside reaches us, without a final slash; empty: links are relative. */
  readonly publicUrl: string;
  /** Who may read /metrics: addresses or networks. */
  readonly metricsAllow: readonly string[];
  /** Of Postern. */
  readonly version: string;
}

export interface ApiDeps
  extends Omit<OperationDeps, 'limits'>,
    Omit<PageDeps, 'operations' | 'exportFiles' | 'verifyPage' | 'trackPages' | 'metricsPage'> {
  readonly tracking: Tracking;
  /** What accounts have in the store. */
  readonly meter: UsageMeter;
  /** Without it nothing is counted, and there is no /metrics. */
  readonly metrics?: (Metrics & Exposition) | undefined;
}

/** The HTTP side: the API, its reference and the health checks. */
export interface Api extends Service {
  /** Where it listens. Throws before `start`. */
  address(): { readonly host: string; readonly port: number };
  readonly handler: RequestListener;
  /**
   * Runs an operation for an account without a key and without HTTP, as an operator does on the command line, by the
   * same rules. Answers the record, or the whole of a list; throws `Refusal`.
   */
  run(path: string, account: AccountRow, params: Readonly<Record<string, unknown>>): Promise<unknown>;
}

// Slow clients: none of these limits is met by a client that works.
const HEADERS_MS = 10_000;
/** How often the server looks who is too slow. */
const CHECK_MS = 2_000;
/** Above the deadlines for bodies (body.ts), which answer with words; this one cuts off what slipped past them. */
const REQUEST_MS = 180_000;
const KEEP_ALIVE_MS = 65_000; // longer than the 60 s of usual proxies, so that they close first
const MAX_HEADER_BYTES = 16_384;
const MAX_CONNECTIONS = 2_000;
/** How long calls in progress may take to end once we stop. */
const STOP_MS = 10_000;
const SWEEP_MS = 20;

export function createApi(settings: ApiSettings, deps: ApiDeps): Api {
  const body = createBodyReader(settings, deps);
  const clientAddress = createClientAddress(settings.trustedProxies);
  const limits = createAccountLimits(settings.limits, deps);
  const partsOf = createAccountParts(settings, { ...deps, limits });
  const operations = new Map<string, Operation>(OPERATIONS.map((operation) => [operation.path, operation]));
  const app = createApp({
    operations: OPERATIONS,
    body,
    keys: createKeyReader(settings, deps),
    limits,
    clientAddress,
    partsOf,
    pages: createPages(settings, {
      ...deps,
      operations: OPERATIONS,
      exportFiles: createExportFiles(settings, deps),
      verifyPage: createVerifyPage(deps.senderDomains),
      trackPages: createTrackPages(deps.tracking, clientAddress),
      metricsPage: createMetricsPage(settings, deps.metrics),
    }),
    meters: createCallMeters(
      OPERATIONS.map(({ path }) => path),
      deps.metrics ?? NO_METRICS,
    ),
    clock: deps.clock,
    log: deps.log,
  });
  const koa = app.callback();
  const door = createDoor(settings, { ...deps, clientAddress });
  const handler: RequestListener = (req, res) => {
    req.url = originForm(req.url ?? '/');
    if (door.admits(req, res)) void koa(req, res);
  };
  const server = createBoundedServer(handler);
  server.on('connection', door.knock);
  refuseBeforeContinue(server, handler, operations, body.tooLarge);

  return frozen({
    handler,
    async run(path, account, params) {
      const operation = operations.get(path);
      if (!operation) throw refusal('Unknown_Operation', `There is no operation ${path}`);
      const answer = await operation.run(paramsOf(params), partsOf(account));
      if (!('pages' in answer)) return answer.record;
      const records: unknown[] = [];
      for await (const page of answer.pages) records.push(...page);
      return records;
    },
    address: () => addressOf(server),
    async start() {
      await listen(server, settings.listen);
      deps.log.info('api.listening', { ...addressOf(server) });
    },
    stop: () => stop(server),
  });
}

function createBoundedServer(handler: RequestListener): Server {
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
  server.maxConnections = MAX_CONNECTIONS;
  return server;
}

/** The path and query of a request target. A proxy's absolute form may hold a host that URL parsers throw at. */
function originForm(target: string): string {
  const path = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  return path.startsWith('/') ? path : `/${path}`;
}

/** A client that asks before it sends (RFC 9110 section 10.1.1) is told at once when its body is too large. */
function refuseBeforeContinue(
  server: Server,
  handler: RequestListener,
  operations: ReadonlyMap<string, Operation>,
  tooLarge: (length: string | undefined, large: boolean) => boolean,
): void {
  const isLarge = (req: IncomingMessage) => operationAt(req.url ?? '', operations)?.large ?? false;
  server.on('checkContinue', (req, res) => {
    if (tooLarge(req.headers['content-length'], isLarge(req))) res.setHeader('Connection', 'close');
    else res.writeContinue();
    handler(req, res);
  });
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
  // Not the clock of the parts: ending must not depend on time that a test has stopped.
  const force = setTimeout(() => server.closeAllConnections(), STOP_MS);
  // A connection that is kept alive becomes idle when its call ends, and nobody would tell it to close.
  const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
  await closed;
  clearTimeout(force);
  clearInterval(sweep);
}

export type KeySettings = KeyCheckSettings;

/** Finds the account of a key. A key that was revoked and one that never was are the same. */
export interface KeyReader {
  /** `apiKey` is the id of the key's row. Throws Invalid_Key, RequestLimitExceeded, or ValidationError when there is none. */
  accountOf(key: unknown, address: string): Promise<{ readonly account: AccountRow; readonly apiKey: string }>;
}

export function createKeyReader(
  settings: KeySettings,
  deps: { store: Pick<Store, 'keys' | 'accounts'>; clock: Clock; log: Log },
): KeyReader {
  const keys = createKeyCheck(settings, deps);
  return frozen({
    async accountOf(key, address) {
      if (key === undefined) throw missing('key');
      const found = await keys.check(key, address);
      if (found.kind === 'good') return { account: found.account, apiKey: found.id };
      if (found.kind === 'too-many') throw refusal('RequestLimitExceeded');
      deps.log.info('api.refused_key', { address });
      throw refusal('Invalid_Key');
    },
  });
}

/** What is counted of calls. */
export interface CallMeters {
  call(operation: string, status: number, ms: number): void;
  /** Somebody asked for an operation that there is not. */
  unknown(): void;
}

/** `operations`: the paths of all there are; no other is ever a value of a label. */
export function createCallMeters(operations: readonly string[], metrics: Metrics): CallMeters {
  const groupOf = (operation: string) => operation.split('/')[1] ?? '';
  const seconds = new Map(
    [...new Set(operations.map(groupOf))].map((group) => [
      group,
      metrics.histogram('postern_api_call_seconds', { group }),
    ]),
  );
  const calls = new Map<string, Map<number, Counter>>(operations.map((operation) => [operation, new Map()]));
  const unknown = metrics.counter('postern_api_calls_total', { operation: 'unknown', status: '404' });
  return frozen({
    call(operation, status, ms) {
      const statuses = calls.get(operation);
      if (!statuses) return;
      const counter =
        statuses.get(status) ?? metrics.counter('postern_api_calls_total', { operation, status: String(status) });
      statuses.set(status, counter);
      counter.add();
      seconds.get(groupOf(operation))?.observe(ms / 1000);
    },
    unknown: () => unknown.add(),
  });
}
