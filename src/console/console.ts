import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { Context, Middleware } from 'koa';
import type { Operation } from '../api/operation.ts';
import type { Params } from '../api/parameters.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { isLoopbackName } from '../base/networks.ts';
import type { Feed } from '../journal/feed.ts';
import type { Notes } from '../journal/types.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import type { Store } from '../store/store.ts';
import { createAssets } from './assets.ts';
import { accountFor, createCalls, type RunCall, type RunHostCall } from './calls.ts';
import { Denial, toDenialEnvelope } from './denial.ts';
import { createDoors } from './doors.ts';
import { isFor, mustBeOurPage, mustBeWrite, type Origin, originOf } from './guard.ts';
import type { HostOperation } from './host/operation.ts';
import type { HostParts } from './host/parts.ts';
import { createLive, type LiveRecords } from './live.ts';
import { createMailFrames, type MailParts } from './mail.ts';
import { createPermissions, OPEN_PATHS, type OpenPath, SESSION_PATHS, type SessionPath } from './roles.ts';
import { recoveryCodesLeft } from './second-factor.ts';
import { createSessions, type SessionSettings, type Visitor } from './sessions.ts';
import { sendTestMessage } from './test-message.ts';
import { createVeils } from './veil.ts';

export interface ConsoleSettings extends SessionSettings {
  /** Its origin as browsers see it; empty: only loopback. */
  readonly url: string;
  /** The origin that shows the HTML of mail, and nothing else; empty: its own. */
  readonly mailOrigin: string;
  readonly operatorReadsMail: boolean;
  /** Days for which things are kept. */
  readonly keeps: { readonly history: number; readonly refusals: number; readonly givenUp: number };
  readonly hostname: string;
  readonly version: string;
}

