import type { Clock } from '../base/clock.ts';
import type { Routing } from '../inbound/types.ts';
import type { Delivery } from '../spool/types.ts';
import { createBeliefs } from '../store/beliefs.ts';
import { StoreAway } from '../store/collection.ts';
import type { Store } from '../store/store.ts';

/** Where a delivery goes now. here: to its URL, as the queue has it · there: to another · nowhere: its webhook was deleted · unknown: the store is away, and nothing is known of it. */
export type Destination =
  | { readonly kind: 'here' | 'nowhere' | 'unknown' }
  | { readonly kind: 'there'; readonly url: string };

/** Whether posts still go where the queue of this host has them go: another host may have been told otherwise. */
export interface Destinations {
  of(delivery: Pick<Delivery, 'url' | 'routeId' | 'recipient' | 'batch'>): Promise<Destination>;
}

export interface DestinationDeps {
  readonly store: Pick<Store, 'webhooks' | 'inboundRoutes'>;
  readonly routing: Pick<Routing, 'urlOf'>;
  readonly clock: Clock;
}

/** How long a webhook is believed to be there, at its URL. */
const FRESH_MS = 5000;

const HERE = { kind: 'here' } as const;
const UNKNOWN = { kind: 'unknown' } as const;

/**
 * Asked before every attempt. A webhook that was deleted gets nothing more. A route that was deleted has its mail all the same: we
 * took it for that URL.
 */
export function createDestinations({ store, routing, clock }: DestinationDeps): Destinations {
  const webhooks = createBeliefs(async (id) => (await store.webhooks.one({ id }))?.url ?? null, FRESH_MS, { clock });

  async function ofBatch(url: string, webhook: string): Promise<Destination> {
    const believed = await webhooks.of(webhook);
    if (believed === undefined) return UNKNOWN;
    if (believed === url) return HERE;
    // The queue may know better than what is believed: a call to this host changes both, one after the other.
    const now = await webhooks.now(webhook);
    return now === null ? { kind: 'nowhere' } : toThere(url, now);
  }

  async function ofMail({
    url,
    routeId,
    recipient,
  }: Pick<Delivery, 'url' | 'routeId' | 'recipient'>): Promise<Destination> {
    const believed = routing.urlOf(routeId, recipient.slice(recipient.lastIndexOf('@') + 1));
    if (believed === undefined || believed === url) return HERE;
    return toThere(url, (await store.inboundRoutes.one({ id: routeId }))?.url ?? url);
  }

  return Object.freeze({
    async of(delivery: Pick<Delivery, 'url' | 'routeId' | 'recipient' | 'batch'>) {
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
