import type { IncomingMessage, RequestListener } from 'node:http';
import { type SecureContext, TLSSocket } from 'node:tls';
import type { RouterMiddleware } from '@koa/router';
import { frozen } from '../../base/frozen.ts';
import type { Metrics } from '../../base/metrics.ts';
import type { Exposition, Figures } from '../../base/prometheus.ts';
import type { AccountRow, KeyCheckSettings } from '../../store/rows/accounts.ts';
import type { UsageMeter } from '../../store/usage.ts';
import type { JsonText } from '../../webhooks/message-views.ts';
import type { Pulling } from '../../webhooks/pulling.ts';
import type { Tapping } from '../../webhooks/tapping.ts';
import {
  type AccountParts,
  createAccountParts,
  type OperationDeps,
  type OperationSettings,
} from '../account/account.ts';
import { type AccountLimitSettings, createAccountLimits } from '../account/account-limits.ts';
import { createJobs } from '../account/jobs.ts';
import { refusal } from '../errors.ts';
import { READ_BACKLOG, readBacklogSummary } from '../hosts/backlog-summary.ts';
import {
  createHostDeliveries,
  LIST_DELIVERIES,
  LIST_ENDPOINT_STATES,
  SHOW_DELIVERY,
} from '../hosts/host-deliveries.ts';
import { createHostHistory, FIND_MAIL, FIND_REFUSALS, SHOW_MAIL } from '../hosts/host-history.ts';
import { CHANGE_QUEUE, createHostQueue, FIND_JOBS, type HostQueue, LIST_ENDPOINTS } from '../hosts/host-queue.ts';
import { type RpcHandler, rpcHandler } from '../hosts/host-rpc.ts';
import { createPeers, type PeerSettings, type Peers } from '../hosts/peers.ts';
import { type Operation, wholeOf } from '../operation.ts';
import { OPERATIONS } from '../operations/index.ts';
import { createFiles, createPages, type PageDeps, type PageSettings } from '../pages/index.ts';
import type { BodySettings } from '../requests/body.ts';
import { createBodyParser } from '../requests/body-parser.ts';
import { paramsOf } from '../requests/parameters.ts';
import { createApp, type SessionCalls } from './app.ts';
import { addressOf, createBoundedServer, type ListenTarget, listenOn, stopServer } from './bounded-server.ts';
import { type ConnectionLimitSettings, createClientAddress, createConnectionLimits } from './connection-limits.ts';
import { createHttpsListener } from './https.ts';
import { createRedirect, type RedirectSettings } from './redirect.ts';

export interface ApiSettings
  extends OperationSettings,
    BodySettings,
    ConnectionLimitSettings,
    KeyCheckSettings,
    PageSettings,
    PeerSettings,
    RedirectSettings {
  readonly listen: ListenTarget;
  /** Where to listen with TLS. */
  readonly secureListen: readonly ListenTarget[];
  readonly limits: AccountLimitSettings;
  /** Whether operators see From, Subject and Message-ID (journal.subjects). */
  readonly keepsHeaders: boolean;
}

export interface ApiDeps
  extends Omit<OperationDeps, 'limits' | 'jobs' | 'pulling' | 'tapping'>,
    Pick<PageDeps, 'health' | 'instance' | 'tracking' | 'linkedFiles' | 'policyAt'> {
  readonly pulling: OperationDeps['pulling'] & Pick<Pulling, 'stop'>;
  readonly tapping: OperationDeps['tapping'] & Pick<Tapping, 'stop'>;
  /** The storage that accounts use. */
  readonly meter: UsageMeter;
  /** Further answers to other hosts about this host and all accounts, besides those about its queue and history. */
  readonly hostAnswers: readonly RpcHandler[];
  /** The console, or undefined. */
  readonly attached: AttachedApp | undefined;
  readonly metrics: Metrics & Exposition & Pick<Figures, 'level'>;
  /** Our names with their certificates, and the answers to ACME challenges. */
  readonly certificates: {
    readonly contextFor: (name: string) => SecureContext | undefined;
    readonly isOurs: (name: string) => boolean;
    readonly answerTo: (token: string) => Promise<string | undefined>;
  };
  /** This host, and this process of it. */
  readonly member: { id(): string; readonly incarnation: string };
}

/** An app on the same server with paths of its own, which runs operations without a key: the console. */
export interface AttachedApp {
  /** Its own operations, counted with the others. */
  readonly operations: readonly Pick<Operation, 'path'>[];
  open(services: ApiServices): { readonly middleware: RouterMiddleware; stop(): void };
}

/** The services of the API that an attached app uses. */
export interface ApiServices extends SessionCalls {
  /** The operations of accounts. They also find a thing on another host. */
  readonly operations: readonly Operation[];
  /** Runs an operation for an account by its path, without a request. `person`: the actor. Throws `Refusal`. */
  readonly operate: (path: string, account: AccountRow, params: object, person?: string) => Promise<unknown>;
  /** The parts of an account. */
  readonly partsOf: (account: AccountRow) => AccountParts;
  /** The queue of this host, for operators. */
  readonly queue: HostQueue;
  readonly otherHosts: Peers['others'];
  /** The address of the client, behind proxies too. */
  readonly clientAddress: (req: IncomingMessage) => string;
}

