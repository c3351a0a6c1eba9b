import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { deliveryId, type Ids } from '../base/ids.ts';
import type { Metrics } from '../base/metrics.ts';
import { type Envelope, traceLine } from '../mail/envelope.ts';
import type { Delivery, Spool } from '../queue/delivery.ts';
import type { Pacing } from './pacing.ts';
import type { Acceptance, AcceptResult, DoorScan, Match, RoutedRecipient } from './types.ts';

interface AcceptanceDeps {
  readonly spool: Spool;
  readonly pacing: Pick<Pacing, 'turn'>;
  /** Undefined if messages are scanned after the 250, or not at all. */
  readonly doorScan: DoorScan | undefined;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly metrics: Metrics;
}

/**
 * Creates the part that takes responsibility for messages: it writes one message and one delivery per routed recipient
 * as a unit, synced to disk. Only after `accepted` may a client get 250.
 */
export function createAcceptance(settings: { readonly hostname: string }, deps: AcceptanceDeps): Acceptance {
  const { spool, pacing, doorScan, clock, ids, metrics } = deps;
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
      // Read first: the bytes are transferred with the message and have length 0 afterwards.
      const size = body.kind === 'blob' ? body.size : body.bytes.byteLength;
      const deliveries = toDeliveries(messageId, routed, size);
      const only = deliveries.length === 1 ? deliveries[0]?.recipient : undefined;
      const trace = traceLine({ ...arrival, hostname: settings.hostname, messageId, receivedAt, recipient: only });
      const message = { id: messageId, envelope: withFindings(arrival.envelope, routed), trace, body };
      const isScanned = doorScan && arrival.protocol !== 'HTTP' && deliveries.some(({ kind }) => kind === 'inbound');
      const recipients = deliveries.map(({ recipient }) => recipient);
      const scanned = isScanned ? await doorScan({ ...message, recipients }) : undefined;
      if (scanned?.refused) return { outcome: scanned.refused };
      const outcome = await spool.accept({ ...message, receivedAt, scan: scanned?.scan }, deliveries);
      if (outcome !== 'accepted') return { outcome };
      (arrival.protocol === 'HTTP' ? taken.api : taken.smtp).add();
      sizes.observe(size);
      await pacing.turn(deliveries);
      return { outcome, messageId };
    },
  });
}

/** Keeps what the addresses said, beyond where they lead, with the envelope, which is stored with the message. */
function withFindings(envelope: Envelope, routed: readonly RoutedRecipient[]): Envelope {
  const replyData = byRecipient(routed, (match) => match.replyData);
  const captures = byRecipient(routed, (match) => match.captures);
  return replyData || captures
    ? { ...envelope, ...(replyData && { replyData }), ...(captures && { captures }) }
    : envelope;
}

function byRecipient<T>(
  routed: readonly RoutedRecipient[],
  of: (match: Match) => T | undefined,
): Readonly<Record<string, T>> | undefined {
  const found = routed.flatMap(({ recipient, match }) => {
    const value = of(match);
    return value === undefined ? [] : [[recipient, value] as const];
  });
  return found.length === 0 ? undefined : Object.fromEntries(found);
}

/** Returns one delivery per id: a recipient that the client names twice has the same id. */
function toDeliveries(messageId: string, routed: readonly RoutedRecipient[], size: number): Delivery[] {
  const byId = new Map(
    routed.map(({ recipient, match: { replyData: _, captures: __, ...match } }) => {
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
