import type { IncomingMessage } from 'node:http';
import Router from '@koa/router';
import type { Context, Middleware } from 'koa';
import type { Log } from '../../base/log.ts';
import { createAddressList } from '../../base/networks.ts';
import type { Exposition } from '../../base/prometheus.ts';
import type { SenderDomains } from '../../sending/domains/sender-domains.ts';
import type { Store } from '../../store/store.ts';
import { LINKS_PATH, type LinkedFiles } from '../../webhooks/linked-files.ts';
import { toOpenApi } from '../docs/openapi.ts';
import { home, PAGE_HASHES, reference } from '../docs/page.ts';
import { createClientAddress } from '../http/connection-limits.ts';
import type { Operation } from '../operation.ts';
import { createExportFiles, type ExportFileSettings } from './export-files.ts';
import { createInboundFiles } from './inbound-files.ts';
import { createTrackPages, type Tracking } from './tracking.ts';
import { createVerifyPage } from './verification.ts';

/** Readiness of the daemon. */
interface Readiness {
  readonly ok: boolean;
  /** For each check, `ok` or a text that says what is wrong. */
  readonly checks: Readonly<Record<string, string>>;
}

export interface PageSettings extends ExportFileSettings {
  /** Our URL as seen from outside, without a trailing slash; if empty, links are relative. */
  readonly publicUrl: string;
  /** Who may read /metrics: addresses or networks. */
  readonly metricsAllow: readonly string[];
  readonly trustedProxies: readonly string[];
  /** Postern's version. */
  readonly version: string;
}

export interface PageDeps {
  readonly operations: readonly Operation[];
  readonly health: { ready(): Promise<Readiness> };
  /** A random name of this process, by which `postern doctor` recognizes its answer. */
  readonly instance: string;
  readonly store: Pick<Store, 'exportJobs'>;
  readonly senderDomains: Pick<SenderDomains, 'look' | 'follow'>;
  readonly tracking: Tracking;
  readonly linkedFiles: Pick<LinkedFiles, 'open'>;
  /** Answers with a file of another host: of the named one, or of any that has it. False if none has it. */
  readonly fetchFile: (ctx: Context, path: string, host?: string) => Promise<boolean>;
  readonly certificates: { readonly answerTo: (token: string) => Promise<string | undefined> };
  /** The MTA-STS policy of the domain that a host name is for. */
  readonly policyAt: (host: string) => string | undefined;
  readonly hasConsole: boolean;
  readonly metrics: Exposition;
  readonly clientAddress: (req: IncomingMessage) => string;
  readonly log: Log;
}

/**
 * The routes that are not operations: start page, reference, health checks, /metrics, and links in mail and exports.
 */
