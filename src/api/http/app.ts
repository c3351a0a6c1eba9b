import type { IncomingMessage } from 'node:http';
import Router, { type RouterMiddleware } from '@koa/router';
import Koa, { type Context, type Middleware } from 'koa';
import { toBuffer } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import type { Counter, Metrics } from '../../base/metrics.ts';
import type { Tools } from '../../base/tools.ts';
import { JournalAway } from '../../journal/journal.ts';
import { StoreAway } from '../../store/driver/port.ts';
import type { KeyUses } from '../../store/key-uses.ts';
import { type AccountRow, createKeyCheck, type KeyCheckSettings } from '../../store/rows/accounts.ts';
import type { Store } from '../../store/store.ts';
import type { JsonText } from '../../webhooks/message-views.ts';
import type { PartsOf } from '../account/account.ts';
import type { AccountLimits } from '../account/account-limits.ts';
import { missing, Refusal, refusal, toEnvelope } from '../errors.ts';
import type { Answer, Operation, Path } from '../operation.ts';
import { type BodySettings, createBodyReader, type WantedBody } from '../requests/body.ts';
import type { BodyParser } from '../requests/body-parser.ts';
import type { Params } from '../requests/parameters.ts';
import { answerPages, asJson, STALL_MS } from '../streamed-lists.ts';
import { abortOnClose } from './bounded-server.ts';
import type { AttachedApp } from './server.ts';

// The order in which every request is handled: pages, then operations. Thrown errors become the answer.

interface AppDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly operations: readonly Operation[];
  readonly store: Pick<Store, 'keys' | 'accounts'>;
  readonly keyUses: Pick<KeyUses, 'note'>;
  readonly limits: Pick<AccountLimits, 'call'>;
  readonly parser: Pick<BodyParser, 'parse'>;
  readonly clientAddress: (req: IncomingMessage) => string;
  readonly partsOf: PartsOf;
  /** Answers the calls that other hosts forward. */
  readonly peers: Middleware;
  /** /docs, /healthz and everything else that is not an operation. */
  readonly pages: Middleware;
  /** An app with operations of its own, which answers before the pages. */
  readonly attached:
    | (Pick<AttachedApp, 'operations'> & { readonly middleware: (calls: SessionCalls) => RouterMiddleware })
    | undefined;
}

/** Runs operations for a session instead of a key. Each is counted and logged like a call with a key. */
export interface SessionCalls {
  /** Runs an operation for an account and answers; the journal names `person`. `begin` gets the parameters first. */
  run(
    ctx: Context,
    operation: Operation,
    account: AccountRow,
    person: string,
    begin: (params: Params) => void,
  ): Promise<void>;
  /** Runs work that concerns no single account, as an operation with that path, and answers with its result. */
  runHost(ctx: Context, path: Path, work: (params: Params) => Promise<Answer>): Promise<void>;
  /** Reads the body of a call. */
  params(ctx: Context, address: string): Promise<Params>;
}

// Open to all origins, like Mandrill's API: the credential is the key, never a cookie.
const CORS = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Allow-Methods': 'POST, GET, OPTIONS',
  'Access-Control-Allow-Headers': 'Content-Type, Authorization',
  'Access-Control-Allow-Credentials': 'false',
  'Access-Control-Max-Age': '86400',
};

/** Names the hosts that did not answer, or were not asked. */
const HOSTS_MISSING = 'Postern-Hosts-Missing';

