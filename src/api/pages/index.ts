import type { IncomingMessage } from 'node:http';
import Router from '@koa/router';
import type { Context, Middleware } from 'koa';
import type { Log } from '../../base/log.ts';
import { createAddressList } from '../../base/networks.ts';
import type { Exposition } from '../../base/prometheus.ts';
import type { SenderDomains } from '../../sending/domains/sender-domains.ts';
import type { Store } from '../../store/store.ts';
import { toOpenApi } from '../docs/openapi.ts';
import { home, PAGE_HASHES, reference } from '../docs/page.ts';
import { createClientAddress } from '../door.ts';
import type { Operation } from '../operation.ts';
import { createExportFiles, type ExportFileSettings } from './export-files.ts';
import { createTrackPages, type Tracking } from './tracking.ts';
import { createVerifyPage } from './verification.ts';

/** How the daemon is. */
interface Readiness {
  readonly ok: boolean;
  /** Name of a check to `ok`, or to the words for what is wrong. */
  readonly checks: Readonly<Record<string, string>>;
}

export interface PageSettings extends ExportFileSettings {
  /** How the outside reaches us, without a final slash; empty: links are relative. */
  readonly publicUrl: string;
  /** Who may read /metrics: addresses or networks. */
  readonly metricsAllow: readonly string[];
  readonly trustedProxies: readonly string[];
  /** Of Postern. */
  readonly version: string;
}

export interface PageDeps {
  readonly operations: readonly Operation[];
  readonly health: { ready(): Promise<Readiness> };
  readonly store: Pick<Store, 'exportJobs'>;
  readonly senderDomains: Pick<SenderDomains, 'look' | 'follow'>;
  readonly tracking: Tracking;
  readonly metrics: Exposition;
  readonly clientAddress: (req: IncomingMessage) => string;
  readonly log: Log;
}

/** Everything that is no operation: a start page, the reference, and the health checks. */
export function createPages(settings: PageSettings, deps: PageDeps): Middleware {
  const exportFiles = createExportFiles(settings, deps);
  const verifyPage = createVerifyPage(deps.senderDomains);
  const trackPages = createTrackPages(deps.tracking, deps.clientAddress);
  const router = new Router();
  // A third of the time that a start of the API takes would go into these two, which most lives of a daemon never show.
  const shown = once(() => reference(deps.operations, settings.publicUrl));
  const openapi = once(() => JSON.stringify(toOpenApi(deps.operations, `${settings.publicUrl}/api/1.0`), null, 2));
  const start = home(settings.version);
  router.get('/', (ctx) => page(ctx, start));
  router.get('/docs', (ctx) => page(ctx, shown()));
  router.get('/docs/openapi.json', (ctx) => {
    ctx.set('Access-Control-Allow-Origin', '*');
    ctx.type = 'application/json; charset=utf-8';
    ctx.body = openapi();
  });
  router.get('/exports/:token', (ctx) => exportFiles(ctx, ctx.params.token ?? ''));
  router.get('/verify/:token', (ctx) => verifyPage(ctx, ctx.params.token ?? ''));
  router.post('/verify/:token', (ctx) => verifyPage(ctx, ctx.params.token ?? ''));
  router.get('/track/open/:token', (ctx) => trackPages.open(ctx, ctx.params.token ?? ''));
  router.get('/track/click/:token', (ctx) => trackPages.click(ctx, ctx.params.token ?? ''));
  router.get('/unsubscribe/:token', (ctx) => trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.post('/unsubscribe/:token', (ctx) => trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.get('/healthz', (ctx) => {
    ctx.set('Cache-Control', 'no-store');
    ctx.body = { status: 'ok', version: settings.version };
  });
  router.get('/metrics', createMetricsPage(settings, deps));
  router.get('/readyz', async (ctx) => {
    const { ok, checks } = await deps.health.ready();
    ctx.set('Cache-Control', 'no-store');
    ctx.status = ok ? 200 : 503;
    ctx.body = { status: ok ? 'ok' : 'not ready', checks };
  });
  // The router puts `params` and `router` into the context itself; its types ask them of the caller.
  return router.routes() as Middleware;
}

/** What `make` answers, made when first asked for and kept. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

function page(ctx: Context, html: string): void {
  // Nothing but the style sheet and the script that are part of the page: no picture, no frame, nothing from elsewhere.
  ctx.set({
    'Content-Security-Policy': `default-src 'none'; style-src '${PAGE_HASHES.style}'; script-src '${PAGE_HASHES.script}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    'Referrer-Policy': 'no-referrer',
  });
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = html;
}

/**
 * How much mail there is, and what is wrong, is not for the public: only those that the settings name get to see it. A
 * request that came over a proxy which we do not trust is nobody's we know, wherever the proxy stands: scrapers come by
 * themselves.
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