export function createPages(settings: PageSettings, deps: PageDeps): Middleware {
  const exportFiles = createExportFiles(settings, deps);
  const inboundFiles = createInboundFiles(deps);
  const verifyPage = createVerifyPage(deps.senderDomains);
  const trackPages = createTrackPages(deps.tracking, deps.clientAddress);
  const router = new Router();
  // Building these two would take a third of the API's startup time, and most processes never serve them.
  const shown = once(() => reference(deps.operations, settings.publicUrl));
  const openapi = once(() => JSON.stringify(toOpenApi(deps.operations, `${settings.publicUrl}/api/1.0`), null, 2));
  const start = home(settings.version, deps.hasConsole);
  router.get('/', (ctx) => page(ctx, start));
  // A proxy in front may forward them here, or redirect the authority from port 80.
  router.get('/.well-known/acme-challenge/:token', async (ctx) => {
    const answer = await deps.certificates.answerTo(ctx.params.token ?? '');
    if (answer === undefined) return;
    ctx.type = 'application/octet-stream';
    ctx.body = answer;
  });
  router.get('/.well-known/mta-sts.txt', (ctx) => {
    const policy = deps.policyAt(ctx.host);
    if (policy === undefined) return;
    ctx.type = 'text/plain; charset=utf-8';
    ctx.body = policy;
  });
  router.get('/docs', (ctx) => page(ctx, shown()));
  router.get('/docs/openapi.json', (ctx) => {
    ctx.set('Access-Control-Allow-Origin', '*');
    ctx.type = 'application/json; charset=utf-8';
    ctx.body = openapi();
  });
  router.get('/exports/:token', (ctx) => {
    const token = ctx.params.token ?? '';
    return exportFiles(ctx, token, (host) => deps.fetchFile(ctx, `${EXPORTS_PATH}${token}`, host));
  });
  // The name at the end is the file name for a download.
  router.get('/inbound-files/:token{/:name}', (ctx) => {
    const token = ctx.params.token ?? '';
    return inboundFiles(ctx, token, () => deps.fetchFile(ctx, `${LINKS_PATH}${token}`));
  });
  router.get('/verify/:token', (ctx) => verifyPage(ctx, ctx.params.token ?? ''));
  router.post('/verify/:token', (ctx) => verifyPage(ctx, ctx.params.token ?? ''));
  router.get('/track/open/:token', (ctx) => trackPages.open(ctx, ctx.params.token ?? ''));
  router.get('/track/click/:token', (ctx) => trackPages.click(ctx, ctx.params.token ?? ''));
  router.get('/unsubscribe/:token', (ctx) => trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.post('/unsubscribe/:token', (ctx) => trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.get('/healthz', (ctx) => {
    ctx.set('Cache-Control', 'no-store');
    ctx.body = { status: 'ok', version: settings.version, instance: deps.instance };
  });
  router.get('/metrics', createMetricsPage(settings, deps));
  router.get('/readyz', async (ctx) => {
    const { ok, checks } = await deps.health.ready();
    ctx.set('Cache-Control', 'no-store');
    ctx.status = ok ? 200 : 503;
    ctx.body = { status: ok ? 'ok' : 'not ready', checks };
  });
  // biome-ignore lint/plugin: the router sets `params` and `router` itself, but its types require them from the caller
  return router.routes() as Middleware;
}

const EXPORTS_PATH = '/exports/';

/** Answers other hosts with files of this host only, by path. */
export function createFiles(
  settings: ExportFileSettings,
  deps: Pick<PageDeps, 'store' | 'linkedFiles' | 'log'>,
): (ctx: Context, path: string) => Promise<void> {
  const [exportFiles, inboundFiles] = [createExportFiles(settings, deps), createInboundFiles(deps)];
  return async (ctx, path) => {
    if (path.startsWith(EXPORTS_PATH)) await exportFiles(ctx, path.slice(EXPORTS_PATH.length));
    else if (path.startsWith(LINKS_PATH)) await inboundFiles(ctx, path.slice(LINKS_PATH.length));
    else ctx.status = 404;
  };
}

/** Calls `make` on first use and keeps its result. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

function page(ctx: Context, html: string): void {
  // Allows only the style sheet and the script of the page itself: no images, no frames, nothing external.
  ctx.set({
    'Content-Security-Policy':
      `default-src 'none'; style-src '${PAGE_HASHES.style}'; script-src '${PAGE_HASHES.script}'; ` +
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    'Referrer-Policy': 'no-referrer',
  });
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = html;
}

/**
 * Serves /metrics, only to the addresses in `metrics.allow`: it reveals the volume of mail, and faults. A
 * request through a proxy that we do not trust is refused even if the proxy is allowed, because its client is unknown;
 * scrapers connect directly.
 */
function createMetricsPage(
  settings: PageSettings,
  { metrics, clientAddress }: Pick<PageDeps, 'metrics' | 'clientAddress'>,
): (ctx: Context) => Promise<void> {
  const isAllowed = createAddressList(settings.metricsAllow);
  const isProxy = createAddressList(settings.trustedProxies);
  const peerAddress = createClientAddress([]);
  const mayRead = (req: IncomingMessage) => {
    const forwarded = req.headers['x-forwarded-for'] !== undefined || req.headers.forwarded !== undefined;
    return isAllowed(clientAddress(req)) && (!forwarded || isProxy(peerAddress(req)));
  };
  return async (ctx) => {
    ctx.set('Cache-Control', 'no-store');
    if (!mayRead(ctx.req)) {
      ctx.status = 403;
      ctx.body = 'Access denied: see metrics.allow in the settings.\n';
      return;
    }
    const text = await metrics.text();
    ctx.set('Content-Type', metrics.contentType);
    ctx.body = text;
  };
}