export function createApp(settings: BodySettings & KeyCheckSettings, deps: AppDeps): Koa {
  const { operations, log } = deps;
  const meters = createCallMeters([...operations, ...(deps.attached?.operations ?? [])], deps.metrics);
  const caller = createCaller(settings, meters, deps);
  const call = callByKey(settings, caller.answer, deps);
  const router = new Router();
  for (const operation of operations) router.post(routeOf(operation), (ctx) => call(ctx, operation));

  const app = new Koa();
  // Errors are answered below; only connections that break during the response reach this.
  app.on('error', (error: unknown) => log.debug('api.fault', { part: 'response', error }));
  app.use(async (ctx, next) => {
    ctx.set('X-Content-Type-Options', 'nosniff');
    try {
      await next();
    } catch (error) {
      const refused = toRefusal(error, ctx.path, log);
      ctx.status = refused.status;
      if (refused.status === 429) ctx.set('Retry-After', String(refused.retryAfterS));
      json(ctx, toEnvelope(refused));
    }
  });
  app.use(deps.peers);
  if (deps.attached) app.use(deps.attached.middleware(caller));
  app.use(deps.pages);
  app.use(async (ctx, next) => {
    ctx.set(CORS);
    if (ctx.method === 'OPTIONS') ctx.status = 204;
    else await next();
  });
  app.use(router.routes());
  app.use((ctx) => {
    if (router.match(ctx.path, 'POST').route) {
      // Mandrill advertised GET, but nobody used it; a key in a URL would end up in the logs of every proxy.
      ctx.set('Allow', 'POST, OPTIONS');
      throw refusal('MethodNotAllowed');
    }
    meters.unknown();
    throw refusal('Unknown_Operation', hint(ctx.path, operations));
  });
  return app;
}

/** The paths of an operation; all versions that official clients send are equivalent. */
function routeOf({ path }: Operation): RegExp {
  return new RegExp(String.raw`^(?:/api)?/1\.[0-4]${path}(?:\.json)?$`);
}

/** Identifies the caller: the account, if the call is for one, and the function that runs the operation for it. */
type Identify = (
  params: Params,
  address: string,
) => Promise<{ readonly account: AccountRow | undefined; run(): Promise<Answer> }>;

type AnswerCall = (ctx: Context, operation: Pick<Operation, 'path'> & WantedBody, identify: Identify) => Promise<void>;

/** Handles calls: reads the body, identifies the caller, runs the operation and answers; counts and logs each. */
function createCaller(
  settings: BodySettings,
  meters: CallMeters,
  deps: AppDeps,
): SessionCalls & { answer: AnswerCall } {
  const { clock, log } = deps;
  const body = createBodyReader(settings, deps);

  const answer: AnswerCall = async (ctx, operation, identify) => {
    const began = clock.monotonic();
    const address = deps.clientAddress(ctx.req);
    let account: AccountRow | undefined;
    let failure: Refusal | undefined;
    try {
      const params = await body.read(ctx, operation, address);
      const caller = await identify(params, address);
      account = caller.account;
      if (account) deps.limits.call(account.id);
      const answer = await caller.run();
      if (answer.missing?.length) nameMissing(ctx, answer.missing);
      if ('pages' in answer) await answerPages(ctx, answer.pages, clock);
      else if ('text' in answer) answerText(ctx, answer.text);
      else json(ctx, answer.record);
    } catch (error) {
      failure = toRefusal(error, operation.path, log);
      throw failure;
    } finally {
      const status = failure?.status ?? 200;
      const ms = Math.round(clock.monotonic() - began);
      meters.call(operation.path, status, ms);
      log.info('api.call', {
        operation: operation.path,
        account: account?.id,
        status,
        error: failure?.name,
        ms,
        address,
      });
    }
  };

  return {
    answer,
    params: (ctx, address) => body.read(ctx, { large: false }, address),
    run: (ctx, operation, account, person, begin) =>
      answer(ctx, operation, async (params) => ({
        account,
        run: () => {
          begin(params);
          return operation.run(params, deps.partsOf(account, undefined, person, abortOnClose(ctx)));
        },
      })),
    runHost: (ctx, path, work) =>
      answer(ctx, { path, large: false }, async (params) => ({
        account: undefined,
        run: () => work(params),
      })),
  };
}

/** Identifies callers by their key. */
function callByKey(
  settings: KeyCheckSettings,
  answer: AnswerCall,
  deps: AppDeps,
): (ctx: Context, operation: Operation) => Promise<void> {
  const keys = createKeyCheck(settings, deps);

  /** Revoked and unknown keys get the same answer. */
  async function authenticate(key: unknown, address: string) {
    if (key === undefined) throw missing('key');
    const found = await keys.check(key, address);
    if (found.kind === 'good') return found;
    if (found.kind === 'too-many') throw refusal('RequestLimitExceeded');
    deps.log.info('api.refused_key', { address });
    throw refusal('Invalid_Key');
  }

  return (ctx, operation) =>
    answer(ctx, operation, async (params, address) => {
      const { account, id } = await authenticate(params.get('key') ?? bearerToken(ctx.get('authorization')), address);
      return { account, run: () => operation.run(params, deps.partsOf(account, id, undefined, abortOnClose(ctx))) };
    });
}