/** The HTTP server: the API, its reference and the health checks. */
export type Api = ReturnType<typeof createApi>;

export function createApi(settings: ApiSettings, deps: ApiDeps) {
  const clientAddress = createClientAddress(settings.trustedProxies);
  const limits = createAccountLimits(settings.limits, deps);
  const jobs = createJobs(deps);
  const parser = createBodyParser(deps);
  const partsOf = createAccountParts(settings, { ...deps, limits, jobs });
  const queue = createHostQueue({ ...deps, jobs });
  const { keepsHeaders } = settings;
  const deliveries = createHostDeliveries({ keepsHeaders, hasScanners: deps.scanning !== undefined }, deps);
  const history = createHostHistory({
    ...deps,
    waitsFor: async ({ id }) => (await deliveries.one({ id }))[0]?.delivery.record.waits ?? null,
  });

  const peers = createPeers(settings, {
    ...deps,
    operations: OPERATIONS,
    partsOf,
    answers: [
      rpcHandler(READ_BACKLOG, () => readBacklogSummary(deps.metrics, deps.clock.now())),
      rpcHandler(CHANGE_QUEUE, queue.change),
      rpcHandler(FIND_JOBS, queue.jobs),
      rpcHandler(LIST_ENDPOINTS, queue.endpoints),
      rpcHandler(LIST_DELIVERIES, deliveries.list),
      rpcHandler(SHOW_DELIVERY, deliveries.one),
      rpcHandler(LIST_ENDPOINT_STATES, deliveries.endpoints),
      rpcHandler(FIND_MAIL, history.mail),
      rpcHandler(SHOW_MAIL, history.one),
      rpcHandler(FIND_REFUSALS, history.refusals),
      ...deps.hostAnswers,
    ],
    files: createFiles(settings, deps),
  });
  const operations = OPERATIONS.map(peers.across);

  /**
   * Runs an operation for an account without a key or HTTP but by the same rules, for operators on the command line.
   * Returns the record, or the whole list. Throws `Refusal`.
   */
  async function run(path: string, account: AccountRow, params: object, person?: string): Promise<unknown> {
    const operation = operations.find((one) => one.path === path);
    if (!operation) throw refusal('Unknown_Operation', `There is no operation ${path}`);
    const answer = await operation.run(paramsOf(params), partsOf(account, undefined, person));
    return 'text' in answer ? JSON.parse(await toText(answer.text.content)) : wholeOf(answer);
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
        queue,
        otherHosts: peers.others,
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
  const connectionLimits = createConnectionLimits(settings, { ...deps, clientAddress });
  const handler: RequestListener = (req, res) => {
    req.url = originForm(req.url ?? '/');
    if (connectionLimits.admitsRequest(req, res)) void koa(req, res);
  };
  const server = createBoundedServer(settings.maxConnections, handler);
  const open = { http: 0, https: 0 };
  server.on('connection', (socket) => {
    const kind = socket instanceof TLSSocket ? 'https' : 'http';
    open[kind]++;
    socket.once('close', () => open[kind]--);
    // Connections with TLS were counted before their handshake.
    if (kind === 'http') connectionLimits.addConnection(socket);
  });
  // The body reader answers `Expect: 100-continue`.
  server.on('checkContinue', handler);

  const secure = createHttpsListener(settings, {
    http: server,
    connectionLimits,
    contextFor: deps.certificates.contextFor,
  });
  const redirect = createRedirect(settings, { ...deps, ...deps.certificates });

  return frozen({
    handler,
    run,
    /** The address without TLS. Throws before `start`. */
    address: () => addressOf(server),
    /** The addresses with TLS, and those for ACME challenges and redirects. */
    tlsAddresses: () => ({ https: secure.addresses(), redirect: redirect.addresses() }),
    /** How many connections are open. */
    connections: (kind: keyof typeof open) => open[kind],
    async start() {
      await listenOn(server, settings.listen);
      deps.log.info('api.listening', { ...addressOf(server) });
      await secure.start();
      for (const address of secure.addresses()) deps.log.info('api.listening', { ...address, serves: 'https' });
      await redirect.start();
    },
    async stop() {
      stopAttached();
      connectionLimits.close();
      secure.stop();
      const redirected = redirect.stop();
      // First, so that jobs end along with calls; and again, for a job that such a call has started.
      void jobs.stop();
      deps.tapping.stop();
      // Ends the waits, so that their calls are answered now.
      await deps.pulling.stop();
      await stopServer(server);
      await redirected;
      await parser.stop();
      await jobs.stop();
    },
  });
}

async function toText(content: JsonText['content']): Promise<string> {
  return Buffer.concat(content instanceof Uint8Array ? [content] : await content.toArray()).toString();
}

/**
 * The path and query of a request target. The absolute form that proxies send may hold a host on which URL parsers
 * throw.
 */
function originForm(target: string): string {
  const path = target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  return path.startsWith('/') ? path : `/${path}`;
}
