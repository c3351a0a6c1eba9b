import type { Arrival, Routed } from '../inbound/types.ts';
import { createPolicy } from './policy.ts';
import { openReception, type Keeping } from './reception.ts';
import { REFUSALS } from './refusal.ts';
import type { ListenerDeps, ListenerSettings } from './settings.ts';
import type { Side } from './side.ts';
import { protocolOf, type Said } from './verbs.ts';

/** Mail that comes in for the domains of accounts: from anybody, to routes only. */
export function createInbound(settings: ListenerSettings, deps: ListenerDeps): Side {
  return Object.freeze({
    name: 'smtp' as const,
    policy: createPolicy(settings, deps),
    ownerOf: deps.routing.ownerOf,
    receive(said: Said, address: string) {
      const { transaction, helo, tls } = said;
      if (!transaction) throw new Error('DATA without a transaction');
      const arrival = { envelope: { mailFrom: transaction.mailFrom, client: { address, helo, tls } }, protocol: protocolOf(said) };
      const routed = [...transaction.recipients.values()].flatMap(({ recipient, match }) => match ? [{ recipient, match }] : []);
      return openReception(settings, { log: deps.log, keeping: openKeeping(deps, arrival, routed) });
    },
  });
}

/** Keeps a message on the spool. */
function openKeeping({ acceptance }: Pick<ListenerDeps, 'acceptance'>, arrival: Arrival, routed: readonly Routed[]): Keeping {
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