/** The key of `Authorization: Bearer KEY` (RFC 6750 section 2.1), where generated clients send credentials. */
function bearerToken(header: string): string | undefined {
  return /^Bearer +([\w~+/.-]+=*)$/i.exec(header)?.[1];
}

/** Maps a thrown error to the answer. Internal errors are logged once, here, and answered without details. */
function toRefusal(error: unknown, path: string, log: Log): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof StoreAway || error instanceof JournalAway) return refusal('ServiceUnavailable');
  log.error('api.fault', { path, error });
  return refusal('GeneralError');
}

function json(ctx: Context, value: unknown): void {
  asJson(ctx);
  ctx.body = JSON.stringify(value);
}

/** Names the hosts of the store that are missing from the answer. */
function nameMissing(ctx: Context, hosts: readonly string[]): void {
  ctx.set(HOSTS_MISSING, hosts.join(', '));
  ctx.set('Access-Control-Expose-Headers', HOSTS_MISSING);
}

function answerText(ctx: Context, { size, content }: JsonText): void {
  asJson(ctx);
  ctx.res.setTimeout(STALL_MS);
  ctx.body = content instanceof Uint8Array ? toBuffer(content) : content;
  ctx.length = size;
}

/** Paths that look like a call, valid or not. */
const MEANT_AS_CALL = /^(?:\/api(?:\/|$)|\/\d+\.\d+\/)/;
const OTHER_FORMAT = /\.(?:xml|php|yaml)$/;
const WHERE = 'operations are at /api/1.0/<group>/<operation>.json and described at /docs';

/** A hint for the caller about a wrong path. */
function hint(path: string, operations: readonly Operation[]): string {
  if (OTHER_FORMAT.test(path)) return 'Only JSON is supported; use the .json path, see /docs';
  if (!MEANT_AS_CALL.test(path)) return `No such path; ${WHERE}`;
  const [, group = ''] = /\/([a-z0-9-]+)\/[^/]*$/.exec(path) ?? [];
  const known = operations.flatMap((one) =>
    one.path.startsWith(`/${group}/`) ? [one.path.slice(group.length + 2)] : [],
  );
  return `No such operation${known.length > 0 ? `; this group has ${known.join(', ')}` : ''}; ${WHERE}`;
}

/** Metrics of calls. */
type CallMeters = ReturnType<typeof createCallMeters>;

/** Label values are the paths of `operations`, besides `unknown`. */
function createCallMeters(
  operations: readonly (Pick<Operation, 'path'> & Partial<Pick<Operation, 'waits'>>)[],
  metrics: Metrics,
) {
  const waiting = new Set<string>(operations.filter(({ waits }) => waits).map(({ path }) => path));
  const groupOf = (path: string) => path.split('/')[1] ?? '';
  const groups = new Set(operations.map(({ path }) => groupOf(path)));
  const seconds = new Map(
    [...groups].map((group) => [group, metrics.histogram('postern_api_call_seconds', { group })]),
  );
  const calls = new Map<string, Map<number, Counter>>(operations.map(({ path }) => [path, new Map()]));
  const unknown = metrics.counter('postern_api_calls_total', { operation: 'unknown', status: '404' });
  return frozen({
    call(operation: string, status: number, ms: number) {
      const statuses = calls.get(operation);
      if (!statuses) return;
      const counter =
        statuses.get(status) ?? metrics.counter('postern_api_calls_total', { operation, status: String(status) });
      statuses.set(status, counter);
      counter.add();
      if (!waiting.has(operation)) seconds.get(groupOf(operation))?.observe(ms / 1000);
    },
    /** Counts a call of an operation that does not exist. */
    unknown: () => unknown.add(),
  });
}
