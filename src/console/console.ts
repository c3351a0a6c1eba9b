import Router, { type RouterContext, type RouterMiddleware } from '@koa/router';
import type { Context } from 'koa';
import type { RefusalTexts } from '../api/account/account.ts';
import type { ApiServices, AttachedApp } from '../api/http/server.ts';
import { toMailRecord, toRefusalRecord } from '../api/operations/history.ts';
import type { Params } from '../api/requests/parameters.ts';
import { frozen } from '../base/frozen.ts';
import { isLoopbackName } from '../base/networks.ts';
import { namesIn } from '../base/tables.ts';
import type { Feed } from '../journal/feed.ts';
import { createAssets } from './assets.ts';
import { accountFor, createCalls } from './calls.ts';
import { Denial } from './denial.ts';
import { isFor, mustBeOurPage, mustBeWrite, type Origin, originOf } from './guard.ts';
import { HOST_OPERATIONS } from './host/index.ts';
import type { CrossHostParts, HostDeps, HostParts } from './host/parts.ts';
import { createLive } from './live.ts';
import { createMailFrames, type MailFrames } from './mail.ts';
import { createMe } from './me.ts';
import type { PasswordCost } from './passwords.ts';
import { createPermissions, OPEN_PATHS, type OpenPath, SESSION_PATHS, type SessionPath } from './roles.ts';
import { createSessions, type SessionSettings, type Visitor } from './sessions.ts';
import { createSignIn } from './sign-in.ts';
import { sendTestMessage } from './test-message.ts';
import { createRedactors } from './url-redaction.ts';

export interface ConsoleSettings extends SessionSettings {
  /** The origin of the console as browsers see it; empty: only loopback. */
  readonly url: string;
  /** The origin that shows only the HTML of mail; empty: that of the console. */
  readonly mailOrigin: string;
  readonly operatorReadsMail: boolean;
  /** Retention in days. */
  readonly keeps: { readonly history: number; readonly refusals: number; readonly givenUp: number };
  readonly hostname: string;
  readonly version: string;
  readonly passwordCost: PasswordCost;
}

export interface ConsoleDeps extends HostDeps {
  /** The parts of this host that operators can use. */
  readonly hostParts: HostParts;
  /** Encrypts the parts of URLs that not every role sees. */
  readonly tokenSecret: { read(): Promise<string> };
  readonly feed: Pick<Feed, 'watch'>;
  readonly refusals: RefusalTexts;
  /** The addresses of the SMTP listeners. */
  readonly smtpAddresses: () => readonly { readonly address: string; readonly port: number }[];
}

/** The console at /console: its page, sign-in, operations by session, and the live feed. */
export function createConsole(settings: ConsoleSettings, deps: ConsoleDeps): AttachedApp {
  return frozen({
    operations: HOST_OPERATIONS,
    open(services) {
      const { queue, otherHosts } = services;
      const hostParts = { ...deps.hostParts, queue, otherHosts };
      const { router, mail, live } = createPaths(settings, { ...deps, ...services, hostParts });
      return frozen({
        middleware: atItsHosts(settings, router, mail),
        stop: () => live.stop(),
      });
    },
  });
}

