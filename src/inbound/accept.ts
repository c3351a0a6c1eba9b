import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { deliveryId, type Ids } from '../base/ids.ts';
import type { Metrics } from '../base/metrics.ts';
import { traceLine } from '../mail/envelope.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import type { Pacing } from './pacing.ts';
import type { Acceptance, AcceptResult, RoutedRecipient } from './types.ts';

/**
 * Takes responsibility for a message: one message and one delivery per routed recipient, written as a unit and synced.
 * Only after `accepted` may a client be told 250.
 */
export function createAcceptance(
  settings: { readonly hostname: string },
  deps: { spool: Spool; pacing: Pick<Pacing, 'turn'>; clock: Clock; ids: Ids; metrics: Metrics },
): Acceptance {
  const { spool, pacing, clock, ids, metrics } = deps;
  const taken = {
    smtp: metrics.counter('postern_messages_accepted_total', { source: 'smtp' }),
    api: metrics.counter('postern_messages_accepted_total', { source: 'api' }),
  };
  const sizes = metrics.histogram('postern_message_bytes', { direction: 'inbound' });
  return frozen({
    begin() {
      const messageId = ids.message();
      return { messageId, body: spool.body(messageId) };
    },
    async accept(messageId, arrival, routed, body): Promise<AcceptResult> {
      const receivedAt = clock.now();
      // The bytes are given away with the message, and have no length afterwards.
      const size = body.kind === 'blob' ? body.size : body.bytes.byteLength;
      const deliveries = toDeliveries(messageId, routed, size);
      const only = deliveries.length === 1 ? deliveries[0]?.recipient : undefined;
      const trace = traceLine({ ...arrival, hostname: settings.hostname, messageId, receivedAt, recipient: only });
      const outcome = await spool.accept(
        { id: messageId, receivedAt, envelope: arrival.envelope, trace, body },
        deliveries,
      );
      if (outcome !== 'accepted') return { outcome };
      (arrival.protocol === 'HTTP' ? taken.api : taken.smtp).add();
      sizes.observe(size);
      await pacing.turn(deliveries);
      return { outcome, messageId };
    },
  });
}

/** A client may name a recipient twice; one delivery is enough, and the id is the same anyway. */
function toDeliveries(messageId: string, routed: readonly RoutedRecipient[], size: number): Delivery[] {
  const byId = new Map(
    routed.map(({ recipient, match }) => {
      const id = deliveryId(messageId, match.routeId, recipient);
      return [
        id,
        {
          ...match,
          id,
          messageId,
          recipient,
          size,
        },
      ];
    }),
  );
  return [...byId.values()];
}
