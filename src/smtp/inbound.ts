import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Acceptance, Arrival, RoutedRecipient } from '../inbound/types.ts';
import type { SmtpBackend } from './backend.ts';
import type { ListenerDeps, ListenerSettings } from './listener.ts';
import { type MessageSink, openReception } from './reception.ts';
import { REFUSALS } from './replies.ts';
import type { Side } from './session.ts';
import { dsnOf, protocolOf } from './session-state.ts';
import { maxBytesFor } from './workload.ts';

/** Size limit of a message kept for the postmaster: anyone can send one. */
const MAX_KEPT_BYTES = 1024 * 1024;

/** Creates the side for inbound mail: from anyone, to recipients with a route only. */
export function createInboundSide(
  settings: ListenerSettings,
  { backend, log }: { readonly backend: Omit<SmtpBackend, 'admission'> } & Pick<ListenerDeps, 'log'>,
): Side {
  return frozen({
    name: 'smtp' as const,
    mail: () => (backend.hasRoom() ? undefined : REFUSALS.full),
    recipient: backend.route,
    data: () => undefined,
    receive(state, address) {
      const { transaction, helo, tls } = state;
      if (!transaction) throw new Error('DATA without a transaction');
      const dsn = dsnOf(transaction);
      const arrival = {
        envelope: { mailFrom: transaction.mailFrom, client: { address, helo, tls }, ...(dsn && { dsn }) },
        protocol: protocolOf(state),
      };
      const routed = [...transaction.recipients.values()].flatMap(({ recipient, match }) =>
        match ? [{ recipient, match }] : [],
      );
      const kept = settings.keepsPostmaster && routed.some(({ match }) => match.account === POSTMASTER);
      const maxMessageBytes = kept ? Math.min(settings.maxMessageBytes, MAX_KEPT_BYTES) : settings.maxMessageBytes;
      const most = maxBytesFor(transaction, settings.maxMessageBytes);
      const limits = { ...settings, maxMessageBytes, mostBytes: most };
      return openReception(limits, { log, sink: openSpoolSink(backend, arrival, routed) });
    },
  });
}

/** Writes a message to the spool, for delivery to its routes. */
function openSpoolSink(
  { acceptance, hasRoom }: { readonly acceptance: Acceptance; hasRoom(): boolean },
  arrival: Arrival,
  routed: readonly RoutedRecipient[],
): MessageSink {
  const { messageId, body } = acceptance.begin();
  return {
    messageId,
    // Only a large message waits for the disk, and only a large one can use up the space that was left at MAIL.
    write: (bytes) => body.write(bytes)?.then(() => (hasRoom() ? undefined : REFUSALS.full)),
    abort: () => body.abort(),
    async finish() {
      const accepted = await acceptance.accept(messageId, arrival, routed, await body.finish());
      if (accepted.outcome === 'accepted') return { id: accepted.messageId };
      return { refused: REFUSALS[accepted.outcome] };
    },
  };
}