export interface ConsoleDeps {
  readonly operations: readonly Operation[];
  readonly hostOperations: readonly HostOperation[];
  /** Covers what not every role sees. */
  readonly tokenSecret: { read(): Promise<string> };
  /** What the operations of the host work with. */
  readonly hostParts: HostParts;
  readonly store: Pick<Store, 'accounts' | 'people' | 'enterLinks' | 'consoleSessions'>;
  readonly feed: Pick<Feed, 'watch'>;
  readonly records: LiveRecords;
  readonly notes: Notes;
  /** Where mail comes in. */
  readonly smtpAddresses: () => readonly { readonly address: string; readonly port: number }[];
  readonly clientAddress: (req: IncomingMessage) => string;
  /** Reads the body of a call. */
  readonly params: (ctx: Context, address: string) => Promise<Params>;
  readonly run: RunCall;
  readonly runHost: RunHostCall;
  /** Runs an operation for an account, without a call. */
  readonly operate: (path: string, account: AccountRow, params: object, person: string) => Promise<unknown>;
  /** The parts of an account that show its mail. */
  readonly mailOf: (account: AccountRow) => MailParts;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** The console at /console: its page, the ways in, the operations by session, and what happens now. */
export interface Console {
  /** Answers everything under /console, and everything that is asked of `mailOrigin`. */
  readonly middleware: Middleware;
  stop(): void;
}

// On every answer. The page itself replaces the first by the policy that allows it its own files.
const POLICY = {
  'Content-Security-Policy': `default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Permissions-Policy': [
    'accelerometer',
    'autoplay',
    'browsing-topics',
    'camera',
    'display-capture',
    'encrypted-media',
    'fullscreen',
    'geolocation',
    'gyroscope',
    'hid',
    'magnetometer',
    'microphone',
    'midi',
    'payment',
    'picture-in-picture',
    'publickey-credentials-get',
    'screen-wake-lock',
    'serial',
    'usb',
    'xr-spatial-tracking',
  ]
    .map((feature) => `${feature}=()`)
    .join(', '),
  'Referrer-Policy': 'same-origin',
  'X-Robots-Tag': 'noindex, nofollow',
};

export function createConsole(settings: ConsoleSettings, deps: ConsoleDeps): Console {
  const { store, clientAddress, params } = deps;
  const assets = createAssets(settings.mailOrigin);
  const sessions = createSessions(settings, deps);
  const doors = createDoors({ ...deps, sessions, hostname: settings.hostname });
  const permissions = createPermissions(settings);
  const veils = createVeils({ ...deps, permissions });
  const call = createCalls({ ...deps, permissions, veils, mustBeFresh: doors.mustBeFresh });
  const mail = createMailFrames(settings, { ...deps, permissions, sessions });
  const live = createLive({ ...deps, lasts: sessions.lasts });

  /** The visitor of the session that a request belongs to. Throws `Denial` if there is none. */
  async function visitorOf(ctx: Context, origin: Origin): Promise<Visitor> {
    const visitor = await sessions.visitor(ctx, origin);
    if (visitor === 'none') throw new Denial('Signed_Out', 'Sign in first.');
    if (visitor) return visitor;
    await doors.wrongCookie(clientAddress(ctx.req));
    sessions.forget(ctx, origin);
    throw new Denial('Signed_Out', 'The session has ended. Sign in again.');
  }

  async function me(visitor: Visitor) {
    const { session, person, name, role, account } = visitor;
    const rows = await store.accounts.many(account === null ? {} : { id: account }, {
      sort: 'number',
      limit: MAX_SHOWN,
    });
    const accounts = rows.map((row) => ({ id: row.id, name: row.name }));
    return {
      name,
      role,
      account: account === null ? null : (accounts[0] ?? null),
      accounts,
      is_person: person !== undefined,
      has_password: person !== undefined && person.password !== null,
      has_factor: Boolean(person?.factor),
      recovery_codes: person ? recoveryCodesLeft(person) : 0,
      can_set_password: doors.maySetPassword(visitor),
      signed_in_at: session.createdAt.toISOString(),
      expires_at: session.until.toISOString(),
      idle_minutes: Math.round(settings.idleMs / 60_000),
      keeps_days: {
        history: settings.keeps.history,
        refusals: settings.keeps.refusals,
        given_up: settings.keeps.givenUp,
      },
      hostname: settings.hostname,
      version: settings.version,
      smtp: deps.smtpAddresses().map(({ address, port }) => `${isIPv6(address) ? `[${address}]` : address}:${port}`),
      reads_content: permissions.may(role, 'content'),
      calls: [...deps.operations, ...deps.hostOperations]
        .filter(({ access }) => permissions.may(role, access))
        .map(({ path }) => path.slice(1)),
    };
  }

  async function test(ctx: Context, visitor: Visitor, origin: Origin) {
    await params(ctx, clientAddress(ctx.req));
    if (!isLoopbackName(new URL(origin.url).hostname))
      throw new Denial('Not_Allowed', 'A test message can only be sent from this machine, or over SSH.');
    return sendTestMessage(await accountFor(ctx.get('postern-account'), visitor, store), origin.url, {
      ...deps,
      operate: (path, account, params) => deps.operate(path, account, params, visitor.name),
    });
  }

  /** The ways in, and the page with its files. */
  const open: Readonly<Record<OpenPath, (asked: Asked) => Promise<unknown>>> = {
    async 'GET assets/**'({ ctx, path }) {
      if (await assets.file(ctx, path.slice('assets/'.length))) return;
      throw new Denial('Unknown_Path', 'There is no such file. Load the page again.');
    },
    'GET enter/**': async ({ ctx }) => doors.showLink(ctx),
    async 'POST enter/**'({ ctx, origin, path, address }) {
      mustBeOurPage(ctx.req, origin);
      const token = path.split('/')[1] ?? '';
      await doors.enterByLink(ctx, origin, token, await params(ctx, address), address);
    },
    async 'POST session'({ ctx, origin, address }) {
      mustBeOurPage(ctx.req, origin);
      mustBeWrite(ctx.req);
      const visitor = await doors.enterByPassword(ctx, origin, await params(ctx, address), address);
      json(ctx, await me(visitor));
    },
    'HEAD receiver/**': receive,
    'POST receiver/**': receive,
    'GET **': ({ ctx }) => assets.page(ctx),
  };

  /** What the page asks, by those who may (roles.ts). */
  const inSession: Readonly<Record<SessionPath, (asked: AskedInSession) => Promise<unknown>>> = {
    'GET me': async ({ ctx, visitor }) => json(ctx, await me(visitor)),
    async 'DELETE session'({ ctx, origin, visitor }) {
      await sessions.end(ctx, origin, visitor);
      ctx.status = 204;
    },
    async 'POST password'({ ctx, visitor, address }) {
      await doors.changePassword(visitor, await params(ctx, address), address);
      ctx.status = 204;
    },
    async 'POST confirm'({ ctx, visitor, address }) {
      await doors.confirm(visitor, await params(ctx, address), address);
      ctx.status = 204;
    },
    async 'POST factor'({ ctx, visitor, address }) {
      await params(ctx, address);
      json(ctx, await doors.offerFactor(visitor));
    },
    async 'POST factor/on'({ ctx, visitor, address }) {
      json(ctx, { recovery_codes: await doors.turnFactorOn(visitor, await params(ctx, address)) });
    },
    async 'POST factor/off'({ ctx, visitor, address }) {
      await params(ctx, address);
      await doors.turnFactorOff(visitor);
      ctx.status = 204;
    },
    async 'GET live'({ ctx, visitor }) {
      const wanted = String(ctx.query.account ?? '');
      const all = visitor.account === null && wanted === '';
      const account = all ? null : (await accountFor(wanted, visitor, store)).id;
      live.open(ctx, visitor, account, await veils.for(visitor.role, account ?? ''));
    },
    'POST test-message': async ({ ctx, visitor, origin }) => json(ctx, await test(ctx, visitor, origin)),
    'POST mail': async ({ ctx, visitor, origin, address }) =>
      json(ctx, await mail.open(ctx, visitor, origin, await params(ctx, address))),
    'GET mail/*/html': showMail,
    'GET mail/*/links': showMail,
    'GET mail/*/raw': showMail,
    'GET mail/*/part/*': showMail,
    'POST call/*/*': ({ ctx, visitor, path }) => call(ctx, visitor, path.slice('call'.length)),
  };

  async function receive({ ctx, origin }: Asked): Promise<void> {
    if (origin.secure) throw new Denial('Unknown_Path', 'Nothing is done at this path.');
    ctx.req.resume();
    ctx.body = 'Received by Postern itself.\n';
  }

  function showMail({ ctx, visitor, path }: AskedInSession): Promise<void> {
    return mail.answer(ctx, visitor, path.slice('mail/'.length));
  }

  /** Answers what the console's own page asks, if the visitor may ask it. */
  async function answerInSession({ name, kind }: (typeof SESSION_ROUTES)[number], asked: Asked): Promise<void> {
    const { ctx, origin } = asked;
    mustBeOurPage(ctx.req, origin);
    if (ctx.method !== 'GET') mustBeWrite(ctx.req);
    const visitor = await visitorOf(ctx, origin);
    if (kind !== 'operation') permissions.must(visitor.role, kind);
    await inSession[name]({ ...asked, visitor });
  }

  async function answer(ctx: Context): Promise<void> {
    const origin = originOf(ctx.req, settings.url);
    if (ctx.path === '/console') return void ctx.redirect('/console/');
    const path = ctx.path.slice('/console/'.length);
    const asked = { ctx, origin, path, address: clientAddress(ctx.req) };
    const asking = findRoute(SESSION_ROUTES, ctx.method, path);
    if (asking) return answerInSession(asking, asked);
    const opening = findRoute(OPEN_ROUTES, ctx.method, path) ?? findRoute(OPEN_ROUTES, asGet(ctx.method), path);
    if (!opening) throw new Denial('Unknown_Path', 'Nothing is done at this path.');
    await open[opening.name](asked);
  }

  /** The host of mail has no cookie; it answers nothing but HTML of mail. */
  async function answerMailHost(ctx: Context): Promise<void> {
    if (ctx.method === 'GET' && HTML_OF_MAIL.test(ctx.path))
      return mail.show(ctx, ctx.path.slice('/console/mail/'.length));
    throw new Denial(
      'Wrong_Host',
      'This host name only shows mail for the console (console.mail_origin in the settings).',
    );
  }

  return frozen({
    async middleware(ctx, next) {
      const ofMailHost = settings.mailOrigin !== '' && isFor(ctx.req, settings.mailOrigin);
      if (!ofMailHost && ctx.path !== '/console' && !ctx.path.startsWith('/console/')) return next();
      ctx.set(POLICY);
      ctx.set('Cache-Control', 'no-store');
      try {
        await (ofMailHost ? answerMailHost(ctx) : answer(ctx));
      } catch (error) {
        if (!(error instanceof Denial)) throw error;
        if (error.retryAfterS !== undefined) ctx.set('Retry-After', String(error.retryAfterS));
        json(ctx, toDenialEnvelope(error));
        ctx.status = error.status;
      }
    },
    stop: live.stop,
  });
}

/** Accounts that an operator can choose from. */
const MAX_SHOWN = 1000;

const HTML_OF_MAIL = /^\/console\/mail\/[\w-]+\.[\w-]+\/html$/;

/** A request below /console/. */
interface Asked {
  readonly ctx: Context;
  readonly origin: Origin;
  /** Without /console/. */
  readonly path: string;
  /** That of the client. */
  readonly address: string;
}

interface AskedInSession extends Asked {
  readonly visitor: Visitor;
}

const OPEN_ROUTES = OPEN_PATHS.map((name) => toRoute(name));
const SESSION_ROUTES = SESSION_PATHS.map(([name, kind]) => ({ ...toRoute(name), kind }));

/** A name of a path as it stands in the tables of roles.ts, and which requests it means. */
function toRoute<N extends string>(name: N) {
  const [method = '', path = ''] = name.split(' ');
  const pattern = path.replace(/\/\*\*|\*/g, (stars) => (stars === '*' ? '[\\w.-]+' : '(?:/.*)?'));
  return { name, method, path: path === '**' ? /^/ : new RegExp(`^${pattern}$`) };
}

function findRoute<R extends { readonly method: string; readonly path: RegExp }>(
  routes: readonly R[],
  method: string,
  path: string,
): R | undefined {
  return routes.find((one) => one.method === method && one.path.test(path));
}

const asGet = (method: string) => (method === 'HEAD' ? 'GET' : method);

function json(ctx: Context, value: unknown): void {
  ctx.type = 'application/json; charset=utf-8';
  ctx.body = JSON.stringify(value);
}
