import { POSTMASTER } from '../inbound/postmaster.ts';
import type { Arrival, Routed } from '../inbound/types.ts';
import { createPolicy, dsnOf } from './policy.ts';
import { type Keeping, openReception } from './reception.ts';
import { REFUSALS } from './refusal.ts';
import type { ListenerDeps, ListenerSettings } from './settings.ts';
import type { Side } from './side.ts';
import { protocolOf, type Said } from './verbs.ts';

/** The largest message to the postmaster that waits for the operator: what anybody may leave on our disk. */
const MOST_KEPT_BYTES = 1024 * 1024;

/** Mail that comes in for the domains of accounts: from anybody, to routes only. */
export function createInbound(settings: ListenerSettings, deps: ListenerDeps): Side {
  return Object.freeze({
    name: 'smtp' as const,
    policy: createPolicy(settings, deps),
    ownerOf: deps.routing.ownerOf,
    receive(said: Said, address: string) {
      const { transaction, helo, tls } = said;
      if (!transaction) throw new Error('DATA without a transaction');
      const dsn = dsnOf(transaction);
      const arrival = {
        envelope: { mailFrom: transaction.mailFrom, client: { address, helo, tls }, ...(dsn && { dsn }) },
        protocol: protocolOf(said),
      };
      const routed = [...transaction.recipients.values()].flatMap(({ recipient, match }) =>
        match ? [{ recipient, match }] : [],
      );
      const kept = settings.keepsPostmaster && routed.some(({ match }) => match.account === POSTMASTER);
      const maxMessageBytes = kept ? Math.min(settings.maxMessageBytes, MOST_KEPT_BYTES) : settings.maxMessageBytes;
      return openReception(
        { ...settings, maxMessageBytes },
        { log: deps.log, keeping: openKeeping(deps, arrival, routed) },
      );
    },
  });
}

/** Keeps a message on the spool. */
function openKeeping(
  { acceptance }: Pick<ListenerDeps, 'acceptance'>,
  arrival: Arrival,
  routed: readonly Routed[],
): Keeping {
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
