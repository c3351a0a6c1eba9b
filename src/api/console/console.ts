import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { Context, Middleware } from 'koa';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import { isLoopbackName } from '../../base/networks.ts';
import type { Feed } from '../../journal/feed.ts';
import type { Notes } from '../../journal/types.ts';
import type { AccountRow } from '../../store/rows/accounts.ts';
import type { Store } from '../../store/store.ts';
import type { Operation } from '../operation.ts';
import type { Params } from '../parameters.ts';
import { createAssets } from './assets.ts';
import { accountFor, createCalls, type RunCall, type RunHostCall } from './calls.ts';
import { Denial, toDenialEnvelope } from './denial.ts';
import { createDoors } from './doors.ts';
import { isFor, mustBeOurPage, mustBeWrite, type Origin, originOf } from './guard.ts';
import type { HostOperation } from './host/operation.ts';
import type { HostParts } from './host/parts.ts';
import { createLive, type LiveRecords } from './live.ts';
import { createMailFrames, type MailParts } from './mail.ts';
import { createPermissions } from './roles.ts';
import { recoveryCodesLeft } from './second-factor.ts';
import { createSessions, type SessionSettings, type Visitor } from './sessions.ts';
import { isReceiver, sendTestMessage } from './test-message.ts';

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
  const call = createCalls({ ...deps, permissions, mustBeFresh: doors.mustBeFresh });
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
      reads_content: permissions.may(role, '/inbound/content'),
      calls: [...deps.operations, ...deps.hostOperations]
        .filter(({ path }) => permissions.may(role, path))
        .map(({ path }) => path.slice(1)),
    };
  }

  async function test(ctx: Context, visitor: Visitor, origin: Origin) {
    await params(ctx, clientAddress(ctx.req));
    if (!permissions.may(visitor.role, '/inbound/add-route'))
      throw new Denial('Not_Allowed', `The role ${visitor.role} does not include this.`);
    if (!isLoopbackName(new URL(origin.url).hostname))
      throw new Denial('Not_Allowed', 'A test message can only be sent from this machine, or over SSH.');
    return sendTestMessage(await accountFor(ctx.get('postern-account'), visitor, store), origin.url, {
      ...deps,
      operate: (path, account, params) => deps.operate(path, account, params, visitor.name),
    });
  }

  /** What visitors change about themselves. */
  async function identity(ctx: Context, visitor: Visitor, path: string, given: Params): Promise<void> {
    if (path === 'factor') return json(ctx, await doors.offerFactor(visitor));
    if (path === 'factor/on') return json(ctx, { recovery_codes: await doors.turnFactorOn(visitor, given) });
    const address = clientAddress(ctx.req);
    if (path === 'password') await doors.changePassword(visitor, given, address);
    else if (path === 'confirm') await doors.confirm(visitor, given, address);
    else await doors.turnFactorOff(visitor);
    ctx.status = 204;
  }

  /** What a request of the console's own page asks. */
  async function ask(ctx: Context, origin: Origin, path: string): Promise<void> {
    const address = clientAddress(ctx.req);
    const isWrite = ctx.method !== 'GET';
    mustBeOurPage(ctx.req, origin);
    if (isWrite) mustBeWrite(ctx.req);
    if (path === 'session' && ctx.method === 'POST') {
      const visitor = await doors.enterByPassword(ctx, origin, await params(ctx, address), address);
      return json(ctx, await me(visitor));
    }
    const visitor = await visitorOf(ctx, origin);
    if (path === 'me') return json(ctx, await me(visitor));
    if (path === 'live') {
      const wanted = String(ctx.query.account ?? '');
      const all = visitor.account === null && wanted === '';
      return live.open(ctx, visitor, all ? null : (await accountFor(wanted, visitor, store)).id);
    }
    if (path === 'session') {
      await sessions.end(ctx, origin, visitor);
      ctx.status = 204;
      return;
    }
    if (path === 'password' || path === 'confirm' || path.startsWith('factor'))
      return identity(ctx, visitor, path, await params(ctx, address));
    if (path === 'test-message') return json(ctx, await test(ctx, visitor, origin));
    if (path === 'mail') return json(ctx, await mail.open(ctx, visitor, origin, await params(ctx, address)));
    if (path.startsWith('mail/')) return mail.answer(ctx, visitor, path.slice('mail/'.length));
    await call(ctx, visitor, path.slice('call'.length));
  }

  async function answer(ctx: Context): Promise<void> {
    const path = ctx.path.slice('/console/'.length);
    const origin = originOf(ctx.req, settings.url);
    const [first = '', token = ''] = path.split('/');
    const isRead = ctx.method === 'GET' || ctx.method === 'HEAD';
    if (ctx.path === '/console') return void ctx.redirect('/console/');
    if (first === 'enter' && isRead) return doors.showLink(ctx);
    if (first === 'enter' && ctx.method === 'POST') {
      mustBeOurPage(ctx.req, origin);
      const address = clientAddress(ctx.req);
      return doors.enterByLink(ctx, origin, token, await params(ctx, address), address);
    }
    if (!origin.secure && isReceiver(ctx.path) && (ctx.method === 'HEAD' || ctx.method === 'POST')) {
      ctx.req.resume();
      ctx.body = 'Received by Postern itself.\n';
      return;
    }
    if (first === 'assets' && isRead) {
      if (await assets.file(ctx, path.slice('assets/'.length))) return;
      throw new Denial('Unknown_Path', 'There is no such file. Load the page again.');
    }
    const method = METHODS.find((one) => one.path.test(path) && one.methods.includes(ctx.method));
    if (method) return ask(ctx, origin, path);
    if (isRead) return assets.page(ctx);
    throw new Denial('Unknown_Path', 'Nothing is done at this path.');
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

/** What only the console's own page asks; every other path is the page itself. */
const METHODS: readonly { readonly path: RegExp; readonly methods: readonly string[] }[] = [
  { path: /^(?:me|live)$/, methods: ['GET'] },
  { path: /^session$/, methods: ['POST', 'DELETE'] },
  { path: /^(?:password|confirm|factor|factor\/(?:on|off)|test-message)$/, methods: ['POST'] },
  { path: /^mail$/, methods: ['POST'] },
  { path: /^mail\/[\w-]+\.[\w-]+\/(?:html|links|raw|part\/\d{1,5})$/, methods: ['GET'] },
  { path: /^call\/[\w-]+\/[\w-]+$/, methods: ['POST'] },
];

function json(ctx: Context, value: unknown): void {
  ctx.type = 'application/json; charset=utf-8';
  ctx.body = JSON.stringify(value);
}
