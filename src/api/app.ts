import type { IncomingMessage } from 'node:http';
import Koa, { type Context, type Next } from 'koa';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import type { AccountParts } from './account.ts';
import type { AccountLimits } from './account-limits.ts';
import type { BodyReader } from './body.ts';
import { Refusal, refusal, toEnvelope } from './errors.ts';
import type { Operation } from './operation.ts';
import { parseBody } from './parameters.ts';
import type { CallMeters, KeyReader } from './server.ts';
import { answerPages } from './whole-lists.ts';

/** What the path of an API call is made of: the versions that official clients send are one and the same thing. */
const CALL = /^(?:\/api)?\/1\.[0-4](\/[a-z0-9-]+\/[a-z0-9-]+)(?:\.json)?$/;
/** A path that was meant as an API call, right or wrong. */
const API = /^(?:\/api(?:\/|$)|\/\d+\.\d+\/)/;
const OTHER_FORMAT = /\.(?:xml|php|yaml)$/;

// Open to every page, as the public ancestor is: the key is the credential, never a cookie.
const CORS = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Allow-Methods': 'POST, GET, OPTIONS',
  'Access-Control-Allow-Headers': 'Content-Type, Authorization',
  'Access-Control-Allow-Credentials': 'false',
  'Access-Control-Max-Age': '86400',
};

export interface AppDeps {
  readonly operations: readonly Operation[];
  readonly body: BodyReader;
  readonly keys: KeyReader;
  readonly limits: Pick<AccountLimits, 'call'>;
  readonly clientAddress: (req: IncomingMessage) => string;
  /** `apiKey` is the `id` of the key's row. */
  readonly partsOf: (account: AccountRow, apiKey: string) => AccountParts;
  /** /docs, /healthz and whatever else is no operation. */
  readonly pages: Koa.Middleware;
  readonly meters: CallMeters;
  readonly clock: Clock;
  readonly log: Log;
}

/** The way of every request: answer, pages, then the operations. */
export function createApp(deps: AppDeps): Koa {
  const operations = new Map<string, Operation>(deps.operations.map((operation) => [operation.path, operation]));
  const app = new Koa();
  // Answering is `answer`'s; what gets here is a connection that broke while the answer was written.
  app.on('error', (error: unknown) => deps.log.debug('api.fault', { part: 'response', error }));
  app.use((ctx, next) => answer(ctx, next, deps.log));
  app.use(deps.pages);
  app.use((ctx) => dispatch(ctx, operations, deps));
  return app;
}

/** The operation that a request is for, by its path alone. */
export function operationAt(url: string, operations: ReadonlyMap<string, Operation>): Operation | undefined {
  const path = url.split('?', 1)[0] ?? '';
  return operations.get(CALL.exec(path)?.[1] ?? '');
}

async function answer(ctx: Context, next: Next, log: Log): Promise<void> {
  ctx.set('X-Content-Type-Options', 'nosniff');
  try {
    await next();
  } catch (error) {
    const refused = toRefusal(error, ctx.path, log);
    ctx.status = refused.status;
    if (refused.status === 429) ctx.set('Retry-After', String(refused.retryAfterS));
    json(ctx, toEnvelope(refused));
  }
}

/** What was thrown, as what we answer. A fault of ours is logged once, here, and answered without its words. */
function toRefusal(error: unknown, path: string, log: Log): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof StoreAway) return refusal('ServiceUnavailable');
  log.error('api.fault', { path, error });
  return refusal('GeneralError');
}

function json(ctx: Context, value: unknown): void {
  ctx.type = 'application/json; charset=utf-8';
  ctx.set('Cache-Control', 'no-store');
  ctx.body = JSON.stringify(value);
}

async function dispatch(ctx: Context, operations: ReadonlyMap<string, Operation>, deps: AppDeps): Promise<void> {
  ctx.set(CORS);
  if (ctx.method === 'OPTIONS') {
    ctx.status = 204;
    return;
  }
  const operation = operationAt(ctx.path, operations);
  if (!operation) {
    deps.meters.unknown();
    throw refusal('Unknown_Operation', hint(ctx.path, operations));
  }
  if (ctx.method !== 'POST') {
    // GET was advertised by the ancestor and used by nobody; a key in a URL would end in the logs of every proxy.
    ctx.set('Allow', 'POST, OPTIONS');
    throw refusal('MethodNotAllowed');
  }
  await call(ctx, operation, deps);
}

async function call(ctx: Context, operation: Operation, deps: AppDeps): Promise<void> {
  const began = deps.clock.monotonic();
  const address = deps.clientAddress(ctx.req);
  let account: AccountRow | undefined;
  let failure: Refusal | undefined;
  try {
    const contentType = ctx.get('content-type');
    const params = parseBody(await deps.body.read(ctx, operation.large, address), contentType);
    const caller = await deps.keys.accountOf(params.get('key') ?? bearerToken(ctx.get('authorization')), address);
    account = caller.account;
    deps.limits.call(account.id);
    const answer = await operation.run(params, deps.partsOf(account, caller.apiKey));
    if ('pages' in answer) await answerPages(ctx, answer.pages, deps.clock);
    else json(ctx, answer.record);
  } catch (error) {
    failure = toRefusal(error, operation.path, deps.log);
    throw failure;
  } finally {
    const ms = Math.round(deps.clock.monotonic() - began);
    deps.meters.call(operation.path, failure?.status ?? 200, ms);
    deps.log.info('api.call', {
      operation: operation.path,
      account: account?.id,
      status: failure?.status ?? 200,
      error: failure?.name,
      ms,
      address,
    });
  }
}

/** The key of `Authorization: Bearer KEY` (RFC 6750 section 2.1), which is where generated clients put a credential. */
function bearerToken(header: string): string | undefined {
  return /^Bearer +([\w~+/.-]+=*)$/i.exec(header)?.[1];
}

/** A sentence that helps whoever got here by a mistake. */
function hint(path: string, operations: ReadonlyMap<string, Operation>): string {
  if (OTHER_FORMAT.test(path)) return 'Only JSON is spoken here: let the path end in .json; see /docs';
  if (!API.test(path))
    return 'There is nothing at this path; operations are at /api/1.0/<group>/<operation>.json, their description at /docs';
  const [, group = ''] = /\/([a-z0-9-]+)\/[^/]*$/.exec(path) ?? [];
  const known = [...operations.keys()].filter((name) => name.startsWith(`/${group}/`));
  const list =
    known.length > 0 ? `; in this group there are ${known.map((name) => name.slice(group.length + 2)).join(', ')}` : '';
  return `No such operation${list}; operations are at /api/1.0/<group>/<operation>.json, their description at /docs`;
}
