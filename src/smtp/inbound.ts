import { frozen } from '../base/frozen.ts';
import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Arrival, Match, RoutedRecipient } from '../inbound/types.ts';
import type { Address } from '../mail/address.ts';
import type { Verdict } from './command-line.ts';
import type { ListenerDeps, ListenerSettings } from './listener.ts';
import { type MessageSink, openReception } from './reception.ts';
import { REFUSALS } from './replies.ts';
import type { Side } from './session.ts';
import { dsnOf, protocolOf } from './session-state.ts';

// A mailbox that carries another address inside is the old way to ask for relaying (RFC 5321 section 3.6.1).
const RELAY_TRICK = /[@%!]/;
/** Messages to the postmaster that wait for the operator to say where he reads them: anybody may send such. */
const MAX_KEPT = 100;
/** The largest of them: what anybody may leave on our disk. */
const MAX_KEPT_BYTES = 1024 * 1024;
const WHY = { 'no-route': REFUSALS.noMailbox, 'not-ours': REFUSALS.noRelay, unknown: REFUSALS.fault } as const;

/** Mail that comes in for the domains of accounts: from anybody, to routes only. */
export function createInboundSide(settings: ListenerSettings, deps: ListenerDeps): Side {
  const { routing, returnAddresses, postmaster, spool } = deps;
  const maxWaiting = (account: string) =>
    account === POSTMASTER && settings.keepsPostmaster ? MAX_KEPT - 1 : settings.maxBacklogPerAccount;

  function route(address: Address): Verdict<Match> {
    if (address.domain.startsWith('[') || RELAY_TRICK.test(address.mailbox)) return { refused: REFUSALS.noRelay };
    const routed =
      returnAddresses?.lookup(address.mailbox, address.domain) ?? routing.lookup(address.mailbox, address.domain);
    const found = postmaster.lookup(address.mailbox, address.domain, routed);
    if (found.kind !== 'matched') return { refused: WHY[found.kind] };
    if (spool.backlog(found.match.account, 'in') > maxWaiting(found.match.account))
      return { refused: REFUSALS.backlog };
    return { value: found.match };
  }

  return frozen({
    name: 'smtp' as const,
    mail: () => (spool.hasRoom() ? undefined : REFUSALS.full),
    recipient: route,
    data: () => undefined,
    ownerOf: routing.ownerOf,
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
      return openReception(
        { ...settings, maxMessageBytes },
        { log: deps.log, sink: openSpoolSink(deps, arrival, routed) },
      );
    },
  });
}

/** Writes a message to the spool, to be delivered to those that it is routed to. */
function openSpoolSink(
  { acceptance }: Pick<ListenerDeps, 'acceptance'>,
  arrival: Arrival,
  routed: readonly RoutedRecipient[],
): MessageSink {
  const { messageId, body } = acceptance.begin();
  return {
    messageId,
    write: (bytes) => body.write(bytes)?.then(() => undefined),
    abort: () => body.abort(),
    async finish() {
      const accepted = await acceptance.accept(messageId, arrival, routed, await body.finish());
      if (accepted.outcome === 'accepted') return { id: accepted.messageId };
      return { refused: accepted.outcome === 'full' ? REFUSALS.full : REFUSALS.fault };
    },
  };
}