// On every response. The page replaces the first one by a policy that allows its own files.
const POLICY = {
  'Content-Security-Policy': `default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': [
    ...namesIn('accelerometer autoplay browsing-topics camera display-capture encrypted-media fullscreen geolocation'),
    ...namesIn('gyroscope hid magnetometer microphone midi payment picture-in-picture publickey-credentials-get'),
    ...namesIn('screen-wake-lock serial usb xr-spatial-tracking'),
  ]
    .map((feature) => `${feature}=()`)
    .join(', '),
  'Referrer-Policy': 'same-origin',
  'X-Robots-Tag': 'noindex, nofollow',
};

/** The handlers of the paths below /console (roles.ts). */
function createPaths(
  settings: ConsoleSettings,
  deps: ConsoleDeps & ApiServices & { readonly hostParts: HostParts & CrossHostParts },
) {
  const { store, clientAddress } = deps;
  const assets = createAssets(settings.mailOrigin);
  const sessions = createSessions(settings, deps);
  const { hostname, passwordCost } = settings;
  const signIn = createSignIn({ ...deps, sessions, hostname, passwordCost });
  const permissions = createPermissions(settings);
  const redactors = createRedactors({ ...deps, permissions });
  const call = createCalls({ ...deps, permissions, redactors, mustBeFresh: signIn.mustBeFresh });
  const mail = createMailFrames(settings, { ...deps, permissions, sessions });
  const me = createMe(settings, { ...deps, permissions, signIn });
  const live = createLive({
    ...deps,
    lasts: sessions.lasts,
    hasOthers: async () => (await deps.otherHosts()).length > 0,
    records: {
      // The queue still has the mail of recent events.
      mail: (row) => toMailRecord(row, row.state !== 'unknown'),
      refusal: (row) => toRefusalRecord(row, deps.refusals.adviceOf),
    },
  });

  /** The visitor of a request. Throws `Denial` if there is none. */
  async function visitorOf(ctx: Context, origin: Origin): Promise<Visitor> {
    const visitor = await sessions.visitor(ctx, origin);
    if (visitor === 'none') throw new Denial('Signed_Out', 'Sign in first.');
    if (visitor) return visitor;
    await signIn.wrongCookie(clientAddress(ctx.req));
    sessions.forget(ctx, origin);
    throw new Denial('Signed_Out', 'The session has ended. Sign in again.');
  }

  async function test({ ctx, visitor, origin, body }: SessionRequest) {
    await body();
    if (!isLoopbackName(new URL(origin.url).hostname))
      throw new Denial('Not_Allowed', 'Test messages can be sent only from this machine, or over SSH.');
    return sendTestMessage(await accountFor(ctx.get('postern-account'), visitor, store), origin.url, {
      ...deps,
      operate: (path, account, params) => deps.operate(path, account, params, visitor.name),
    });
  }

  /** Sign-in, and the page with its files. Results are answered as JSON. */
  const open: Readonly<Record<OpenPath, (asked: ConsoleRequest) => Promise<unknown>>> = {
    async 'GET /assets/*file'({ ctx }) {
      if (await assets.file(ctx, ctx.path.slice('/console/assets/'.length))) return;
      throw new Denial('Unknown_Path', 'File not found. Reload the page.');
    },
    'GET /enter{/:token}': async ({ ctx }) => signIn.showLink(ctx),
    async 'POST /enter{/:token}'({ ctx, origin, pathParam, body, address }) {
      mustBeOurPage(ctx.req, origin);
      await signIn.enterByLink(ctx, origin, pathParam('token'), await body(), address);
    },
    async 'POST /session'({ ctx, origin, body, address }) {
      mustBeOurPage(ctx.req, origin);
      mustBeWrite(ctx.req);
      return me(await signIn.enterByPassword(ctx, origin, await body(), address));
    },
    'HEAD /receiver{/*rest}': receive,
    'POST /receiver{/*rest}': receive,
    'GET /{*screen}': ({ ctx }) => assets.page(ctx),
  };

  /** The requests of the page, by permission (roles.ts). */
  const inSession: Readonly<Record<SessionPath, (asked: SessionRequest) => Promise<unknown>>> = {
    'GET /me': ({ visitor }) => me(visitor),
    async 'DELETE /session'({ ctx, origin, visitor }) {
      await sessions.end(ctx, origin, visitor);
      ctx.status = 204;
    },
    async 'POST /password'({ ctx, visitor, body, address }) {
      await signIn.changePassword(visitor, await body(), address);
      ctx.status = 204;
    },
    async 'POST /confirm'({ ctx, visitor, body, address }) {
      await signIn.confirm(visitor, await body(), address);
      ctx.status = 204;
    },
    async 'POST /factor'({ visitor, body }) {
      await body();
      return signIn.offerFactor(visitor);
    },
    'POST /factor/on': async ({ visitor, body }) => ({
      recovery_codes: await signIn.turnFactorOn(visitor, await body()),
    }),
    async 'POST /factor/off'({ ctx, visitor, body }) {
      await body();
      await signIn.turnFactorOff(visitor);
      ctx.status = 204;
    },
    async 'GET /live'({ ctx, visitor }) {
      const wanted = String(ctx.query.account ?? '');
      const all = visitor.account === null && wanted === '';
      const account = all ? null : (await accountFor(wanted, visitor, store)).id;
      live.open(ctx, visitor, account, await redactors.for(visitor.role, account ?? ''));
    },
    'POST /test-message': test,
    'POST /mail': async ({ ctx, visitor, origin, body }) => mail.open(ctx, visitor, origin, await body()),
    'GET /mail/:grant/html': ({ ctx, visitor, pathParam }) => mail.html(ctx, visitor, pathParam('grant')),
    'GET /mail/:grant/links': ({ ctx, visitor, pathParam }) => mail.links(ctx, visitor, pathParam('grant')),
    'GET /mail/:grant/raw': ({ ctx, visitor, pathParam }) => mail.raw(ctx, visitor, pathParam('grant')),
    'GET /mail/:grant/part/:number': ({ ctx, visitor, pathParam }) =>
      mail.part(ctx, visitor, pathParam('grant'), pathParam('number')),
    'POST /call/:group/:name': ({ ctx, visitor, pathParam }) =>
      call(ctx, visitor, `/${pathParam('group')}/${pathParam('name')}`),
  };

  async function receive({ ctx, origin }: ConsoleRequest): Promise<void> {
    if (origin.secure) throw notFound();
    ctx.req.resume();
    ctx.body = 'Received by Postern itself.\n';
  }

  function asked(ctx: RouterContext): ConsoleRequest {
    const { params: given } = ctx;
    const address = clientAddress(ctx.req);
    return {
      ctx,
      origin: originOf(ctx.req, settings.url),
      pathParam: (name) => given[name] ?? '',
      body: () => deps.params(ctx, address),
      address,
    };
  }

  const router = new Router({ prefix: '/console' });
  for (const [name, kind] of SESSION_PATHS) {
    const [method = '', path = ''] = name.split(' ');
    router.register(path, [method], async (ctx, next) => {
      // The router also matches HEAD for GET; the page answers those, like all other paths.
      if (ctx.method !== method) return next();
      const request = asked(ctx);
      mustBeOurPage(ctx.req, request.origin);
      if (method !== 'GET') mustBeWrite(ctx.req);
      const visitor = await visitorOf(ctx, request.origin);
      if (kind !== 'operation') permissions.must(visitor.role, kind);
      json(ctx, await inSession[name]({ ...request, visitor }));
    });
  }
  for (const name of OPEN_PATHS) {
    const [method = '', path = ''] = name.split(' ');
    router.register(path, [method], async (ctx) => json(ctx, await open[name](asked(ctx))));
  }
  return { router, mail, live };
}

/** Answers all paths at the console's host names, and only HTML of mail at that of `mailOrigin`. */
function atItsHosts(settings: ConsoleSettings, router: Router, mail: MailFrames): RouterMiddleware {
  const paths = router.routes();
  const answer: RouterMiddleware = async (ctx) => {
    originOf(ctx.req, settings.url);
    if (ctx.path === '/console') return void ctx.redirect('/console/');
    await paths(ctx, async () => {
      throw notFound();
    });
  };

  /** Requests to this host have no cookie. */
  async function answerMailHost(ctx: Context): Promise<void> {
    const [, grant] = HTML_OF_MAIL.exec(ctx.path) ?? [];
    if (ctx.method === 'GET' && grant !== undefined) return mail.show(ctx, grant);
    throw new Denial(
      'Wrong_Host',
      'This host name only shows mail for the console (console.mail_origin in the settings).',
    );
  }

  return async (ctx, next) => {
    const ofMailHost = settings.mailOrigin !== '' && isFor(ctx.req, settings.mailOrigin);
    if (!ofMailHost && ctx.path !== '/console' && !ctx.path.startsWith('/console/')) return next();
    ctx.set(POLICY);
    ctx.set('Cache-Control', 'no-store');
    try {
      await (ofMailHost ? answerMailHost(ctx) : answer(ctx, next));
    } catch (error) {
      if (!(error instanceof Denial)) throw error;
      if (error.retryAfterS !== undefined) ctx.set('Retry-After', String(error.retryAfterS));
      const { name, status, message } = error;
      // In the form of the API's errors.
      json(ctx, { status: 'error', code: status, name, message });
      ctx.status = status;
    }
  };
}

const HTML_OF_MAIL = /^\/console\/mail\/([\w-]+\.[\w-]+)\/html$/;

/** A request below /console. */
interface ConsoleRequest {
  readonly ctx: Context;
  readonly origin: Origin;
  /** A part of the path, by its name in roles.ts. */
  readonly pathParam: (name: string) => string;
  /** Reads the parameters. */
  readonly body: () => Promise<Params>;
  /** The client's address. */
  readonly address: string;
}

interface SessionRequest extends ConsoleRequest {
  readonly visitor: Visitor;
}

function notFound(): Denial {
  return new Denial('Unknown_Path', 'Not found.');
}

/** Answers with the value, if there is one. */
function json(ctx: Context, value: unknown): void {
  if (value === undefined) return;
  ctx.type = 'application/json; charset=utf-8';
  ctx.body = JSON.stringify(value);
}
