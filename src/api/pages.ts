import type { IncomingMessage } from 'node:http';
import Router from '@koa/router';
import type { Middleware } from 'koa';
import { createAddressList } from '../base/networks.ts';
import type { Exposition } from '../base/prometheus.ts';
import { home, PAGE_HASHES, reference } from './docs-page.ts';
import { createClientAddress } from './door.ts';
import type { ExportFiles } from './export-files.ts';
import { toOpenApi } from './openapi.ts';
import type { Operation } from './operation.ts';
import type { TrackPages } from './track-pages.ts';
import type { VerifyPage } from './verify-page.ts';

/** How the daemon is. */
export interface Readiness {
  readonly ok: boolean;
  /** Name of a check to `ok`, or to the words for what is wrong. */
  readonly checks: Readonly<Record<string, string>>;
}

export interface PageDeps {
  readonly operations: readonly Operation[];
  readonly health: { ready(): Promise<Readiness> };
  readonly exportFiles: ExportFiles;
  readonly verifyPage: VerifyPage;
  readonly trackPages: TrackPages;
  readonly metricsPage: MetricsPage;
}

/** Everything that is no operation: a start page, the reference, and the health checks. */
export function createPages(
  settings: { readonly publicUrl: string; readonly version: string },
  deps: PageDeps,
): Middleware {
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
  router.get('/exports/:token', (ctx) => deps.exportFiles(ctx, ctx.params.token ?? ''));
  router.get('/verify/:token', (ctx) => deps.verifyPage(ctx, ctx.params.token ?? ''));
  router.post('/verify/:token', (ctx) => deps.verifyPage(ctx, ctx.params.token ?? ''));
  router.get('/track/open/:token', (ctx) => deps.trackPages.open(ctx, ctx.params.token ?? ''));
  router.get('/track/click/:token', (ctx) => deps.trackPages.click(ctx, ctx.params.token ?? ''));
  router.get('/unsubscribe/:token', (ctx) => deps.trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.post('/unsubscribe/:token', (ctx) => deps.trackPages.unsubscribe(ctx, ctx.params.token ?? ''));
  router.get('/healthz', (ctx) => {
    ctx.set('Cache-Control', 'no-store');
    ctx.body = { status: 'ok', version: settings.version };
  });
  router.get('/metrics', deps.metricsPage);
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

interface Response {
  set(headers: Record<string, string>): void;
  type: string;
  body: unknown;
}

function page(ctx: Response, html: string): void {
  // Nothing but the style sheet and the script that are part of the page: no picture, no frame, nothing from elsewhere.
  ctx.set({
    'Content-Security-Policy': `default-src 'none'; style-src '${PAGE_HASHES.style}'; script-src '${PAGE_HASHES.script}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    'Referrer-Policy': 'no-referrer',
  });
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = html;
}

/** The parts of a context that the page needs. */
interface Context {
  readonly req: IncomingMessage;
  status: number;
  body: unknown;
  set(name: string, value: string): void;
}

/** Answers /metrics. */
export type MetricsPage = (ctx: Context) => Promise<void>;

/**
 * How much mail there is, and what is wrong, is not for the public: only those that the settings name get to see it. A request that
 * came over a proxy which we do not trust is nobody's we know, wherever the proxy stands: scrapers come by themselves.
 */
export function createMetricsPage(
  settings: { readonly metricsAllow: readonly string[]; readonly trustedProxies: readonly string[] },
  exposition: Exposition | undefined,
): MetricsPage {
  const isAllowed = createAddressList(settings.metricsAllow);
  const isProxy = createAddressList(settings.trustedProxies);
  const clientAddress = createClientAddress(settings.trustedProxies);
  const peerAddress = createClientAddress([]);
  const mayRead = (req: IncomingMessage) => {
    const forwarded = req.headers['x-forwarded-for'] !== undefined || req.headers.forwarded !== undefined;
    return isAllowed(clientAddress(req)) && (!forwarded || isProxy(peerAddress(req)));
  };
  return async (ctx) => {
    ctx.set('Cache-Control', 'no-store');
    if (!exposition || !mayRead(ctx.req)) {
      ctx.status = 403;
      ctx.body = 'Not for this address: see metrics.allow in the settings.\n';
      return;
    }
    const text = await exposition.text();
    ctx.set('Content-Type', exposition.contentType);
    ctx.body = text;
  };
}
