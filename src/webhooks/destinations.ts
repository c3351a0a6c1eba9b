import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { MANDRILL, type PostStyle } from '../inbound/formats.ts';
import type { RouteTarget, Routing } from '../inbound/types.ts';
import { domainOf } from '../mail/addresses/address.ts';
import type { Delivery } from '../queue/delivery.ts';
import { createCachedReads } from '../store/cached-reads.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { Store } from '../store/store.ts';

/**
 * Where a delivery goes now. here: to its queued URL · there: to another URL · nowhere: its webhook was deleted ·
 * unknown: the store is unavailable and nothing is cached, or the route is too new for this version.
 */
export type Destination =
  | { readonly kind: 'here' | 'nowhere' | 'unknown' }
  | { readonly kind: 'there'; readonly url: string };

/** Checks whether the queued URL is still current: another host may have changed it. */
export type Destinations = ReturnType<typeof createDestinations>;

/** The form of a post, and the password that it is sent with. */
export type PostTarget = PostStyle & Pick<RouteTarget, 'password'> & { readonly url: string | null };

/** For mail whose route is not known. */
export const PLAIN_TARGET: PostTarget = { ...MANDRILL, password: null, url: null };

/** Rails expects this user; others ignore it. A user and password in the URL take precedence (post/post.ts). */
export function basicAuth(password: string | null): Readonly<Record<string, string>> {
  if (password === null) return {};
  return { authorization: `Basic ${Buffer.from(`actionmailbox:${password}`).toString('base64')}` };
}

interface DestinationDeps {
  readonly store: Pick<Store, 'webhooks' | 'inboundRoutes'>;
  readonly routing: Pick<Routing, 'routeOf' | 'isTooNew'>;
  readonly clock: Clock;
}

type Routed = Pick<Delivery, 'routeId' | 'recipient'>;

/** Milliseconds for which the URL of a webhook is cached. */
const FRESH_MS = 5000;

const HERE = { kind: 'here' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

/**
 * Checks the destination before every attempt. A deleted webhook gets nothing more. Mail of a deleted route is still
 * delivered, because we accepted it for that URL.
 */
export function createDestinations({ store, routing, clock }: DestinationDeps) {
  const webhooks = createCachedReads(async (id) => (await store.webhooks.one({ id }))?.url ?? null, FRESH_MS, {
    clock,
  });

  async function ofBatch(url: string, webhook: string): Promise<Destination> {
    const believed = await webhooks.of(webhook);
    if (believed === undefined) return UNKNOWN;
    if (believed === url) return HERE;
    // The queue may be newer than the cache: an API call on this host updates both, one after the other.
    const now = await webhooks.now(webhook);
    return now === null ? { kind: 'nowhere' } : toThere(url, now);
  }

  async function ofMail({ url, routeId, recipient }: Routed & Pick<Delivery, 'url'>): Promise<Destination> {
    if (routing.isTooNew(routeId, domainOf(recipient))) return UNKNOWN;
    const believed = routing.routeOf(routeId, domainOf(recipient))?.url;
    if (believed === undefined || believed === url) return HERE;
    return toThere(url, (await store.inboundRoutes.one({ id: routeId }))?.url ?? url);
  }

  return frozen({
    /** How many messages of this route may share a POST; other formats than Mandrill's hold one. */
    batchEvents({ routeId, recipient }: Routed) {
      const target = routing.routeOf(routeId, domainOf(recipient));
      return target?.format === 'mandrill' ? target.batchEvents : 1;
    },
    /** The form of its post: that of its route, or Mandrill's for mail of a deleted route and for batches of events. */
    target: ({ routeId, recipient }: Routed) => routing.routeOf(routeId, domainOf(recipient)) ?? PLAIN_TARGET,
    async of(delivery: Routed & Pick<Delivery, 'url' | 'batch'>) {
      try {
        return delivery.batch ? await ofBatch(delivery.url, delivery.batch.webhook) : await ofMail(delivery);
      } catch (error) {
        if (error instanceof StoreAway) return UNKNOWN;
        throw error;
      }
    },
  });
}

const toThere = (url: string, now: string): Destination => (now === url ? HERE : { kind: 'there', url: now });
