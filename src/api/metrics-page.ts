import type { IncomingMessage } from 'node:http';
import type { Exposition } from '../base/prometheus.ts';
import { createAddressList, createClientAddress } from './client-address.ts';

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
